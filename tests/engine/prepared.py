"""A run whose host stages were done before: a graph of a few operations in the store, ready to be benched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtplab.pipeline.cache import ArtefactRef, Store
from mtplab.pipeline.stage import HOST_STAGES, StageResult

SIGNATURE = "draft"
OPERATIONS = ["FULLY_CONNECTED", "BATCH_MATMUL", "TANH", "FULLY_CONNECTED"]
INPUT_BYTES = 16 * 4


class PreparedHost:
    """Stands in for `run_host_stage`: every host stage is `cached`, and what is deployed is tiny.

    The head is a real graph and is benched; the backbone is `backbone_bytes` of noise, there to be pushed.
    """

    def __init__(self, cache: Path, scratch: Path, tflite: Callable[[dict[str, list[str]]], bytes],
                 backbone_bytes: int) -> None:  # fmt: skip
        self._store, self._scratch = Store(cache / "stages"), scratch
        noise = bytes(range(251)) * (backbone_bytes // 251 + 1)
        self._real = {
            ("quantise", "head.tflite"): self._put(tflite({SIGNATURE: OPERATIONS})),
            ("quantise", "backbone.tflite"): self._put(noise[:backbone_bytes]),
            ("acceptance", "input-x"): self._put(bytes(INPUT_BYTES)),
        }
        self._other = self._put(b"{}")

    def _put(self, data: bytes) -> ArtefactRef:
        path = self._scratch / "artefact"
        path.write_bytes(data)
        return self._store.put(path)

    def __call__(self, name: str, *_rest: Any, **_more: Any) -> StageResult:
        asked_for = [source for stage in HOST_STAGES for source in stage.takes.values()]
        asked_for += [("freeze", "tokenizer.json"), ("freeze", "prompts.jsonl"), *self._real]
        files = [file for stage, file in asked_for if stage == name]
        artefacts = {file: self._real.get((name, file), self._other) for file in files}
        return StageResult(
            stage=name, status="cached", seconds=0.0, figures=self._figures(name), artefacts=artefacts
        )

    @staticmethod
    def _figures(name: str) -> dict[str, Any]:
        row = {"name": f"{SIGNATURE}_x", "shape": [1, 16], "artefact": "input-x"}
        return {
            "freeze": {"end_tokens": [0]},
            "export": {"head_signatures": [SIGNATURE], "backbone_signatures": []},
            "acceptance": {"bench_inputs": {f"head/{SIGNATURE}": [row]}},
        }.get(name, {})
