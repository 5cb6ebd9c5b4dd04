"""Reads shell text into a tree: the grammar of POSIX sh without aliases."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Literal:
    """Characters as they are."""

    text: str
    quoted: bool


@dataclass(frozen=True)
class Parameter:
    """`$name`, `${name:-word}`, `${#name}` …"""

    name: str
    operator: str
    word: Word | None
    quoted: bool


@dataclass(frozen=True)
class Substitution:
    """`$(commands)`."""

    body: Sequence_
    quoted: bool


@dataclass(frozen=True)
class Arithmetic:
    """`$((expression))`."""

    word: Word
    quoted: bool


Part = Union[Literal, Parameter, Substitution, Arithmetic]  # noqa: UP007
Word = tuple[Part, ...]


@dataclass
class Redirection:
    """`n>word`; for here-documents the word is the body."""

    handle: int
    operator: str
    word: Word


@dataclass
class Simple:
    """Assignments, words and redirections."""

    assignments: list[tuple[str, Word]] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)


@dataclass
class Pipeline:
    """Commands joined by `|`."""

    commands: list[Node]
    negated: bool


@dataclass
class AndOr:
    """Pipelines joined by `&&` and `||`: the operator stands before each but the first."""

    items: list[tuple[str, Node]]


@dataclass
class Sequence_:
    """Commands one after another; True marks those for the background."""

    items: list[tuple[Node, bool]] = field(default_factory=list)


@dataclass
class Compound:
    """A compound command with the redirections behind it."""

    body: Node
    redirections: list[Redirection]


@dataclass
class Subshell:
    """`( … )`."""

    body: Sequence_


@dataclass
class If:
    """Conditions with their branches, and the last `else`."""

    branches: list[tuple[Sequence_, Sequence_]]
    otherwise: Sequence_ | None


@dataclass
class Loop:
    """`while` or `until`."""

    condition: Sequence_
    body: Sequence_
    until: bool


@dataclass
class For:
    """`for name in words`; None stands for the positional parameters."""

    name: str
    words: list[Word] | None
    body: Sequence_


@dataclass
class Case:
    """`case word in pattern) … ;;`."""

    word: Word
    items: list[tuple[list[Word], Sequence_]]


@dataclass
class Function:
    """`name() body`."""

    name: str
    body: Node


Node = Union[Simple, Pipeline, AndOr, Sequence_, Compound, Subshell, If, Loop, For, Case, Function]  # noqa: UP007


def plain(word: Word) -> str | None:
    """The text of a word written without quotes or expansions, else None."""
    if len(word) == 1 and isinstance(word[0], Literal) and not word[0].quoted:
        return word[0].text
    return None
