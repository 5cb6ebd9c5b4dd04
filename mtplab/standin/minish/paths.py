"""Commands by path: our own by their /system/bin names, scripts, and programs of the host."""

from __future__ import annotations

import os
from pathlib import Path

from mtplab.standin.minish import relay
from mtplab.standin.minish.leaving import Exit
from mtplab.standin.minish.parser import parse
from mtplab.standin.minish.redirector import write
from mtplab.standin.minish.shell import Command, Shell
from mtplab.standin.minish.syntax import SyntaxProblem

SYSTEM = ("/system/bin", "/bin", "/vendor/bin")
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def locate(shell: Shell, name: str) -> str | None:
    """The device path a command name stands for; None when there is none."""
    if "/" in name:
        return name if Path(shell.files.host(name, shell.cwd)).is_file() else None
    for folder in shell.variables.get("PATH", "").split(":"):
        path = f"{folder.rstrip('/')}/{name}"
        if Path(shell.files.host(path, shell.cwd)).is_file():
            return path
    return None


def run_by_path(shell: Shell, words: list[str], replace: bool = False) -> int:
    """Run what a path or a name in PATH stands for; `replace`: this process becomes it (`exec`)."""
    path = locate(shell, words[0])
    if path is None:
        why = "No such file or directory" if "/" in words[0] else "inaccessible or not found"
        shell.complain(f"{words[0]}: {why}")
        return NOT_FOUND
    folder, _, name = path.rpartition("/")
    if folder in SYSTEM and name in shell.commands:
        return shell.command([name, *words[1:]])
    canonical = shell.files.resolve(path, shell.cwd)
    host = Path(shell.files.root + canonical)
    if not host.stat().st_mode & 0o111:
        shell.complain(f"{words[0]}: can't execute: Permission denied")
        return NOT_EXECUTABLE
    if canonical in relay.program_paths(shell.files):
        return _program(shell, path, words[1:], replace)
    head = host.open("rb").read(4)
    if head == b"\x7fELF":
        shell.complain(f"{words[0]}: not executable: 64-bit ELF file")
        return NOT_EXECUTABLE
    return _script(shell, canonical, words, replace)


def _program(shell: Shell, path: str, arguments: list[str], replace: bool) -> int:
    if replace:
        return relay.end_like(relay.run(shell.files, path, arguments, shell.cwd))
    child = shell.fork()
    if child == 0:
        shell.finish(lambda: relay.end_like(relay.run(shell.files, path, arguments, shell.cwd)))
    status = shell.wait_for(child)
    if status in (134, 139):
        write(2, {134: "Aborted\n", 139: "Segmentation fault\n"}[status])
    return status


def _script(shell: Shell, canonical: str, words: list[str], replace: bool) -> int:
    text = Path(shell.files.root + canonical).read_text(encoding="utf-8", errors="surrogateescape")
    if replace:
        raise Exit(_interpret(shell, text, words))
    child = shell.fork()
    if child == 0:
        shell.finish(lambda: _interpret(shell, text, words))
    return shell.wait_for(child)


def _interpret(shell: Shell, text: str, words: list[str]) -> int:
    """Run a script in this process: a fresh shell but for the environment."""
    shell.pid = os.getpid()
    shell.name, shell.arguments = words[0], words[1:]
    shell.functions, shell.locals, shell.status = {}, [], 0
    shell.options = dict.fromkeys(shell.options, False)
    shell.variables = {name: value for name, value in shell.variables.items() if name in shell.exported}
    try:
        tree = parse(text)
    except SyntaxProblem as problem:
        shell.complain(f"syntax error: {problem}")
        return 2
    return shell.run(tree)


def run_shell(shell: Shell, words: list[str]) -> int:
    """`sh -c TEXT`, `sh FILE`: another shell, as a child process."""
    if words[:1] == ["-c"] and len(words) > 1:
        text, called = words[1], [*(words[2:] or ["sh"])]
    elif words and not words[0].startswith("-"):
        handle = shell.open(words[0], os.O_RDONLY)
        with os.fdopen(handle, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
        called = words
    else:
        with os.fdopen(os.dup(0), encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
        called = ["sh"]
    child = shell.fork()
    if child == 0:
        shell.finish(lambda: _interpret(shell, text, called))
    return shell.wait_for(child)


def run_on_host(shell: Shell, words: list[str]) -> int:
    """`standin-run NAME …`: have the stand-in itself answer."""
    return relay.run(shell.files, words[0], words[1:], shell.cwd)


COMMANDS: dict[str, Command] = {
    "exec-path": run_by_path, "sh": run_shell, "mksh": run_shell, "standin-run": run_on_host,
}  # fmt: skip
