"""The searched scale has less error than any that is guessed, and finds an old grid again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtplab.litert.recipes import Recipe, Rule
from mtplab.litert.search import best_scales


def rounded(groups: Any, scales: Any, bits: int) -> Any:
    most = 2 ** (bits - 1) - 1
    return np.clip(np.rint(groups / scales[:, None]), -most - 1, most) * scales[:, None]


def test_weights_that_were_quantised_once_find_their_grid_again() -> None:
    rng = np.random.default_rng(1)
    steps = rng.integers(-8, 8, (200, 32))
    steps[:, 0] = rng.choice([-8, 7], 200)
    scales = np.exp(rng.normal(-4, 1, 200)).astype(np.float32)
    groups = (steps * scales[:, None]).astype(np.float32)
    found = best_scales(groups, 4, bfloat16=False)
    assert np.abs(rounded(groups, found, 4) - groups).max() < 1e-6


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_an_outlier_does_not_coarsen_its_group(bits: int) -> None:
    groups = np.random.default_rng(2).normal(0, 1, (300, 32)).astype(np.float32)
    groups[:, 3] *= 4
    plain = np.abs(groups).max(axis=1) / (2 ** (bits - 1) - 1)

    def error(scales: Any) -> Any:
        return np.square(rounded(groups, scales, bits) - groups).sum(axis=1)

    exhausted = np.min([error(plain * share) for share in np.linspace(0.3, 1.2, 400)], axis=0).mean()
    found = error(best_scales(groups, bits, bfloat16=False)).mean()
    assert found < error(plain).mean()
    assert found < 1.12 * exhausted


def test_blockwise_scales_are_such_as_the_file_can_store_and_zeros_have_one_too() -> None:
    groups = np.zeros((2, 32), np.float32)
    groups[0] = np.random.default_rng(3).normal(0, 1, 32)
    scales = best_scales(groups, 4, bfloat16=True)
    assert not (scales.view(np.uint32) & 0xFFFF).any()
    assert (scales > 0).all() and not rounded(groups, scales, 4)[1].any()


@pytest.mark.pipeline
@pytest.mark.parametrize("scales", ["block32", "channel"])
def test_the_graph_comes_closer_to_float_than_by_min_max(small: Any, tmp_path: Path, scales: Any) -> None:
    from mtplab.litert.quantise import quantise
    from mtplab.litert.runtime import LiteRtBackbone

    tokens = list(range(3, 60))
    wanted, _ = LiteRtBackbone(small.backbone, 1).score(tokens)
    error = []
    for algorithm in ("search", "min_max"):
        rule = Rule(on="body", bits=4, compute="dynamic", granularity=scales, algorithm=algorithm)  # type: ignore[arg-type]
        quantise(small.backbone, tmp_path / algorithm, Recipe(name=algorithm, title="", rules=(rule,)))
        got, _ = LiteRtBackbone(tmp_path / algorithm, 1).score(tokens)
        error.append(float(np.square(got - wanted).mean()))
    assert error[0] < error[1]
