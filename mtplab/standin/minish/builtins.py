"""The shell's own commands: those that change the shell, and `echo`, `printf`, `read`, `test`."""

from __future__ import annotations

import os
import select
import signal
import time

from mtplab.standin.minish import paths
from mtplab.standin.minish.conditions import test
from mtplab.standin.minish.formats import echo, printf
from mtplab.standin.minish.leaving import Break, Continue, Exit, Return
from mtplab.standin.minish.parser import parse
from mtplab.standin.minish.redirector import write
from mtplab.standin.minish.shell import Command, Shell
from mtplab.standin.minish.syntax import SyntaxProblem

READ_TIMED_OUT = 142  # as mksh: 128 + SIGALRM
SIGNALS = {
    name: getattr(signal, f"SIG{name}")
    for name in ("HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "PIPE", "ALRM", "TERM", "ABRT", "SEGV", "STOP", "CONT")
}


def _number(words: list[str], default: int) -> int:
    return int(words[0]) if words and words[0].lstrip("-").isdigit() else default


def _cd(shell: Shell, words: list[str]) -> int:
    wanted = words[0] if words else shell.variables.get("HOME", "/")
    wanted = shell.variables.get("OLDPWD", "/") if wanted == "-" else wanted
    canonical = shell.files.resolve(wanted, shell.cwd)
    if not os.path.isdir(shell.files.root + canonical):  # noqa: PTH112
        shell.complain(f"cd: {wanted}: No such file or directory")
        return 2
    shell.variables["OLDPWD"], shell.cwd = shell.cwd, canonical
    shell.variables["PWD"] = canonical
    return 0


def _pwd(shell: Shell, words: list[str]) -> int:
    write(1, shell.cwd + "\n")
    return 0


def _exit(shell: Shell, words: list[str]) -> int:
    raise Exit(_number(words, shell.status))


def _return(shell: Shell, words: list[str]) -> int:
    raise Return(_number(words, shell.status))


def _break(shell: Shell, words: list[str]) -> int:
    raise Break(_number(words, 1))


def _continue(shell: Shell, words: list[str]) -> int:
    raise Continue(_number(words, 1))


def _eval(shell: Shell, words: list[str]) -> int:
    try:
        tree = parse(" ".join(words))
    except SyntaxProblem as problem:
        shell.complain(f"syntax error: {problem}")
        return 2
    shell.status = 0
    return shell.run(tree)


def _source(shell: Shell, words: list[str]) -> int:
    handle = shell.open(words[0], os.O_RDONLY)
    with os.fdopen(handle, encoding="utf-8", errors="surrogateescape") as file:
        return _eval(shell, [file.read()])


def _exec(shell: Shell, words: list[str]) -> int:
    if not words:
        return 0
    if words[0] in shell.commands and words[0] not in ("exec-path", "sh", "mksh"):
        raise Exit(shell.command(words))
    if words[0] in ("sh", "mksh"):
        raise Exit(paths.run_shell(shell, words[1:]))
    raise Exit(paths.run_by_path(shell, words, replace=True))


def _export(shell: Shell, words: list[str]) -> int:
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            shell.variables[name] = value
        shell.exported.add(name)
    return 0


def _unset(shell: Shell, words: list[str]) -> int:
    for word in words:
        shell.variables.pop(word, None)
        shell.functions.pop(word, None)
        shell.exported.discard(word)
    return 0


def _local(shell: Shell, words: list[str]) -> int:
    for word in words:
        name, equals, value = word.partition("=")
        if shell.locals:
            shell.locals[-1].setdefault(name, shell.variables.get(name))
        if equals:
            shell.variables[name] = value
    return 0


def _set(shell: Shell, words: list[str]) -> int:
    while words:
        word = words[0]
        if word == "--":
            shell.arguments = words[1:]
            return 0
        if word[:1] not in "+-" or len(word) < 2:
            shell.arguments = words
            return 0
        for flag in word[1:]:
            if flag not in shell.options:
                shell.complain(f"set: -{flag}: unknown option")
                return 1
            shell.options[flag] = word[0] == "-"
        words = words[1:]
    return 0


def _shift(shell: Shell, words: list[str]) -> int:
    count = _number(words, 1)
    if count > len(shell.arguments):
        shell.complain("shift: nothing to shift")
        return 1
    shell.arguments = shell.arguments[count:]
    return 0


def _trap(shell: Shell, words: list[str]) -> int:
    if not words:
        for name, action in shell.traps.items():
            write(1, f"trap -- '{action}' {name}\n")
        return 0
    action, names = ("-", words) if len(words) == 1 else (words[0], words[1:])
    for raw in names:
        name = {"0": "EXIT"}.get(raw, raw.removeprefix("SIG"))
        name = next((known for known, number in SIGNALS.items() if raw == str(int(number))), name)
        if name != "EXIT" and name not in SIGNALS:
            shell.complain(f"trap: {raw}: bad signal")
            return 1
        _set_trap(shell, name, action)
    return 0


def _set_trap(shell: Shell, name: str, action: str) -> None:
    if action == "-":
        shell.traps.pop(name, None)
    else:
        shell.traps[name] = action
    if name != "EXIT":
        handler: object = signal.SIG_DFL if action == "-" else signal.SIG_IGN
        if action not in ("-", ""):
            handler = lambda _number, _frame: shell.pending.append(name)  # noqa: E731
        signal.signal(SIGNALS[name], handler)  # type: ignore[arg-type]


def _wait(shell: Shell, words: list[str]) -> int:
    status = 0
    for child in [int(word) for word in words if word.isdigit()] or list(shell.children):
        if child in shell.children:
            status = shell.wait_for(child)
        elif words:
            status = 127
    return status if words else 0


def _kill(shell: Shell, words: list[str]) -> int:
    number = signal.SIGTERM.value
    if words and words[0].startswith("-") and len(words[0]) > 1:
        name = words.pop(0)[1:]
        name = words.pop(0) if name == "s" and words else name
        if name == "l":
            write(1, " ".join(SIGNALS) + "\n")
            return 0
        if not name.isdigit() and name.removeprefix("SIG") not in SIGNALS:
            shell.complain(f"kill: {name}: bad signal")
            return 1
        number = int(name) if name.isdigit() else int(SIGNALS[name.removeprefix("SIG")])
    status = 0
    for word in words:
        try:
            pid = int(word)
            # Only the device's own processes: a device command may not end one of the host's.
            mine = pid in shell.children or pid == shell.pid
            if not mine and not os.path.isdir(f"{shell.files.root}/proc/{pid}"):  # noqa: PTH112
                raise ProcessLookupError(3, "No such process")
            os.kill(pid, number)
        except (OSError, ValueError) as error:
            shell.complain(f"kill: {word}: {getattr(error, 'strerror', None) or 'bad pid'}")
            status = 1
    return status


def _command(shell: Shell, words: list[str]) -> int:
    if words[:1] in (["-v"], ["-V"]):
        return _describe(shell, words[1:])
    return shell.command(words) if words else 0


def _describe(shell: Shell, words: list[str]) -> int:
    status = 0
    for word in words:
        if word in shell.functions or word in COMMANDS:
            write(1, word + "\n")
        elif word in shell.commands and word != "exec-path":
            write(1, f"/system/bin/{word}\n")
        elif (path := paths.locate(shell, word)) is not None:
            write(1, path + "\n")
        else:
            status = 1
    return status


def _times(shell: Shell, words: list[str]) -> int:
    used = os.times()
    for pair in ((used.user, used.system), (used.children_user, used.children_system)):
        write(1, " ".join(f"{int(s // 60)}m{s % 60:05.2f}s" for s in pair) + "\n")
    return 0


def _read(shell: Shell, words: list[str]) -> int:
    raw, seconds, end = False, None, b"\n"
    while words and words[0].startswith("-") and len(words[0]) > 1:
        option = words.pop(0)[1:]
        for place, flag in enumerate(option):
            if flag == "r":
                raw = True
                continue
            value = option[place + 1 :] or (words.pop(0) if words else "")
            if flag == "t":
                seconds = float(value)
            elif flag == "d":
                end = value[:1].encode() or b"\0"
            else:
                shell.complain(f"read: -{flag}: unknown option")
                return 2
            break
    line, status = _read_record(end, raw, seconds)
    names = words or ["REPLY"]
    for name, value in zip(names, _cut(line, len(names), shell.variables.get("IFS", " \t\n")), strict=True):
        shell.variables[name] = value
    return status


def _read_record(end: bytes, raw: bool, seconds: float | None) -> tuple[str, int]:
    """One record from standard input, byte by byte: what follows it belongs to others."""
    deadline = None if seconds is None else time.monotonic() + seconds
    line, escaped = bytearray(), False
    while True:
        if deadline is not None:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([0], [], [], left)[0]:
                return line.decode("utf-8", "surrogateescape"), READ_TIMED_OUT
        byte = os.read(0, 1)
        if not byte:
            return line.decode("utf-8", "surrogateescape"), 1
        if escaped:
            escaped = False
            if byte != b"\n":
                line += byte
        elif byte == b"\\" and not raw:
            escaped = True
        elif byte == end:
            return line.decode("utf-8", "surrogateescape"), 0
        elif byte != b"\0":
            line += byte


def _cut(line: str, count: int, separators: str) -> list[str]:
    """A line's fields; the last takes what is left."""
    space = "".join(char for char in separators if char in " \t\n")
    found: list[str] = []
    rest = line.strip(space) if space else line
    while len(found) < count - 1 and rest:
        cut = next((place for place, char in enumerate(rest) if char in separators), len(rest))
        found.append(rest[:cut])
        after = rest[cut:].lstrip(space) if space else rest[cut:]
        if after[:1] and after[0] in separators and after[0] not in space and rest[cut : cut + 1] in space:
            after = after[1:]
        elif rest[cut : cut + 1] and rest[cut] not in space:
            after = rest[cut + 1 :].lstrip(space) if space else rest[cut + 1 :]
        rest = after
    return [*found, rest, *[""] * (count - len(found) - 1)][:count]


def _umask(shell: Shell, words: list[str]) -> int:
    if words:
        os.umask(int(words[0], 8))
    else:
        before = os.umask(0o022)
        os.umask(before)
        write(1, f"{before:04o}\n")
    return 0


def _nothing(shell: Shell, words: list[str]) -> int:
    return 0


def _false(shell: Shell, words: list[str]) -> int:
    return 1


COMMANDS: dict[str, Command] = {
    ":": _nothing, "true": _nothing, "false": _false, "cd": _cd, "pwd": _pwd, "exit": _exit, "return": _return,
    "break": _break, "continue": _continue, "eval": _eval, ".": _source, "exec": _exec, "export": _export,
    "readonly": _export, "unset": _unset, "local": _local, "typeset": _local, "set": _set, "shift": _shift,
    "trap": _trap, "wait": _wait, "kill": _kill, "command": _command, "type": _describe, "which": _describe,
    "read": _read, "echo": echo, "printf": printf, "test": test, "[": test, "umask": _umask, "ulimit": _nothing,
    "times": _times,
}  # fmt: skip
