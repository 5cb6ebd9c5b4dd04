"""The doctor's checklist while it is made: in threads of its own, so that it goes on when its page is closed."""

from __future__ import annotations

import threading
import time

from mtplab.device.readiness import Item, Options, in_groups, ready, walk
from mtplab.session.text import clean_text


class Examination:
    """Items as they are judged. `changes` grows with each change, so that a page knows when to draw."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.deep: Item | None = None
        self.running = False
        self.step: str | None = None
        """What the deep look does now; None where none goes on."""
        self.seconds: float | None = None
        self.changes = 0
        self._deep_began = 0.0
        self._cancel = threading.Event()

    def start(self, options: Options) -> bool:
        """Go through the checklist again; False while it is being gone through."""
        if self.running:
            return False
        self.items, self.running, self.seconds = [], True, None
        self.changes += 1
        threading.Thread(target=self._walk, args=(options,), name="doctor", daemon=True).start()
        return True

    def _walk(self, options: Options) -> None:
        began = time.monotonic()
        try:
            for item in walk(None, options):
                self.items.append(item)
                self.changes += 1
        finally:
            self.seconds, self.running = time.monotonic() - began, False
            self.changes += 1

    def start_deep(self) -> bool:
        """Convert, quantise and run a toy; False while that goes on."""
        if self.step is not None:
            return False
        self._cancel = threading.Event()
        self.step, self._deep_began = "starting", time.monotonic()
        self.changes += 1
        threading.Thread(target=self._look_deep, name="deep look", daemon=True).start()
        return True

    def _look_deep(self) -> None:
        # Imported here: it reaches into the pipeline, which the bench must not wait for.
        from mtplab.engine.deep import deep_check

        def tell(step: str) -> None:
            self.step = step
            self.changes += 1

        try:
            self.deep = deep_check(tell, self._cancel)
        finally:
            self.step = None
            self.changes += 1

    def cancel_deep(self) -> bool:
        """End the deep look; False where none goes on."""
        self._cancel.set()
        return self.step is not None

    def all(self) -> list[Item]:
        """Every item there is, by group."""
        return in_groups([*self.items, *([self.deep] if self.deep is not None else [])])

    def verdict(self) -> str:
        """How it stands, in one line."""
        found = self.all()
        failed, unknown = (sum(item.status == word for item in found) for word in ("fail", "unknown"))
        counts = f"{failed} failed, {unknown} unknown, {len(found) - failed - unknown} passed"
        if self.step is not None:
            return f"{counts} · deep look, {time.monotonic() - self._deep_began:.0f} s: {clean_text(self.step, 60)} …"
        if self.running:
            return f"checking … {counts} so far"
        if self.seconds is None:
            return "not checked yet"
        return f"{'READY' if ready(found) else 'NOT READY'}: {counts} · took {self.seconds:.1f} s"
