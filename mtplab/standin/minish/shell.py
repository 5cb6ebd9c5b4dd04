"""The shell itself: its state, and the execution of a parsed program."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import Any

from mtplab.standin.files import DeviceFiles
from mtplab.standin.minish import expand
from mtplab.standin.minish.arithmetic import ArithmeticProblem
from mtplab.standin.minish.leaving import Break, Continue, Exit, Return
from mtplab.standin.minish.redirector import Redirector, write
from mtplab.standin.minish.syntax import (
    AndOr,
    Case,
    Compound,
    For,
    Function,
    If,
    Loop,
    Node,
    Pipeline,
    Sequence_,
    Simple,
    Subshell,
    Word,
)  # fmt: skip

Command = Callable[["Shell", list[str]], int]
MAX_CHILDREN = 48


class Shell(Redirector):
    """One shell process."""

    def __init__(self, files: DeviceFiles, commands: dict[str, Command], slots: tuple[int, int]) -> None:
        """`slots` is a pipe with one byte for every process that may still be started."""
        super().__init__(files)
        self.commands, self._slots = commands, slots
        self.variables: dict[str, str] = {}
        self.exported: set[str] = set()
        self.arguments: list[str] = []
        self.pid = os.getpid()
        self.status = 0
        self.last_background: int | None = None
        self.functions: dict[str, Node] = {}
        self.locals: list[dict[str, str | None]] = []
        self.options = dict.fromkeys("efux", False)
        self.traps: dict[str, str] = {}
        self.pending: list[str] = []
        self.children: dict[int, int | None] = {}
        self._forgiving = 0
        self.status_of_capture = 0
        self._runners: dict[type, Callable[[Any], int]] = {
            Sequence_: self._sequence, AndOr: self._and_or, Pipeline: self._pipeline, Compound: self._compound,
            Subshell: self._subshell, If: self._if, Loop: self._loop, For: self._for, Case: self._case,
            Function: self._function,
        }  # fmt: skip

    def expand(self, word: Word) -> str:
        """A word as one string."""
        return expand.text_of(self, word)

    # --- state

    def lookup(self, name: str) -> str | None:
        """A parameter's value; None when it is unset."""
        if name.isdigit():
            number = int(name)
            if number == 0:
                return self.name
            return self.arguments[number - 1] if number <= len(self.arguments) else None
        special = {
            "?": str(self.status), "$": str(self.pid), "#": str(len(self.arguments)),
            "!": "" if self.last_background is None else str(self.last_background),
            "-": "".join(flag for flag, on in self.options.items() if on),
        }  # fmt: skip
        if name in special:
            return special[name]
        if name in ("@", "*"):
            return " ".join(self.arguments) if self.arguments else None
        return self.variables.get(name)

    # --- execution

    def run(self, node: Node) -> int:
        """Execute a tree; its status."""
        kind = type(node)
        if kind is Simple:
            return self._simple(node)  # type: ignore[arg-type]
        return self._runners[kind](node)

    def _sequence(self, node: Sequence_) -> int:
        for command, background in node.items:
            self.status = self._start_background(command) if background else self.run(command)
            if self.pending:
                self.run_traps()
        return self.status

    def _start_background(self, command: Node) -> int:
        child = self.fork()
        if child == 0:
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.close(null)
            self.finish(lambda: self.run(command))
        self.last_background = child
        return 0

    def _and_or(self, node: AndOr) -> int:
        for number, (sign, command) in enumerate(node.items):
            if (sign == "&&" and self.status != 0) or (sign == "||" and self.status == 0):
                continue
            last = number == len(node.items) - 1
            self.status = self.run(command) if last else self._forgivingly(command)
        return self.status

    def _forgivingly(self, command: Node) -> int:
        """Where a failure is a question, `set -e` does not answer it."""
        self._forgiving += 1
        try:
            return self.run(command)
        finally:
            self._forgiving -= 1

    def _pipeline(self, node: Pipeline) -> int:
        if len(node.commands) == 1:
            return int(self._forgivingly(node.commands[0]) == 0)
        children, source = [], -1
        for number, command in enumerate(node.commands):
            reader, target = (-1, -1) if number == len(node.commands) - 1 else os.pipe()
            child = self.fork()
            if child == 0:
                _move(source, 0)
                _move(target, 1)
                if reader >= 0:
                    os.close(reader)
                self.finish(lambda todo=command: self.run(todo))  # type: ignore[misc]
            children.append(child)
            for handle in (source, target):
                if handle >= 0:
                    os.close(handle)
            source = reader
        status = 0
        for child in children:
            status = self.wait_for(child)
        return int(status == 0) if node.negated else self._checked(status)

    def _compound(self, node: Compound) -> int:
        saved = self.redirect(node.redirections)
        if saved is None:
            return 1
        try:
            return self.run(node.body)
        finally:
            self.restore(saved)

    def _subshell(self, node: Subshell) -> int:
        child = self.fork()
        if child == 0:
            self.finish(lambda: self.run(node.body))
        return self._checked(self.wait_for(child))

    def _if(self, node: If) -> int:
        for condition, body in node.branches:
            if self._forgivingly(condition) == 0:
                self.status = 0
                return self.run(body)
        self.status = 0
        return self.run(node.otherwise) if node.otherwise is not None else 0

    def _loop(self, node: Loop) -> int:
        status = 0
        while (self._forgivingly(node.condition) == 0) != node.until:
            go_on, status = self._turn(node.body, status)
            if not go_on:
                break
        return status

    def _for(self, node: For) -> int:
        words = self.arguments if node.words is None else expand.fields(self, node.words)
        status = 0
        for word in list(words):
            self.variables[node.name] = word
            go_on, status = self._turn(node.body, status)
            if not go_on:
                break
        return status

    def _turn(self, body: Sequence_, status: int) -> tuple[bool, int]:
        """One turn of a loop: whether there may be another, and the status so far."""
        self.status = 0
        try:
            return True, self.run(body)
        except Break as leaving:
            if leaving.levels > 1:
                raise type(leaving)(leaving.levels - 1) from None
            return isinstance(leaving, Continue), status

    def _case(self, node: Case) -> int:
        text = expand.text_of(self, node.word)
        for patterns, body in node.items:
            if any(expand.matcher_for(expand.pieces_of(self, pattern)).fullmatch(text) for pattern in patterns):
                self.status = 0
                return self.run(body)
        return 0

    def _function(self, node: Function) -> int:
        self.functions[node.name] = node.body
        return 0

    def _simple(self, node: Simple) -> int:
        try:
            return self._run_simple(node)
        except (expand.ExpansionError, ArithmeticProblem) as error:
            self.complain(str(error))
            raise Exit(1) from None

    def _run_simple(self, node: Simple) -> int:
        self.status_of_capture = 0
        words = expand.fields(self, node.words)
        assigned = [(name, expand.text_of(self, word)) for name, word in node.assignments]
        if self.options["x"]:
            write(2, "+ " + " ".join([*(f"{name}={value}" for name, value in assigned), *words]) + "\n")
        saved = self.redirect(node.redirections)
        if saved is None:
            return self._checked(1)
        keep = False
        try:
            if not words:
                self.variables.update(assigned)
                return self._checked(self.status_of_capture)
            keep = words[0] == "exec"
            return self._checked(self._with_variables(assigned, words))
        finally:
            if keep:
                for _handle, copy in saved:
                    if copy >= 0:
                        os.close(copy)
            else:
                self.restore(saved)

    def _with_variables(self, assigned: list[tuple[str, str]], words: list[str]) -> int:
        if not assigned:
            return self.command(words)
        before = {name: self.variables.get(name) for name, _ in assigned}
        exported = set(self.exported)
        self.variables.update(assigned)
        self.exported.update(name for name, _ in assigned)
        try:
            return self.command(words)
        finally:
            self.exported = exported
            for name, value in before.items():
                _set_or_unset(self.variables, name, value)

    def command(self, words: list[str]) -> int:
        """Run one command by its words: a function, one of ours, a script or a program."""
        body = self.functions.get(words[0])
        if body is not None:
            return self._call(body, words[1:])
        found = self.commands.get(words[0])
        try:
            return found(self, words[1:]) if found is not None else self.commands["exec-path"](self, words)
        except OSError as error:
            named = f"{error.filename}: " if isinstance(error.filename, str) else ""
            write(2, f"{words[0]}: {named}{error.strerror or error}\n")
            return 1

    def _call(self, body: Node, arguments: list[str]) -> int:
        before, self.arguments = self.arguments, arguments
        self.locals.append({})
        try:
            return self.run(body)
        except Return as leaving:
            if isinstance(leaving, Exit):
                raise
            return leaving.status
        finally:
            self.arguments = before
            for name, value in self.locals.pop().items():
                _set_or_unset(self.variables, name, value)

    def _checked(self, status: int) -> int:
        if status and self.options["e"] and not self._forgiving:
            raise Exit(status)
        return status

    # --- processes

    def fork(self) -> int:
        """A child process, within the limit; in the child the shell is a subshell."""
        if not select.select([self._slots[0]], [], [], 0)[0]:
            self.complain("can't fork - try again")
            raise Exit(1)
        os.read(self._slots[0], 1)
        child = os.fork()
        if child:
            self.children[child] = None
            return child
        self.children.clear()
        self.traps.clear()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        return 0

    def finish(self, work: Callable[[], int]) -> None:
        """Do the work of a child process and end it."""
        status = 1
        try:
            status = self.guarded(work)
        finally:
            os._exit(status & 255)

    def guarded(self, work: Callable[[], int]) -> int:
        """A status, whatever way the work ends; the EXIT trap runs."""
        try:
            status = work()
        except Return as leaving:
            status = leaving.status
        except Break:
            status = 0
        self.status = status
        action = self.traps.pop("EXIT", "")
        if action:
            try:
                self.commands["eval"](self, [action])
            except Return as leaving:
                return leaving.status
        return status

    def wait_for(self, child: int) -> int:
        """A child's status; 128 + n when a signal ended it."""
        known = self.children.get(child)
        if known is None:
            try:
                _pid, raw = os.waitpid(child, 0)
                known = os.waitstatus_to_exitcode(raw)
            except ChildProcessError:
                known = 127
            os.write(self._slots[1], b".")
        self.children.pop(child, None)
        return known if known >= 0 else 128 - known

    def capture(self, body: Sequence_) -> str:
        """The output of `$(…)` without the newlines at its end."""
        reader, writer = os.pipe()
        child = self.fork()
        if child == 0:
            os.close(reader)
            _move(writer, 1)
            self.finish(lambda: self.run(body))
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            data = pipe.read()
        self.status_of_capture = self.status = self.wait_for(child)
        return data.replace(b"\0", b"").decode("utf-8", "surrogateescape").rstrip("\n")

    def run_traps(self) -> None:
        """Run what `trap` set for signals that have come."""
        while self.pending:
            action = self.traps.get(self.pending.pop(0), "")
            before = self.status
            if action:
                self.commands["eval"](self, [action])
            self.status = before


def _move(handle: int, place: int) -> None:
    if handle >= 0 and handle != place:
        os.dup2(handle, place)
        os.close(handle)


def _set_or_unset(variables: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        variables.pop(name, None)
    else:
        variables[name] = value
