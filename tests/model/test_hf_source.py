"""A Hugging Face folder says what transformers says on the same random weights, or is refused with a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from mtplab.model.errors import ModelError  # noqa: E402
from mtplab.model.memory import parameter_count, require_export_memory, require_memory  # noqa: E402
from mtplab.model.sources import load_model  # noqa: E402

pytestmark = pytest.mark.pipeline
SHAPE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": True, "rms_norm_eps": 1e-5}),
    "llama, untied, biased, stretched": (
        "Llama",
        {"tie_word_embeddings": False, "attention_bias": True, "rope_parameters": LLAMA3},
    ),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 12}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "gemma": ("Gemma", {"head_dim": 16}),
}
Write = Callable[..., Path]


def tokenizer_json(size: int) -> str:
    from tokenizers import Tokenizer, models

    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{n}": n for n in range(3, size)}
    return str(Tokenizer(models.WordLevel(words, unk_token="<unk>")).to_str())


def write(folder: Path, family: str = "Llama", **more: Any) -> tuple[Path, Any]:
    """A folder as transformers saves it, with weights large enough that every part is heard, and its model."""
    torch.manual_seed(4)
    config = getattr(transformers, f"{family}Config")(**{**SHAPE, **more})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval().float()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.15)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer_json(96))
    return folder, model


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_its_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    family, more = CASES[name]
    folder, theirs = write(tmp_path, family, **more)
    loaded = load_model(str(folder))
    tokens = torch.randint(3, 96, (1, 40), generator=torch.Generator().manual_seed(1))
    ours, hidden = loaded.backbone.forward_sequence(tokens)
    torch.testing.assert_close(ours, theirs(tokens).logits, atol=2e-4, rtol=1e-3)
    assert hidden.shape == (1, 40, 32) and loaded.end_token == 2
    assert loaded.backbone.parameter_count() == parameter_count(loaded.config)
    assert "config.json" in loaded.files and "model.safetensors" in loaded.files


def change(folder: Path, **more: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"model_type": "gemma2"}, "caps its logits"),
        ({"model_type": "bert"}, "type 'bert', which cannot be loaded"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "rotary positions by 'yarn'"),
        ({"quantization_config": {"bits": 4}}, "quantised already"),
        ({"mlp_bias": True}, "bias in its feed-forward"),
        ({"model_type": "mistral", "sliding_window": 16}, "looks back only 16 tokens"),
        ({"hidden_act": "relu"}, "activation 'relu'"),
        ({"num_hidden_layers": 3}, "do not fit its configuration"),
        ({"hidden_size": None}, "not complete"),
        ({"vocab_size": 95}, "ids up to 95 but the model has 95 tokens"),
        ({"vocab_size": 9600}, "belongs to another model"),
        ({"num_hidden_layers": 10**9}, "billion parameters, which need about"),
    ],
)
def test_what_would_change_the_arithmetic_or_cannot_be_is_refused(
    more: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    write(tmp_path)
    change(tmp_path, **more)
    with pytest.raises(ModelError, match=sentence):
        load_model(str(tmp_path))


def test_weights_that_are_no_numbers_or_pickled_or_absent_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = write(tmp_path)[0] / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.1.mlp.up_proj.weight"][3, 3] = float("nan")
    save_file(tensors, path)
    with pytest.raises(ModelError, match=r"no finite numbers \(first in blocks.1.up_proj.weight\)"):
        load_model(str(tmp_path))
    path.write_bytes(b"\x80\x04 not safetensors")
    with pytest.raises(ModelError, match="cannot be opened"):
        load_model(str(tmp_path))
    path.rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pickled checkpoints .* are refused"):
        load_model(str(tmp_path))


def test_the_chat_template_of_the_folder_is_applied_and_a_hostile_one_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}>"
    words = {"chat_template": template, "bos_token": "<s>", "eos_token": {"content": "w7"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(words))
    loaded = load_model(str(tmp_path))
    assert loaded.chat("hello", system="be kind") == "<s>[system]be kind[user]hello>"
    assert loaded.end_token == 7, "what the tokenizer calls the end goes before config.json"
    hostile = {**words, "chat_template": "{{ ''.__class__.__mro__[1].__subclasses__() }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(hostile))
    with pytest.raises(ModelError, match="chat template of the model cannot be applied"):
        load_model(str(tmp_path)).chat("hello")


def test_a_model_too_big_for_memory_is_refused_before_it_is_read() -> None:
    from mtplab.model.backbone import BackboneConfig

    require_memory("small", BackboneConfig.small(), available_bytes=20_000_000)
    with pytest.raises(ModelError, match=r"need about 0\.0 GB in float32"):
        require_memory("small", BackboneConfig.small(), available_bytes=1_000_000)
    require_export_memory("small", BackboneConfig.small(), available_bytes=700_000_000)
    with pytest.raises(ModelError, match="while they are converted, but only"):
        require_export_memory("small", BackboneConfig.small(), available_bytes=20_000_000)


def test_mtp_weights_of_a_checkpoint_become_a_head_by_a_map(tmp_path: Path) -> None:
    from click.testing import CliRunner
    from safetensors.torch import save_file

    from mtplab.model.heads import build_head, load_head
    from mtplab.model.import_head_command import import_head_command

    folder, _ = write(tmp_path / "model")
    backbone = load_model(str(folder)).backbone
    head = build_head("token_conditioned", backbone, 2, ff=20)
    named = {f"mtp.0.{name}": value.detach().clone() for name, value in head.own_parameters()}
    named["mtp.0.join_proj.weight"] = named["mtp.0.join_proj.weight"].T.contiguous()
    del named["mtp.0.out_norm.weight"]
    save_file(named, tmp_path / "mtp.safetensors")
    lines = [f'"{name}" = "mtp.0.{name}"' for name, _ in head.own_parameters() if name != "out_norm.weight"]
    start = 'kind = "token_conditioned"\ngamma = 2\ntranspose = ["join_proj.weight"]\n'
    (tmp_path / "map.toml").write_text(start + 'ones = ["out_norm.weight"]\n[tensors]\n' + "\n".join(lines))
    command = ["--model", str(folder), "--head", str(tmp_path / "mtp.safetensors")]
    command += ["--map", str(tmp_path / "map.toml")]
    run = CliRunner().invoke(import_head_command, [*command, "--out", str(tmp_path)], standalone_mode=False)
    assert run.return_value == 0, run.output
    loaded = load_head(tmp_path / "head_token_conditioned.safetensors", backbone)
    torch.testing.assert_close(loaded.join_proj.weight, head.join_proj.weight, atol=1e-3, rtol=1e-3)
    assert loaded.config.ff == 20 and bool((loaded.out_norm.weight == 1).all())

    for text, sentence in (
        (start + "[tensors]\n" + "\n".join(lines), "no tensor for out_norm.weight"),
        (start + '[tensors]\n"up_proj.weight" = "mtp.9.x"', "has no tensor mtp.9.x"),
        ("gamma = 2", "cannot be read"),
        ("gamma = " + "[" * 5000, "cannot be read"),
    ):
        (tmp_path / "map.toml").write_text(text)
        run = CliRunner().invoke(import_head_command, [*command, "--out", str(tmp_path)], standalone_mode=False)
        assert run.return_value == 2 and sentence in run.output


def test_a_factory_is_taken_from_the_command_line_only_and_must_keep_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_users_module.py").write_text(
        "from mtplab.model.sources import load_model\n"
        "def good(): return load_model('tiny')\n"
        "def wrong(): return 3\n"
        "def broken(): raise RuntimeError('no disk')\n"
        "def forgetful():\n"
        "    model = load_model('tiny')\n"
        "    model.backbone.cache_update = lambda cache, new, at: cache\n"
        "    return model\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match="is not known"):
        load_model("a_users_module:good")
    assert load_model("a_users_module:good", from_command_line=True).name == "tiny"
    for name, sentence in (("wrong", "returned int"), ("broken", "no disk"), ("forgetful", "through its KV cache")):
        with pytest.raises(ModelError, match=sentence):
            load_model(f"a_users_module:{name}", from_command_line=True)
