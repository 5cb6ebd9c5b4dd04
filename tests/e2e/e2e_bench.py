"""Runs mtplab's commands in places of a test's own and looks for what they leave behind."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from mtplab.session import archive


@dataclass(frozen=True)
class Bench:
    """Places of one test; the cache is shared by the whole session of tests."""

    sessions: Path
    env: dict[str, str]

    def mtplab(self, *arguments: str, timeout_s: float = 600.0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(*arguments), env=self.env, capture_output=True, text=True, timeout=timeout_s
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @staticmethod
    def command(*arguments: str) -> list[str]:
        """The command line of `mtplab`."""
        return [sys.executable, "-m", "mtplab.cli", *arguments]

    def run_json(self, *arguments: str) -> tuple[dict[str, Any], int, str]:
        """`mtplab run --json`: its value, exit code and stderr."""
        done = self.mtplab("run", "--json", *arguments)
        assert done.stdout.startswith("{"), done.stderr[-3000:]
        return json.loads(done.stdout), done.returncode, done.stderr

    def only_session(self) -> Path:
        """The folder of the one session that there is."""
        found = [p for p in self.sessions.iterdir() if (p / archive.JOURNAL).is_file()]
        assert len(found) == 1, found
        return found[0]

    def strays(self) -> list[str]:
        """Command lines of processes that were started with these places and still run."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("MTPLAB_SESSIONS") == str(self.sessions):
                    found.append(" ".join(process.cmdline()))
            except psutil.Error:
                continue
        return found
