"""A zero point for every block: the graph says the same, and old asymmetric grids survive int4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtplab.litert.offsets import middles
from mtplab.litert.recipes import Recipe, Rule, recipe_named
from mtplab.litert.search import best_scales

OFFSETS = Rule(on="body", bits=4, compute="dynamic", granularity="block32", algorithm="search", offsets=True)


def squared_error(weight: Any) -> float:
    groups = weight.reshape(-1, 32)
    scales = best_scales(groups, 4, bfloat16=True)[:, None]
    return float(np.square(np.clip(np.rint(groups / scales), -8, 7) * scales - groups).sum())


def test_weights_quantised_with_scale_and_minimum_survive_almost_exactly() -> None:
    """As GGUF's Q4_1 stores them."""
    rng = np.random.default_rng(4)
    steps, scale = rng.integers(0, 16, (64, 4, 32)), rng.uniform(0.01, 0.02, (64, 4, 1))
    steps[:, :, 0], steps[:, :, 1] = 0, 15
    weight = (scale * steps - rng.uniform(6, 9, (64, 4, 1)) * scale).reshape(64, 128).astype(np.float32)
    rest = weight - np.repeat(middles(weight, 32, 4), 32, axis=1)
    assert squared_error(rest) < squared_error(weight) / 50


@pytest.mark.pipeline
def test_the_rewritten_graph_says_the_same_in_every_signature(small: Any, tmp_path: Path) -> None:
    from ai_edge_litert.tools import flatbuffer_utils

    from mtplab.litert.audit import audit
    from mtplab.litert.offsets import split_offsets
    from mtplab.litert.runtime import LiteRtBackbone

    body = [use for weight in audit(small.backbone).of("body") for use in weight.uses]
    added = split_offsets(small.backbone, tmp_path / "split.tflite", body, 32, 4)
    assert set(added) == set(body)
    model = flatbuffer_utils.read_model(str(tmp_path / "split.tflite"))
    made = [t.name for graph in model.subgraphs for t in graph.tensors if b"block_sums" in t.name]
    assert len(made) == len(set(made)) == 2 * 4 * 2 * 3  # sums and ones of 4 inputs, 2 layers, 3 signatures
    before, after = LiteRtBackbone(small.backbone, 1), LiteRtBackbone(tmp_path / "split.tflite", 1)
    tokens = list(range(3, 20))
    assert np.allclose(before.prefill(tokens)[0], after.prefill(tokens)[0], atol=1e-4)
    assert np.allclose(before.decode(20, 17)[0], after.decode(20, 17)[0], atol=1e-4)
    assert np.allclose(before.verify([20, 21, 22, 23], 17)[0], after.verify([20, 21, 22, 23], 17)[0], atol=1e-4)


@pytest.mark.pipeline
def test_a_recipe_with_offsets_is_proven_like_any_other(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.export import module_names
    from mtplab.litert.quantise import quantise

    names = module_names(small.torch_backbone, small.backbone)
    recipe = Recipe(name="t", title="", rules=(OFFSETS, *recipe_named("dynamic_int8").rules[1:]))
    result = quantise(small.backbone, tmp_path / "q.tflite", recipe, names)
    assert {(c.after, c.granularity) for c in result.changes if c.role == "body"} == {("INT4", "block[32]")}
    points = [weight for weight in result.after.weights if str(weight.module).endswith(" offsets")]
    assert len(points) == 14 and {weight.dtype for weight in points} == {"INT8"}
    assert all(len(weight.uses) == 3 for weight in points)


@pytest.mark.pipeline
def test_blocks_that_do_not_divide_a_weight_are_refused(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.quantise import quantise

    wide = Rule(on="body", bits=4, compute="dynamic", granularity="block64", offsets=True)
    with pytest.raises(LiteRtError, match="blocks of 64 do not divide"):
        quantise(small.backbone, tmp_path / "q.tflite", Recipe(name="t", title="", rules=(wide,)))
    with pytest.raises(ValueError, match="blocks of int4"):
        Rule(on="body", bits=8, compute="dynamic", offsets=True)
