"""Prompts reach a model as it was trained to read them; heads out of files are the ones that were asked for."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtplab.model.reading import Reading
from mtplab.pipeline.choices import HeadFile, NamedFile, choose
from mtplab.pipeline.job import StageFailed
from mtplab.pipeline.stages.loading import choose_head, read_texts

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """One token a letter, and a first token of its own before every text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {chr(32 + n): n for n in range(95)} | {"<s>": 95}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 95)])
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_the_chat_template_goes_around_all_but_raw_prompts_and_brings_its_own_special_tokens(
    tokenizer: Path, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "chat", "text": "hi", "system": "be brief", "continuation": "yes"},
        {"id": "raw", "text": "hi", "raw": True},
    ]
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reading = Reading(name="m", vocab=96, context=100, end_tokens=[1], chat_template=TEMPLATE)
    chat, raw = read_texts(str(path), tokenizer, 100, reading)
    spelled = "".join(chr(32 + token) for token in chat.tokens)
    assert spelled == "[system]be brief[user]hi[assistant]yes"
    assert chat.split == len(chat.tokens) - 3
    assert raw.tokens[0] == 95 and len(raw.tokens) == 3
    plain, _ = read_texts(str(path), tokenizer, 100, Reading(name="m", vocab=96, context=100, end_tokens=[1]))
    assert plain.tokens[0] == 95 and "".join(chr(32 + t) for t in plain.tokens[1:]) == "be briefhiyes"


@pytest.mark.pipeline
def test_a_head_out_of_a_file_is_the_one_asked_for_and_fits(small: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from mtplab.model.backbone import Backbone, BackboneConfig
    from mtplab.model.errors import ModelError
    from mtplab.model.heads import build_head, save_head

    model = cast(Any, SimpleNamespace(name="small", backbone=small.torch_backbone, heads={}))
    path = tmp_path / "h.safetensors"
    save_head(small.torch_head, path, dtype=torch.float32)
    choice = choose(str(path), None, "tiny")
    loaded = choose_head(model, choice)
    assert torch.equal(loaded.join_proj.weight, small.torch_head.join_proj.weight)

    with pytest.raises(StageFailed, match="changed while the pipeline ran"):
        choose_head(model, HeadFile(NamedFile(str(path), "0" * 64)))
    with pytest.raises(StageFailed, match="has no zero_copy head"):
        choose_head(model, "zero_copy")

    wider = Backbone(BackboneConfig(vocab=160, d_model=32, layers=1, heads=4, kv_heads=2, head_dim=8, ff=64))
    save_head(build_head("token_conditioned", wider, 3), path)
    with pytest.raises(ModelError, match=r"A head for d_model 32 .* does not fit a backbone with 64"):
        choose_head(model, choose(str(path), None, "tiny"))
    with torch.no_grad():
        small_head = build_head("token_conditioned", small.torch_backbone, 3)
        small_head.join_proj.weight[0, 0] = float("nan")  # type: ignore[index, union-attr]
    save_head(small_head, path)
    with pytest.raises(ModelError, match="no finite numbers"):
        choose_head(model, choose(str(path), None, "tiny"))
