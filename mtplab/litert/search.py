"""Scales by search: for every block or channel the scale with the least squared error of its weights.

An algorithm of our own inside ai-edge-quantizer, whose min_max lets one outlier coarsen a whole group and whose OCTAV
estimates a clipping point from many values, which a block of 32 has not. Weights that lie on a grid already, because
they were quantised once, find that grid again: among the scales tried are those that make an extreme weight a whole
number of steps.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The quantizer takes no key but its own. This one's algorithm does the same for fewer weights: it finds the grid of
# weights that were quantised once, and gives up on all others. No recipe offers it, so its place is taken.
PLACE = "DEQUANTIZED_WEIGHT_RECOVERY"
_CLIPPED = np.linspace(0.6, 1.1, 26)  # of the scale at which nothing is clipped
_TINY = 1e-9
_EXACT = 0.005  # of a group's squares, by steps squared: so little error only lies on a grid; the search ends
_CHUNK = 1 << 17  # weights searched at a time: few enough for the processor's cache

Floats = NDArray[np.float32]


def best_scales(groups: Floats, bits: int, bfloat16: bool) -> Floats:
    """For groups[n,size] the scales[n] with the least squared error on −2^(bits−1)…2^(bits−1)−1.

    Blockwise scales are stored with bfloat16's precision, so only such are tried where `bfloat16` is set.
    """
    most = 2 ** (bits - 1) - 1
    step = max(1, _CHUNK // groups.shape[1])
    return np.concatenate([_best(groups[at : at + step], most, bfloat16) for at in range(0, len(groups), step)])


def _best(groups: Floats, most: int, bfloat16: bool) -> Floats:
    top, bottom = groups.max(axis=1), -groups.min(axis=1)
    plain = np.maximum(top, bottom) / most
    # Few steps: an extreme weight may be any of them. Many steps: only the extremes of the range are likely.
    whole = range(most, 0, -1) if most <= 7 else (most,)
    tried = [extreme / k for step in whole for extreme, k in ((top, step), (bottom, step + 1))]
    tried += [plain * share for share in _CLIPPED]
    best, least = np.full(len(groups), _TINY, np.float32), np.full(len(groups), np.inf, np.float32)
    enough = _EXACT / most**2 * np.square(groups).sum(axis=1)
    left = np.arange(len(groups))
    for all_scales in tried:
        scales = _stored(np.maximum(all_scales[left], _TINY).astype(np.float32), bfloat16)
        error = _squared_error(groups if len(left) == len(groups) else groups[left], scales, most)
        better = error < least[left]
        best[left[better]], least[left[better]] = scales[better], error[better]
        left = left[least[left] > enough[left]]
        if not len(left):
            break
    return best


def _squared_error(groups: Floats, scales: Floats, most: int) -> Floats:
    steps = np.clip(np.rint(groups / scales[:, None]), -most - 1, most)
    return np.asarray(np.square(groups - steps * scales[:, None]).sum(axis=1), np.float32)


def _stored(scales: Floats, bfloat16: bool) -> Floats:
    if not bfloat16:
        return scales
    import ml_dtypes

    return scales.astype(ml_dtypes.bfloat16).astype(np.float32)


def _quant_params(op_info: Any, config: Any, content: Any = None, qsv: Any = None) -> Any:
    """What the quantizer asks of an algorithm: min_max's answer with better scales for weights."""
    from ai_edge_quantizer.algorithms.uniform_quantize import naive_min_max_quantize, uniform_quantize_tensor

    plain = naive_min_max_quantize.get_tensor_quant_params(op_info, config, content, qsv)
    if content is None or config.num_bits > 8:
        return plain
    # Scales have the weight's rank: one axis each for the groups, and 1 or the number of blocks along the weight's.
    size = content.size // plain.scale.size
    groups = np.ascontiguousarray(content, np.float32).reshape(-1, size)
    blockwise = plain.block_size > 0
    scales = best_scales(groups, config.num_bits, blockwise).reshape(plain.scale.shape)
    found = dataclasses.replace(plain, scale=scales)
    steps = uniform_quantize_tensor.uniform_quantize(content, found, blockwise)
    return dataclasses.replace(found, quantized_data=steps)


@functools.cache
def register() -> None:
    """Put the algorithm in its `PLACE`, once a process."""
    from ai_edge_quantizer import algorithm_manager as manager
    from ai_edge_quantizer.algorithms.uniform_quantize import common_quantize, naive_min_max_quantize
    from ai_edge_quantizer.qtyping import TFLOperationName

    materialize = {
        TFLOperationName.FULLY_CONNECTED: common_quantize.materialize_fc_conv,
        TFLOperationName.EMBEDDING_LOOKUP: common_quantize.materialize_embedding_lookup,
    }
    for operation, function in materialize.items():
        manager.register_quantized_op(
            manager.AlgorithmName[PLACE],
            operation,
            naive_min_max_quantize.init_qsvs,
            calibration_func=naive_min_max_quantize.min_max_calibrate,
            materialize_func=functools.partial(function, _quant_params),
        )
