"""Draft heads: shapes, positions, the chain by argmax, their size and their files."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

torch = pytest.importorskip("torch")

from mtplab.model.backbone import Backbone, BackboneConfig, empty_cache  # noqa: E402
from mtplab.model.errors import ModelError  # noqa: E402
from mtplab.model.heads import (  # noqa: E402
    KINDS,
    Kind,
    attend_for,
    build_head,
    head_cost,
    load_head,
    save_head,
)

pytestmark = pytest.mark.pipeline


def shaken(kind: Kind, backbone: Backbone, gamma: int = 3, draft_ids=None):  # type: ignore[no-untyped-def]
    """A head whose steps do something visible."""
    torch.manual_seed(8)
    head = build_head(kind, backbone, gamma, draft_ids=draft_ids).eval()
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


@pytest.mark.parametrize("draft_ids", [None, [0, 3, *range(9, 60, 2)]])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_drafting_from_all_positions_at_once_equals_the_exported_forward(
    backbone: Backbone, kind: Kind, draft_ids: list[int] | None
) -> None:
    head = shaken(kind, backbone, draft_ids=draft_ids)
    tokens = torch.randint(0, 64, (7,))
    out = backbone(tokens[None].int(), torch.arange(7, dtype=torch.int32), **empty_cache(backbone.config))
    k, v = (out[f"kv_cache_{name}_1"] for name in "kv")
    hidden, fed = out["hidden"][0, :6], tokens[1:]
    together = head.chain(hidden, fed, attend_for(head, (k[:, :, :6], v[:, :, :6])))
    for i in range(6):
        inputs = {"hidden": hidden[i].view(1, 1, -1), "token": fed[i].view(1, 1).int()}
        # The cache holds later positions too, as after a rejected draft: they must not be seen.
        inputs |= {"input_pos": torch.tensor([i + 1], dtype=torch.int32), "kv_cache_k_1": k, "kv_cache_v_1": v}
        taken = {name: inputs[name] for name in head.example_inputs()}
        assert torch.equal(head(**taken)["logits"].argmax(-1)[0], together[i])
    assert len(set(together.flatten().tolist())) > 3, "the test needs drafts that differ"


@torch.no_grad()
def test_a_zero_copy_head_hears_what_the_cache_says_up_to_its_position(backbone: Backbone) -> None:
    head = shaken("zero_copy", backbone)
    inputs = {**head.example_inputs(), "input_pos": torch.tensor([4], dtype=torch.int32)}
    changed = dict(inputs)
    cache = torch.randn_like(inputs["kv_cache_v_1"])
    cache[:, :, 4:] = 0
    changed["kv_cache_v_1"] = cache
    beyond = {**changed, "kv_cache_v_1": cache.index_fill(2, torch.arange(4, 32), 9.0)}
    assert not torch.allclose(head(**inputs)["logits"], head(**changed)["logits"])
    assert torch.equal(head(**changed)["logits"], head(**beyond)["logits"])


@torch.no_grad()
def test_parallel_drafts_come_from_the_same_state_and_have_weights_of_their_own(backbone: Backbone) -> None:
    head = shaken("parallel", backbone)
    before = head(torch.ones(1, 1, 32))["logits"]
    head.drafts[1].weight.mul_(-1)
    after = head(torch.ones(1, 1, 32))["logits"]
    assert [bool(torch.equal(before[:, k], after[:, k])) for k in range(3)] == [True, False, True]


@torch.no_grad()
def test_a_reduced_head_drafts_only_its_tokens_with_the_backbones_own_rows(backbone: Backbone) -> None:
    ids = [2, 5, 40]
    head = shaken("token_conditioned", backbone, draft_ids=ids)
    assert torch.equal(head.lm_head.weight, backbone.lm_head.weight[ids])
    logits = head(**head.example_inputs())["logits"]
    assert logits.shape == (1, 3, 64)
    assert set(logits.argmax(-1).flatten().tolist()) <= set(ids)
    state = torch.randn(32)
    assert torch.equal(head.project(state)[ids], head.project_reduced(state))
    assert head_cost(head, backbone).shared_parameters == 32 * 3


def test_a_draft_vocabulary_that_is_none_is_refused(backbone: Backbone) -> None:
    for ids in ([5, 2], [3, 3], [1, 64], [-1, 4]):
        with pytest.raises(ModelError, match="no ascending list of tokens"):
            build_head("token_conditioned", backbone, draft_ids=ids)


def test_a_zero_copy_head_of_another_backbone_is_refused(backbone: Backbone, tmp_path: Path) -> None:
    save_head(build_head("zero_copy", backbone), tmp_path / "head.safetensors")
    other = Backbone(msgspec.structs.replace(backbone.config, layers=3))
    with pytest.raises(ModelError, match="cache of the backbone's last layer"):
        load_head(tmp_path / "head.safetensors", other)


def test_a_head_with_nan_weights_is_refused(backbone: Backbone, tmp_path: Path) -> None:
    head = build_head("recurrent_residual", backbone)
    with torch.no_grad():
        head.residual_proj.weight[3, 3] = float("nan")
    save_head(head, tmp_path / "head.safetensors")
    with pytest.raises(ModelError, match=r"no finite numbers \(first in residual_proj.weight\)"):
        load_head(tmp_path / "head.safetensors", backbone)


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
    head = shaken(kind, backbone, gamma=2, draft_ids=[1, 4, 63])
    save_head(head, tmp_path / "head.safetensors", dtype=torch.float32)
    loaded = load_head(tmp_path / "head.safetensors", backbone)
    assert loaded.config == head.config
    assert loaded.draft_ids.tolist() == [1, 4, 63]
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
