"""The lab as a process of its own over a growing synthetic journal, for tests in a real terminal.

`lab_process.py FOLDER run|flood|hostile`: what its engine, a thread, writes into the session FOLDER.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import synthetic

from mtplab.session import events as ev
from mtplab.session.archive import JOURNAL
from mtplab.session.identity import Identity
from mtplab.session.journal import JournalWriter
from mtplab.tui import LabOptions
from mtplab.tui.app import LabApp
from mtplab.tui.connect import Connected

EVIL = "\x1b]0;pwned\x07\x1b[2J\x1b[31mred\x9b5m \x1b]52;c;cHduZWQ=\x07[red]not markup[/red] \u202eback"


class Engine:
    """Writes the journal and answers commands."""

    def __init__(self, folder: Path, what: str) -> None:
        self.session_dir = folder
        self._what = what
        self._living = True
        self._writer = JournalWriter(folder / JOURNAL, synthetic.header(1000.0, folder.name))
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        for event in [e for e in synthetic.whole_run() if e.t < 1055]:
            self._writer.append(event)
        self._writer.tick()
        if self._what == "flood":
            self._flood()
        if self._what == "hostile":
            self._attack()
        while self._living:
            time.sleep(0.1)

    def _flood(self) -> None:
        for n in range(61, 20_061):
            self._writer.append(ev.LogLine(t=1054.0, log="bench-gpu", n=n, text=f"flood {n}"))
            if n % 1000 == 0:
                self._writer.tick()
                time.sleep(0.05)
        self._writer.tick()
        # After the screen's limit of lines: one line at a time must still be seen to arrive.
        for n in range(20_061, 20_100):
            if not self._living:
                return
            self._writer.append(ev.LogLine(t=1054.0, log="bench-gpu", n=n, text=f"late {n}"))
            self._writer.tick()
            time.sleep(0.3)

    def _attack(self) -> None:
        t = 1054.0
        time.sleep(1.5)  # so that the lab has caught up and the message becomes a toast
        self._writer.append(ev.LogLine(t=t, log="bench-gpu", n=61, text=f"line {EVIL}"))
        self._writer.append(ev.Message(t=t, text=f"says {EVIL}", level="error"))
        self._writer.append(ev.Marker(t=t, label=EVIL))
        self._writer.append(ev.Throttled(t=t, began=True, evidence=EVIL))
        self._writer.append(ev.StageChanged(t=t, name="measure", status="failed", reason=f"because {EVIL}"))
        identity = Identity(device_model=f"Pixel {EVIL}", os_version=EVIL, aicore_version=EVIL, simulated=True)
        self._writer.append(ev.DeviceSeen(t=t, identity=identity, facts={EVIL: ev.Fact(value=EVIL, source=EVIL)}))
        self._writer.append(ev.Heat(t=t, skin_c=40.0, zones={EVIL: 50.0}))
        self._writer.append(
            ev.VerdictReached(t=t, log="bench-gpu", graph=EVIL, requested=EVIL, verdict=EVIL, provisional=False,
                              reason=EVIL, cure=EVIL, evidence=[ev.Evidence(line=61, text=EVIL, rule=EVIL)])
        )  # fmt: skip
        self._writer.tick()

    def send(self, command: dict[str, Any]) -> dict[str, Any]:
        """Obey."""
        if command["cmd"] == "stop":
            self._living = False
        if command["cmd"] == "cancel":
            now = 1054.5
            self._writer.append(ev.StageChanged(t=now, name="measure", status="cancelled", seconds=1.0))
            self._writer.append(ev.RunEnded(t=now, run="run-1", outcome="cancelled", exit_code=0))
            self._writer.tick()
        return {"ok": True, "error": None}

    def alive(self) -> bool:
        """Until stopped."""
        return self._living


if __name__ == "__main__":
    engine = Engine(Path(sys.argv[1]), sys.argv[2])
    app = LabApp(LabOptions(), lambda _: Connected(engine, owned=True))
    app.run()
    sys.exit(app.return_code or 0)
