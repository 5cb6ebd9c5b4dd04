"""The portable shell as a process: `ROOT [-c PROGRAM | -]`."""

from __future__ import annotations

import os
import signal
import sys

from mtplab.standin.files import DeviceFiles
from mtplab.standin.minish import builtins, file_commands, paths, system_commands, text_commands
from mtplab.standin.minish.leaving import Exit
from mtplab.standin.minish.parser import parse
from mtplab.standin.minish.redirector import write
from mtplab.standin.minish.shell import MAX_CHILDREN, Command, Shell
from mtplab.standin.minish.syntax import Incomplete, SyntaxProblem


def all_commands() -> dict[str, Command]:
    """Everything the shell can do by itself."""
    return {
        **file_commands.COMMANDS, **text_commands.COMMANDS, **system_commands.COMMANDS,
        **builtins.COMMANDS, **paths.COMMANDS,
    }  # fmt: skip


def make_shell(root: str) -> Shell:
    """A shell with the process's environment, ready to run."""
    slots = os.pipe()
    os.write(slots[1], b"." * MAX_CHILDREN)
    shell = Shell(DeviceFiles(root), all_commands(), slots)
    shell.variables.update(os.environ)
    shell.exported.update(os.environ)
    shell.name = "/system/bin/sh"
    return shell


def main() -> None:
    """Run a program or read one from standard input; never returns."""
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    root, how, *rest = sys.argv[1:]
    shell = make_shell(root)
    if how == "-c":
        shell.name, shell.arguments = (rest[1] if len(rest) > 1 else shell.name), rest[2:]
        status = shell.guarded(lambda: _program(shell, rest[0]))
    else:
        status = shell.guarded(lambda: _from_input(shell))
    os._exit(status & 255)


def _program(shell: Shell, text: str) -> int:
    try:
        tree = parse(text)
    except SyntaxProblem as problem:
        shell.complain(f"syntax error: {problem}")
        return 2
    return shell.run(tree)


def _from_input(shell: Shell) -> int:
    terminal = os.isatty(0)
    text = ""
    while True:
        if terminal:
            write(1, f"{shell.variables.get('HOSTNAME', 'device')}:{shell.cwd} $ " if not text else "> ")
        line = read_line()
        text += line
        if not line:
            return shell.status if not text.strip() else _program(shell, text)
        try:
            tree = parse(text)
        except Incomplete:
            continue
        except SyntaxProblem as problem:
            shell.complain(f"syntax error: {problem}")
            shell.status, text = 2, ""
            if not terminal:
                raise Exit(2) from None
            continue
        text = ""
        shell.run(tree)


def read_line() -> str:
    """A line of standard input and not one byte more: the rest belongs to the commands."""
    line = bytearray()
    while byte := os.read(0, 1):
        line += byte
        if byte == b"\n":
            break
    return line.decode("utf-8", "surrogateescape")
