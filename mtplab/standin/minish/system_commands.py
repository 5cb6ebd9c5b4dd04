"""Commands about time, identity and processes."""

from __future__ import annotations

import os
import signal
import time

from mtplab.standin.minish.options import read_options
from mtplab.standin.minish.redirector import write
from mtplab.standin.minish.shell import Command, Shell

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SHELL_ID = 2000
POLL_S = 0.02


def _seconds(text: str) -> float:
    unit = UNITS.get(text[-1:])
    return float(text[:-1]) * unit if unit is not None else float(text)


def _sleep(shell: Shell, words: list[str]) -> int:
    try:
        time.sleep(sum(_seconds(word) for word in words))
    except ValueError:
        write(2, f"sleep: bad time '{' '.join(words)}'\n")
        return 1
    return 0


def _date(shell: Shell, words: list[str]) -> int:
    form = next((word[1:] for word in words if word.startswith("+")), "%a %b %e %H:%M:%S %Z %Y")
    nanoseconds = time.time_ns()
    form = form.replace("%N", f"{nanoseconds % 10**9:09d}").replace("%s", str(nanoseconds // 10**9))
    now = nanoseconds // 10**9
    write(1, time.strftime(form, time.gmtime(now) if "-u" in words else time.localtime(now)) + "\n")
    return 0


def _id(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "ugnGr")
    if {"u", "g", "G"} & set(options.given):
        write(1, "shell\n" if "n" in options.given else f"{SHELL_ID}\n")
    else:
        write(1, f"uid={SHELL_ID}(shell) gid={SHELL_ID}(shell) groups={SHELL_ID}(shell)\n")
    return 0


def _whoami(shell: Shell, words: list[str]) -> int:
    write(1, "shell\n")
    return 0


def _hostname(shell: Shell, words: list[str]) -> int:
    write(1, "localhost\n")
    return 0


def _env(shell: Shell, words: list[str]) -> int:
    while words and "=" in words[0] and not words[0].startswith("="):
        name, _, value = words[0].partition("=")
        shell.variables[name] = value
        shell.exported.add(name)
        words = words[1:]
    if words:
        return shell.command(words)
    names = sorted(name for name in shell.exported if name in shell.variables)
    write(1, "".join(f"{name}={shell.variables[name]}\n" for name in names if not name.startswith("MTPLAB_")))
    return 0


def _timeout(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "k:s:", stop_early=True)
    limit, command = _seconds(options.rest[0]), options.rest[1:]
    child = shell.fork()
    if child == 0:
        shell.finish(lambda: shell.command(command))
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        done, raw = os.waitpid(child, os.WNOHANG)
        if done:
            shell.children[child] = os.waitstatus_to_exitcode(raw)
            return shell.wait_for(child)
        time.sleep(POLL_S)
    os.kill(child, signal.SIGTERM)
    shell.wait_for(child)
    return 124


def _nohup(shell: Shell, words: list[str]) -> int:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return shell.command(words) if words else 1


COMMANDS: dict[str, Command] = {
    "sleep": _sleep, "date": _date, "id": _id, "whoami": _whoami, "hostname": _hostname, "env": _env,
    "timeout": _timeout, "nohup": _nohup, "sync": lambda shell, words: 0,
}  # fmt: skip
