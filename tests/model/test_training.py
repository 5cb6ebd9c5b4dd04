"""Training in the small: it learns, it resumes exactly, and it never sees a held-out module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mtplab.model import corpus  # noqa: E402
from mtplab.model.backbone import Backbone, BackboneConfig  # noqa: E402
from mtplab.model.fit_backbone import BackboneRecipe, fit_backbone  # noqa: E402
from mtplab.model.fit_heads import HeadRecipe, fit_head, own_text_pool, real_pool  # noqa: E402
from mtplab.model.heads import Kind, build_head  # noqa: E402
from mtplab.model.kinds import TINY_KINDS  # noqa: E402
from mtplab.model.optim import orthogonalise  # noqa: E402
from mtplab.model.unloop import repeated, unlikelihood  # noqa: E402

pytestmark = pytest.mark.pipeline
CONFIG = BackboneConfig(vocab=48, d_model=32, layers=2, heads=2, kv_heads=1, head_dim=16, ff=48, context=48)


def silent(line: str) -> None:
    assert line


def stream() -> Any:
    """Counting text: every token follows from the one before."""
    return torch.arange(4000) * 5 % 47 + 1


def recipe(steps: int) -> BackboneRecipe:
    return BackboneRecipe(steps=steps, tokens_per_step=128, short_length=16, long_length=16, warmup_steps=5)


def fitted(steps: int, checkpoint: Path) -> Backbone:
    torch.manual_seed(0)
    model = Backbone(CONFIG)
    fit_backbone(model, stream(), stream(), recipe(steps), checkpoint, silent)
    return model.eval()


def test_the_split_depends_on_the_name_alone_and_keeps_tests_and_build_folders_out(tmp_path: Path) -> None:
    for name in ("a.py", "test/b.py", "encodings/c.py", "_sysconfigdata_x.py", "pkg/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    documents = corpus.library_documents(tmp_path)
    assert [document.name for document in documents] == ["a.py", "pkg/d.py"]
    assert [d.held_out for d in documents] == [corpus.is_held_out(d.name) for d in documents]
    assert {corpus.is_held_out(f"m{i}.py") for i in range(200)} == {True, False}


def test_held_out_text_reaches_neither_tokenizer_nor_training_stream() -> None:
    documents = [
        corpus.Document("train.py", "alpha beta " * 50, False),
        corpus.Document("held.py", "zzqxzzqx " * 50, True),
    ]
    tokenizer = corpus.train_tokenizer(documents, vocab=300)
    assert not any("zq" in token for token in tokenizer.get_vocab())
    train = tokenizer.decode(corpus.token_stream(tokenizer, documents, held_out=False).tolist())
    assert "alpha" in train and "zz" not in train


def test_windows_are_seeded_and_begin_as_prompts_do() -> None:
    one, same, other = (corpus.windows(stream(), 4, 9, seed) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert one[:, 0].tolist() == [corpus.END_OF_TEXT_ID] * 4


def test_orthogonalised_updates_have_singular_values_near_one() -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalise(torch.randn(2, 24, 12)))
    assert values.min() > 0.5 and values.max() < 1.5


def test_training_learns_and_resuming_gives_the_same_weights(tmp_path: Path) -> None:
    whole = fitted(100, tmp_path / "whole.safetensors")
    _, held = stream()[:33], stream()[None, :32]
    logits, _ = whole.forward_sequence(held)
    assert (logits[0, :-1].argmax(-1) == held[0, 1:]).float().mean() > 0.9

    part = tmp_path / "part.safetensors"
    torch.manual_seed(0)
    model = Backbone(CONFIG)

    class Cut(Exception):
        pass

    def cut_after_the_first_line(line: str) -> None:
        if '"step": 100' in line:
            raise Cut

    with pytest.raises(Cut):
        fit_backbone(model, stream(), stream(), recipe(100), part, cut_after_the_first_line)
    torch.manual_seed(99)
    resumed = Backbone(CONFIG)
    fit_backbone(resumed, stream(), stream(), recipe(100), part, silent)
    for (name, one), other in zip(whole.named_parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_head_learns_to_draft_the_backbones_own_text_without_touching_it(kind: Kind, tmp_path: Path) -> None:
    backbone = fitted(60, tmp_path / "b.safetensors").requires_grad_(False)
    before = {name: value.clone() for name, value in backbone.named_parameters()}
    small = HeadRecipe(
        steps=60,
        pool_rows=16,
        row_length=32,
        prompt_lengths=(6, 10),
        positions_per_step=96,
        muon_rate=0.06,
        adam_rate=0.01,
    )
    lines: list[str] = []
    head = build_head(kind, backbone)
    own = own_text_pool(backbone, stream(), small, 3, silent)
    real = real_pool(backbone, stream(), small, 3)
    fit_head(backbone, head, own, real, small, tmp_path / "h.safetensors", lines.append)

    drafts = head.chain(own.hidden[0, 9:20], own.rows[0, 10:21])
    assert (drafts[:, 0] == own.rows[0, 11:22]).float().mean() > 0.6
    assert all(torch.equal(before[name], value) for name, value in backbone.named_parameters())


def test_positions_of_a_pool_are_those_whose_future_is_greedy(tmp_path: Path) -> None:
    backbone = Backbone(CONFIG).eval()
    small = HeadRecipe(pool_rows=4, row_length=20, prompt_lengths=(5, 9))
    pool = own_text_pool(backbone, stream(), small, 3, silent)
    first = {int(row): int(pool.positions[pool.positions[:, 0] == row, 1].min()) for row in range(4)}
    assert first == {0: 4, 1: 4, 2: 8, 3: 8}
    row, p = pool.positions.unbind(1)
    assert torch.equal(backbone.logits(pool.hidden[row, p]).argmax(-1), pool.rows[row, p + 1])
    assert int(p.max()) + 1 + 3 <= 19


def test_unlikelihood_sees_only_repeats_in_the_continuation_and_pushes_them_down(backbone: Backbone) -> None:
    tokens = torch.tensor([[1, 2, 3, 1, 2, 3, 1, 2, 3, 4]])
    mask = repeated(tokens, prompt_length=5, ngram=3)
    assert mask.tolist() == [[False] * 5 + [True] * 4 + [False]]
    before = unlikelihood(backbone, tokens, mask)
    before.backward()
    with torch.no_grad():
        for value in backbone.parameters():
            if value.grad is not None:
                value.sub_(value.grad, alpha=0.05)
        assert unlikelihood(backbone, tokens, mask) < before
        assert unlikelihood(backbone, tokens, torch.zeros_like(mask)) == 0
