"""What a stage's worker reports, as events of the session; its native noise goes to the stage's log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from mtplab.engine.core import Recorder
from mtplab.session import events as ev
from mtplab.session.text import clean_text

RECIPES = "recipes"


class WorkerEvents:
    """Turns a worker's events into the session's; its native noise is kept to a line now and then on screen."""

    def __init__(self, stage: str, recorder: Recorder, logs: Path) -> None:
        self._stage, self._recorder = stage, recorder
        self._began = time.monotonic()
        self._log_path = logs / f"{stage}.txt"
        self._log_path.parent.mkdir(parents=True, exist_ok=True)

    def take(self, event: dict[str, Any]) -> None:
        """One event of the worker."""
        if event["e"] == "log":
            with self._log_path.open("a", encoding="utf-8", errors="replace") as log:
                log.write(f"{event.get('text', '')}\n")
        elif event["e"] == "progress":
            self._progress(event)
        elif event["e"] == "figure" and event.get("name") == RECIPES:
            self._recorder.post(recipes_judged(event["value"]))

    def _progress(self, event: dict[str, Any]) -> None:
        now, done, total = time.monotonic(), float(event["done"]), event.get("total")
        eta_s = (now - self._began) * (total - done) / done if total and 0 < done < total else None
        self._recorder.post(
            ev.StageProgress(
                t=now,
                name=self._stage,
                done=done,
                total=total,
                unit=str(event.get("unit") or ""),
                note=clean_text(str(event.get("note") or ""), 200),
                eta_s=None if eta_s is None else round(eta_s, 1),
            )
        )


def recipes_judged(table: dict[str, Any]) -> ev.RecipesJudged:
    """Rows of the recipe table, as a stage gives them, as an event of now."""
    return msgspec.convert({**table, "k": "recipes", "t": time.monotonic()}, ev.RecipesJudged)
