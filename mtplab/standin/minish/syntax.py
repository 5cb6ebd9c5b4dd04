"""The tree a shell program is read into.

Plain classes: every command of the portable shell is a process that loads this, and dataclasses take longer to make
than most commands to run.
"""

from __future__ import annotations

import re
from typing import Union  # aliases are evaluated, and forward names allow no `|` in Python 3.10

NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
BLANK = " \t"
META = " \t\n;&|<>()"
RESERVED = frozenset(
    ("if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "{", "}", "!", "in")
)
OPERATORS = ("<<-", "&&", "||", ";;", "<<", ">>", "<&", ">&", "<>", ">|", ";", "&", "|", "<", ">", "(", ")", "\n")
REDIRECTIONS = frozenset(("<", ">", ">>", "<<", "<<-", "<&", ">&", "<>", ">|"))


class SyntaxProblem(Exception):
    """The text is no shell program."""


class Incomplete(SyntaxProblem):
    """The text may still become one if more lines follow."""


class Literal:
    """Characters as they are."""

    def __init__(self, text: str, quoted: bool) -> None:
        self.text, self.quoted = text, quoted


class Parameter:
    """`$name`, `${name:-word}`, `${#name}` …"""

    def __init__(self, name: str, operator: str, word: Word | None, quoted: bool) -> None:
        self.name, self.operator, self.word, self.quoted = name, operator, word, quoted


class Substitution:
    """`$(commands)`."""

    def __init__(self, body: Sequence_, quoted: bool) -> None:
        self.body, self.quoted = body, quoted


class Arithmetic:
    """`$((expression))`."""

    def __init__(self, word: Word, quoted: bool) -> None:
        self.word, self.quoted = word, quoted


Part = Union[Literal, Parameter, Substitution, Arithmetic]  # noqa: UP007
Word = tuple[Part, ...]


class Redirection:
    """`n>word`; for here-documents the word is the body."""

    def __init__(self, handle: int, operator: str, word: Word) -> None:
        self.handle, self.operator, self.word = handle, operator, word


class Simple:
    """Assignments, words and redirections."""

    def __init__(self) -> None:
        self.assignments: list[tuple[str, Word]] = []
        self.words: list[Word] = []
        self.redirections: list[Redirection] = []


class Pipeline:
    """Commands joined by `|`."""

    def __init__(self, commands: list[Node], negated: bool) -> None:
        self.commands, self.negated = commands, negated


class AndOr:
    """Pipelines joined by `&&` and `||`: the operator stands before each but the first."""

    def __init__(self, items: list[tuple[str, Node]]) -> None:
        self.items = items


class Sequence_:
    """Commands one after another; True marks those for the background."""

    def __init__(self) -> None:
        self.items: list[tuple[Node, bool]] = []


class Compound:
    """A compound command with the redirections behind it."""

    def __init__(self, body: Node, redirections: list[Redirection]) -> None:
        self.body, self.redirections = body, redirections


class Subshell:
    """`( … )`."""

    def __init__(self, body: Sequence_) -> None:
        self.body = body


class If:
    """Conditions with their branches, and the last `else`."""

    def __init__(self, branches: list[tuple[Sequence_, Sequence_]], otherwise: Sequence_ | None) -> None:
        self.branches, self.otherwise = branches, otherwise


class Loop:
    """`while` or `until`."""

    def __init__(self, condition: Sequence_, body: Sequence_, until: bool) -> None:
        self.condition, self.body, self.until = condition, body, until


class For:
    """`for name in words`; None stands for the positional parameters."""

    def __init__(self, name: str, words: list[Word] | None, body: Sequence_) -> None:
        self.name, self.words, self.body = name, words, body


class Case:
    """`case word in pattern) … ;;`."""

    def __init__(self, word: Word, items: list[tuple[list[Word], Sequence_]]) -> None:
        self.word, self.items = word, items


class Function:
    """`name() body`."""

    def __init__(self, name: str, body: Node) -> None:
        self.name, self.body = name, body


Node = Union[Simple, Pipeline, AndOr, Sequence_, Compound, Subshell, If, Loop, For, Case, Function]  # noqa: UP007


def plain(word: Word) -> str | None:
    """The text of a word written without quotes or expansions, else None."""
    if len(word) == 1 and isinstance(word[0], Literal) and not word[0].quoted:
        return word[0].text
    return None
