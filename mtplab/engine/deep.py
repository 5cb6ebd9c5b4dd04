"""The doctor's deep look: a toy is really converted, quantised and run, in a worker that can be watched and ended."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from mtplab.device.readiness import Item
from mtplab.pipeline.job import Job
from mtplab.pipeline.process import run_worker
from mtplab.session.text import clean_text

ID = "toolchain.toy"
_CURE = "pip install 'mtplab[pipeline]'  (the pinned versions: pip install -c constraints.txt 'mtplab[pipeline]')"


def deep_check(on_progress: Callable[[str], None], cancel: threading.Event) -> Item:
    """Run the toy; blocks for its many seconds, telling each step. A cancelled one is unknown."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mtplab-toy-") as workdir:
        job = Job(stage="toy", module="mtplab.pipeline.stages.toy", params={}, inputs={}, workdir=workdir)
        ended = run_worker(job, lambda event: _tell(event, on_progress), cancel)
    seconds = time.monotonic() - began
    if ended.status == "cancelled":
        cause = f"cancelled after {seconds:.0f} s: nothing was shown"
        return Item(ID, "toolchain", "unknown", cause, "mtplab doctor --deep")
    if ended.status == "failed":
        return Item(ID, "toolchain", "fail", f"{clean_text(ended.reason or '', 500)} ({seconds:.0f} s)", _CURE)
    return Item(ID, "toolchain", "pass", clean_text(str(ended.event["summary"]), 300))


def _tell(event: dict[str, Any], on_progress: Callable[[str], None]) -> None:
    if event.get("e") == "progress":
        step, total = int(event["done"]) + 1, int(event.get("total") or 0)
        on_progress(f"{step}/{total} {clean_text(str(event.get('note') or ''), 80)}")
