"""A freeze proves that nothing moves, and refuses with a sentence when something does."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from mtplab.model.backbone import Backbone  # noqa: E402
from mtplab.model.errors import ModelError  # noqa: E402
from mtplab.model.freeze import TensorSpec, freeze  # noqa: E402
from mtplab.model.heads import KINDS, Head, Kind, at_gamma, build_head  # noqa: E402
from mtplab.session.identity import Policy  # noqa: E402

pytestmark = pytest.mark.pipeline


class Stubborn:
    """Stays in training mode whatever is asked."""

    def train(self, mode: bool = True):  # type: ignore[no-untyped-def]
        self.training = True
        return self


class StubbornDropout(Stubborn, torch.nn.Dropout):
    pass


class HiddenDropout(torch.nn.Module):
    """Drops in its forward without being a Dropout module."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        return torch.nn.functional.dropout(x, 0.5, training=True)


class DisguisedBatchNorm(torch.nn.Module):
    """Follows eval() for show but updates its statistics on every forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(width))

    def forward(self, x):  # type: ignore[no-untyped-def]
        self.running_mean.lerp_(x.mean(dim=(0, 1)), 0.1)
        return x - self.running_mean


class Counting(torch.nn.Module):
    """Keeps state outside any tensor, so only the outputs give it away."""

    calls = 0

    def forward(self, x):  # type: ignore[no-untyped-def]
        self.calls += 1
        return x + self.calls


def head_with(module: torch.nn.Module, backbone: Backbone) -> Head:
    head = build_head("token_conditioned", backbone)
    head.down_proj = torch.nn.Sequential(head.down_proj, module)  # type: ignore[assignment]
    return head


def test_a_still_model_is_frozen_and_its_record_says_how(backbone: Backbone) -> None:
    backbone.train()
    head = build_head("token_conditioned", backbone)
    record = freeze(backbone, head, Policy())
    assert not any(value.requires_grad for value in [*backbone.parameters(), *head.parameters()])
    assert not backbone.training and not head.training
    assert record.gamma == 3 and record.head_kind == "token_conditioned"
    assert record.graphs["draft"].inputs["token"].shape == [1, 1]
    assert record.graphs["draft"].outputs["logits"].shape == [1, 3, 64]
    assert record.graphs["verify"].outputs["logits"].shape == [1, 4, 64]
    assert record.graphs["verify"].inputs["tokens"].dtype == "int32"
    assert json.loads(json.dumps(record.to_dict()))["policy"]["draft_length"] == "fixed:3"


def test_the_record_is_the_same_again_and_changes_with_policy_or_weights(backbone: Backbone) -> None:
    head = build_head("recurrent_residual", backbone)
    first = freeze(backbone, head, Policy())
    assert freeze(backbone, head, Policy()) == first
    warm = freeze(backbone, head, Policy(temperature=0.7))
    assert warm.sha256 != first.sha256 and warm.policy_sha256 != first.policy_sha256
    assert warm.head_sha256 == first.head_sha256
    with torch.no_grad():
        head.residual_proj.weight[0, 0] += 1e-3  # type: ignore[union-attr, operator]
    assert freeze(backbone, head, Policy()).head_sha256 != first.head_sha256


def test_a_zero_copy_head_freezes_with_the_caches_it_reads_in_its_record(backbone: Backbone) -> None:
    record = freeze(backbone, build_head("zero_copy", backbone, draft_ids=[1, 5, 9]), Policy())
    draft = record.graphs["draft"]
    assert draft.inputs["kv_cache_k_1"] == draft.inputs["kv_cache_v_1"] == TensorSpec([1, 2, 32, 8], "float32")
    assert draft.inputs["input_pos"].shape == [1] and draft.outputs["logits"].shape == [1, 3, 64]


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_is_proven_inert_and_its_draft_length_is_in_its_graph(kind: Kind, backbone: Backbone) -> None:
    head = at_gamma(build_head(kind, backbone, gamma=3), 2)
    record = freeze(backbone, head, Policy(draft_length="fixed:2"))
    assert (record.head_kind, record.gamma, len(record.proofs)) == (kind, 2, 5)
    assert record.graphs["draft"].outputs["logits"].shape == [1, 2, 64]
    assert record.graphs["verify"].outputs["logits"].shape == [1, 3, 64]
    assert not any(value.requires_grad for value in (*backbone.parameters(), *head.parameters()))


def test_an_inert_dropout_is_counted_and_accepted(backbone: Backbone) -> None:
    assert freeze(backbone, head_with(torch.nn.Dropout(0.5), backbone), Policy()).dropout_modules == 1


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (StubbornDropout(0.5), "Dropout .* stays in training mode"),
        (HiddenDropout(), "drew random numbers"),
        (DisguisedBatchNorm(32), "statistic of the head moved"),
        (Counting(), "Two forwards of the head"),
    ],
)
def test_what_moves_is_refused(module: torch.nn.Module, sentence: str, backbone: Backbone) -> None:
    with pytest.raises(ModelError, match=sentence):
        freeze(backbone, head_with(module, backbone), Policy())


def test_a_batch_norm_that_ignores_eval_is_refused(backbone: Backbone) -> None:
    class StubbornBatchNorm(Stubborn, torch.nn.BatchNorm1d):
        pass

    with pytest.raises(ModelError, match=r"StubbornBatchNorm .* stays in training mode"):
        freeze(backbone, head_with(StubbornBatchNorm(1), backbone), Policy())


def test_a_policy_that_drafts_another_length_is_refused(backbone: Backbone) -> None:
    head = build_head("recurrent_residual", backbone, gamma=2)
    with pytest.raises(ModelError, match="built for γ = 2"):
        freeze(backbone, head, Policy(draft_length="fixed:3"))
    assert freeze(backbone, head, Policy(draft_length="adaptive:ema")).gamma == 2
