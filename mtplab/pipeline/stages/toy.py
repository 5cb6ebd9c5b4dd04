"""Toy: prove that converter, quantizer and runtime of this machine work together, on a graph of two layers.

No stage of the pipeline: `mtplab doctor --deep` runs it in a worker like one, to be watched and cancelled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mtplab.pipeline.job import Emitter, Job, Output, StageFailed
from mtplab.pipeline.stages.loading import use_one_thread

WIDTH = 64
# int8 weights of a layer of WIDTH inputs of unit size leave an error of about 1 % of the output; float almost none.
FLOAT_LIMIT, INT8_LIMIT = 1e-4, 0.1
STEPS = 7


def run(job: Job, emit: Emitter) -> Output:
    """Import torch, litert_torch, the quantizer and LiteRT; convert, quantise and run; figures are seconds a step."""
    steps = _Steps(emit)
    with steps.doing("importing torch"):
        import torch
    with steps.doing("importing litert_torch"):
        import litert_torch
    with steps.doing("importing the quantizer and LiteRT"):
        from ai_edge_quantizer.quantizer import Quantizer

        from mtplab.litert.runtime import open_graph
    use_one_thread()
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)).eval()
    given = torch.randn(1, WIDTH)
    wanted = module(given).detach().numpy()
    graph, small = job.output("toy.tflite"), job.output("toy-int8.tflite")
    with steps.doing("converting"):
        converter: Any = litert_torch
        converter.convert(module, (given,)).export(str(graph))
    with steps.doing("quantising"):
        quantizer: Any = Quantizer(str(graph))
        quantizer.add_dynamic_config(".*", "FULLY_CONNECTED", 8)
        quantizer.quantize(enable_progress_report=False, enable_progress_bar=False).export_model(str(small))
    if small.stat().st_size >= graph.stat().st_size:
        raise StageFailed("The quantizer ran, but the int8 toy is no smaller than the float one.")
    with steps.doing("running the float graph"):
        _compare("float", _run(open_graph, graph, given.numpy()), wanted, FLOAT_LIMIT)
    with steps.doing("running the int8 graph"):
        _compare("int8", _run(open_graph, small, given.numpy()), wanted, INT8_LIMIT)
    total = sum(steps.seconds.values())
    return Output(
        figures=dict(steps.seconds),
        summary=f"a toy was converted, quantised to int8 and run, and gave torch's numbers, in {total:.1f} s",
    )


class _Steps:
    """Progress and seconds of each step."""

    def __init__(self, emit: Emitter) -> None:
        self._emit, self.seconds = emit, dict[str, float]()

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        self._emit.progress(len(self.seconds), STEPS, "steps", what)
        began = time.monotonic()
        yield
        self.seconds[what] = round(time.monotonic() - began, 2)


def _run(open_graph: Any, path: Path, given: Any) -> Any:
    model, _ = open_graph(path, 1)
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
    inputs[0].write(given)
    model.run_by_index(0, inputs, outputs)
    return outputs[0].read(WIDTH, np.float32).reshape(1, WIDTH)


def _compare(what: str, got: Any, wanted: Any, limit: float) -> None:
    error = float(np.abs(got - wanted).max() / np.abs(wanted).max())
    if not error <= limit:  # also where the graph gave no numbers
        raise StageFailed(
            f"The {what} toy runs but gives other numbers than torch: off by {error:.3g} of the largest output, "
            f"{limit:g} is allowed. Install the pinned versions: pip install 'mtplab[pipeline]'."
        )
