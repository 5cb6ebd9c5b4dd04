"""Draft heads: shapes, positions, the chain by argmax, their size and their files."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from mtplab.model.backbone import Backbone, BackboneConfig  # noqa: E402
from mtplab.model.errors import ModelError  # noqa: E402
from mtplab.model.evaluate import draft_all  # noqa: E402
from mtplab.model.heads import KINDS, Kind, build_head, head_cost, load_head, save_head  # noqa: E402

pytestmark = pytest.mark.pipeline


def shaken(kind: Kind, backbone: Backbone, gamma: int = 3):  # type: ignore[no-untyped-def]
    """A head whose steps do something visible."""
    torch.manual_seed(8)
    head = build_head(kind, backbone, gamma).eval()
    with torch.no_grad():
        for _, value in head.own_parameters():
            if value.dim() == 2:
                value.normal_(std=0.3)
    return head


@pytest.mark.parametrize("gamma", [1, 3])
@torch.no_grad()
def test_every_family_gives_gamma_logits_from_one_hidden_state(backbone: Backbone, gamma: int) -> None:
    hidden, token = torch.randn(1, 1, 32), torch.tensor([[7]], dtype=torch.int32)
    plain = shaken("recurrent_residual", backbone, gamma)(hidden)["logits"]
    told = shaken("token_conditioned", backbone, gamma)(hidden, token)["logits"]
    assert plain.shape == told.shape == (1, gamma, 64)


@torch.no_grad()
def test_the_recurrent_head_applies_one_projection_again_and_again(backbone: Backbone) -> None:
    head = shaken("recurrent_residual", backbone)
    hidden = torch.randn(1, 1, 32)
    logits, state = head(hidden)["logits"], head.begin(hidden)
    for k in range(3):
        state = head.step(state, None)
        assert torch.equal(head.project(state)[:, 0], logits[:, k])


@torch.no_grad()
def test_the_token_head_feeds_each_argmax_to_the_next_draft(backbone: Backbone) -> None:
    head = shaken("token_conditioned", backbone)
    hidden, token = torch.randn(1, 1, 32), torch.tensor([[7]], dtype=torch.int32)
    logits = head(hidden, token)["logits"]
    drafts = logits.argmax(-1)[0]
    fed = torch.stack([torch.tensor(7), drafts[0], drafts[1]]).view(1, 1, 3)
    torch.testing.assert_close(torch.cat(head.drafts_given(hidden, fed), dim=1), logits)
    other = head(hidden, torch.tensor([[8]], dtype=torch.int32))["logits"]
    assert not torch.allclose(other, logits)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_drafting_from_all_positions_at_once_equals_the_exported_forward(backbone: Backbone, kind: Kind) -> None:
    head = shaken(kind, backbone)
    hidden, fed = torch.randn(6, 32), torch.randint(0, 64, (6,))
    together = draft_all(head, hidden, fed)
    for i in range(6):
        inputs = {"hidden": hidden[i].view(1, 1, -1)}
        if head.takes_token:
            inputs["token"] = fed[i].view(1, 1).int()
        assert torch.equal(head(**inputs)["logits"].argmax(-1)[0], together[i])


def test_the_token_head_refuses_to_draft_without_a_token(backbone: Backbone) -> None:
    head = shaken("token_conditioned", backbone)
    with pytest.raises(ModelError, match="without a token"):
        head.drafts_given(torch.randn(1, 32), None)


def test_a_head_shares_vocabulary_weights_with_its_backbone_and_counts_only_its_own(backbone: Backbone) -> None:
    head = build_head("recurrent_residual", backbone)
    assert head.lm_head.weight is backbone.lm_head.weight
    cost = head_cost(head, backbone, bytes_per_parameter=2)
    assert cost.own_parameters == 32 * 32 + 3 * 32
    assert cost.bytes_read_per_round == 3 * (cost.own_parameters + 32 * 64) * 2
    assert cost.own_share == cost.own_parameters / backbone.parameter_count()


def test_only_a_large_head_is_warned_about() -> None:
    backbone = Backbone(BackboneConfig.small())
    assert head_cost(build_head("recurrent_residual", backbone), backbone).warning is None
    small = Backbone(BackboneConfig(layers=1))
    warning = head_cost(build_head("token_conditioned", small), small).warning
    assert warning is not None and "memory bandwidth" in warning


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_head_comes_back_with_its_family_and_gamma(backbone: Backbone, kind: Kind, tmp_path: Path) -> None:
    head = shaken(kind, backbone, gamma=2)
    save_head(head, tmp_path / "head.safetensors", dtype=torch.float32)
    loaded = load_head(tmp_path / "head.safetensors", backbone)
    assert loaded.config == head.config
    for (name, one), (_, other) in zip(head.own_parameters(), loaded.own_parameters(), strict=True):
        assert torch.equal(one, other), name


def test_a_pickled_head_is_refused_and_not_executed(backbone: Backbone, tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    class Hostile:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return (Path.touch, (marker,))

    (tmp_path / "head.pt").write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(ModelError, match="pickled checkpoints are refused"):
        load_head(tmp_path / "head.pt", backbone)
    assert not marker.exists()


def test_a_head_of_another_width_is_refused(backbone: Backbone, tmp_path: Path) -> None:
    save_head(build_head("recurrent_residual", backbone), tmp_path / "head.safetensors")
    with pytest.raises(ModelError, match="does not fit a backbone"):
        load_head(tmp_path / "head.safetensors", Backbone(BackboneConfig.small()))


def test_weights_without_their_family_are_refused(backbone: Backbone, tmp_path: Path) -> None:
    from mtplab.model.weights import save_backbone

    save_backbone(backbone, tmp_path / "b.safetensors")
    with pytest.raises(ModelError, match="does not say its family"):
        load_head(tmp_path / "b.safetensors", backbone)
