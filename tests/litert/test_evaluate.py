"""Whole texts through LiteRT in few calls: the same drafts and choices as one position at a time, and as torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.pipeline


@pytest.fixture(scope="module")
def text() -> list[int]:
    return [int(token) for token in np.random.default_rng(4).integers(0, 95, 70)]


def torch_drafts(small: Any, head: Any, text: list[int]) -> np.ndarray:
    import torch

    from mtplab.model.evaluate import text_drafts

    return text_drafts(small.torch_backbone, head, torch.tensor(text)).numpy()


def test_a_text_is_judged_in_few_calls_as_it_is_position_by_position(small: Any, text: list[int]) -> None:
    from mtplab.litert.evaluate import HeadEvaluator, SteppedHead, judge
    from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead

    backbone = LiteRtBackbone(small.backbone)
    batched = judge(backbone, HeadEvaluator(small.evaluation), text)
    stepped = judge(backbone, SteppedHead(LiteRtHead(small.head)), text)
    assert batched.drafts.shape == (69, 3)
    assert np.array_equal(batched.drafts, stepped.drafts)
    choices = [int(backbone.decode(token, at)[0].argmax()) for at, token in enumerate(text)]
    assert batched.choices.tolist() == choices
    assert (batched.drafts == torch_drafts(small, small.torch_head, text)).mean() > 0.99


@pytest.mark.parametrize("kind", ["zero_copy", "parallel", "recurrent_residual", "token_conditioned"])
def test_every_family_drafts_for_a_whole_text_as_it_does_alone(small: Any, text: list[int], kind: str) -> None:
    import torch

    from mtplab.litert.evaluation_graph import EvaluatedHead, evaluation_inputs
    from mtplab.model.heads import build_head

    head = build_head(kind, small.torch_backbone, 3).eval().requires_grad_(False)
    inputs = evaluation_inputs(head, positions=69)
    hidden, k, v = small.torch_backbone.sequence_with_cache(torch.tensor([text]))
    inputs["hidden"] = hidden[:, :-1]
    if "token" in inputs:
        inputs["token"] = torch.tensor([text[1:]], dtype=torch.int32)
    for name, cache in (("kv_cache_k_1", k), ("kv_cache_v_1", v)):
        if name in inputs:
            inputs[name][:, :, : len(text)] = cache
    drafts = EvaluatedHead(head)(**inputs)["drafts"][0].numpy()
    assert np.array_equal(drafts, torch_drafts(small, head, text))


def test_a_zero_copy_head_sees_of_the_whole_text_only_what_was_read_before(
    small: Any, text: list[int], tmp_path: Path
) -> None:
    from mtplab.litert.evaluate import HeadEvaluator, judge
    from mtplab.litert.evaluation_graph import export_evaluation
    from mtplab.litert.runtime import LiteRtBackbone
    from mtplab.model.heads import build_head

    head = build_head("zero_copy", small.torch_backbone, 3).eval().requires_grad_(False)
    evaluator = HeadEvaluator(export_evaluation(head, tmp_path / "evaluation.tflite", positions=16))
    judged = judge(LiteRtBackbone(small.backbone), evaluator, text)
    assert (judged.drafts == torch_drafts(small, head, text)).mean() > 0.99
    longer = judge(LiteRtBackbone(small.backbone), evaluator, [*text, *text[:20]])
    assert np.array_equal(longer.drafts[:69], judged.drafts)


def test_likelihood_is_that_of_the_softmax() -> None:
    from mtplab.litert.evaluate import log_likelihood

    logits = np.array([[0.0, np.log(3.0)], [1000.0, 1000.0]], np.float32)
    assert np.exp(log_likelihood(logits, np.array([1, 0], np.int32))) == pytest.approx([0.75, 0.5])


def test_an_evaluation_graph_of_another_head_is_known_by_its_weights(small: Any) -> None:
    from mtplab.litert.audit import audit
    from mtplab.litert.evaluate import different_weights

    evaluation = audit(small.evaluation)
    assert different_weights(evaluation, audit(small.head)) == []
    assert different_weights(evaluation, audit(small.plain_head))


def test_a_quantised_evaluation_graph_has_the_quantised_heads_weights(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.evaluate import different_weights
    from mtplab.litert.export import module_names
    from mtplab.litert.quantise import quantise
    from mtplab.litert.recipes import recipe_named

    made = {}
    for graph in (small.head, small.evaluation):
        names = module_names(small.torch_head, graph)
        made[graph] = quantise(graph, tmp_path / graph.name, recipe_named("mixed_int4"), names).after
    assert different_weights(made[small.evaluation], made[small.head]) == []
    other = quantise(small.head, tmp_path / "int8.tflite", recipe_named("mixed")).after
    assert different_weights(made[small.evaluation], other)


def test_a_graph_without_the_evaluation_signature_is_refused(small: Any) -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.evaluate import HeadEvaluator

    with pytest.raises(LiteRtError, match="no signature evaluate"):
        HeadEvaluator(small.head)
