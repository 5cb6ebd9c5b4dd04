"""A small model with random weights, exported once a test session and shared by three rooms' tests."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GAMMA = 3
PREFILLS = (16,)


@dataclass(frozen=True)
class Specimen:
    """Torch modules and the graphs exported from them."""

    folder: Path
    torch_backbone: Any
    torch_head: Any
    backbone: Path
    head: Path
    plain_head: Path
    torch_zero_copy_head: Any
    zero_copy_head: Path
    evaluation: Path
    tokenizer: Path
    reading: Path
    prompts: Path


@functools.cache
def specimen() -> Specimen:
    """Build and export it; several seconds, once."""
    import torch

    from mtplab.litert.evaluation_graph import export_evaluation
    from mtplab.litert.export import export_backbone, export_head
    from mtplab.model.backbone import Backbone, BackboneConfig
    from mtplab.model.heads import build_head

    torch.set_num_threads(1)  # tiny operations on a busy machine only wait for each other
    folder = Path(tempfile.mkdtemp(prefix="mtplab-specimen-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    torch.manual_seed(11)
    config = BackboneConfig(vocab=160, d_model=64, layers=2, heads=4, kv_heads=2, head_dim=16, ff=96, context=100)
    backbone = Backbone(config)
    # Larger weights than a fresh model's spread the logits, so that ties do not decide greedy choices.
    with torch.no_grad():
        for parameter in backbone.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)
    backbone.eval().requires_grad_(False)
    head = build_head("token_conditioned", backbone, GAMMA)
    _teach(head, backbone)
    head.eval().requires_grad_(False)
    zero_copy_head = build_head("zero_copy", backbone, GAMMA)
    with torch.no_grad():
        zero_copy_head.o_proj.weight.mul_(40)  # type: ignore[operator, union-attr]  # the cache must decide drafts
    zero_copy_head.eval().requires_grad_(False)
    plain_head = build_head("recurrent_residual", backbone, GAMMA).eval().requires_grad_(False)
    return Specimen(
        folder=folder,
        torch_backbone=backbone,
        torch_head=head,
        backbone=export_backbone(backbone, folder / "backbone.tflite", (GAMMA,), PREFILLS),
        head=export_head(head, folder / "head.tflite"),
        plain_head=export_head(plain_head, folder / "plain_head.tflite", choices=False),
        torch_zero_copy_head=zero_copy_head,
        zero_copy_head=export_head(zero_copy_head, folder / "zero_copy_head.tflite", choices=False),
        evaluation=export_evaluation(head, folder / "evaluation.tflite", positions=16),
        tokenizer=_tokenizer(folder / "tokenizer.json"),
        reading=_reading(folder / "model.json"),
        prompts=_prompts(folder / "prompts.jsonl"),
    )


def _teach(head: Any, backbone: Any, steps: int = 60) -> None:
    """Let the head learn some of the backbone's greedy text, so that rounds of every kind occur."""
    import torch
    import torch.nn.functional as F

    from mtplab.model.generate import greedy
    from mtplab.model.heads import attend_for

    generator = torch.Generator().manual_seed(12)
    text = greedy(backbone, torch.randint(0, 95, (12, 12), generator=generator), 40)
    with torch.no_grad():
        hidden, *kv = backbone.sequence_with_cache(text)
    last = text.shape[1] - GAMMA - 1
    attend = attend_for(head, [one[:, :, :last] for one in kv])
    fed = torch.stack([text[:, k : last + k] for k in range(1, GAMMA + 1)], dim=-1)
    own = [value for _, value in head.own_parameters()]
    optimiser = torch.optim.AdamW(own, lr=4e-3)
    for _ in range(steps):
        drafts = head.drafts_given(hidden[:, :last], fed, attend)
        losses = [
            F.cross_entropy(draft.flatten(0, 1), text[:, k + 2 : last + k + 2].flatten())
            for k, draft in enumerate(drafts)
        ]
        optimiser.zero_grad()
        torch.stack(losses).sum().backward()
        optimiser.step()


@dataclass(frozen=True)
class LmBundle:
    """A bundle of the specimen for LiteRT-LM, with a zero-copy head that drafts half of the vocabulary."""

    path: Path
    drafter: Path
    torch_head: Any
    stop: int


@functools.cache
def lm_bundle() -> LmBundle:
    """Teach, export and pack it; several seconds, once."""
    import torch

    from mtplab.litert.bundle import Text, write_bundle
    from mtplab.litert.drafter import export_drafter
    from mtplab.model.heads import build_head

    small, stop = specimen(), 159
    torch.manual_seed(6)
    head = build_head("zero_copy", small.torch_backbone, GAMMA, draft_ids=range(0, 160, 2))
    _teach(head, small.torch_backbone)
    head.eval().requires_grad_(False)
    drafter = export_drafter(head, small.torch_backbone, small.folder / "drafter.tflite")
    path = small.folder / "small.litertlm"
    write_bundle(small.backbone, drafter, small.tokenizer, Text(stop_tokens=(stop,)), GAMMA, path)
    return LmBundle(path, drafter, head, stop)


def _tokenizer(path: Path) -> Path:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    # Every token has a character, so that any output can be told by its text.
    vocabulary = {chr(32 + n) if n < 95 else chr(256 + n): n for n in range(160)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(path))
    return path


def _reading(path: Path) -> Path:
    path.write_text(json.dumps({"name": "small", "vocab": 160, "context": 100, "end_tokens": [0]}))
    return path


def _prompts(path: Path) -> Path:
    lines = [
        {"id": "a", "class": "code", "text": "def add(a, b):"},
        {"id": "b", "class": "chat", "text": "Where is the nearest library, please, and when does it open?"},
        {"id": "c", "class": "code", "text": "import"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
