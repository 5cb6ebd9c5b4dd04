"""Shell arithmetic: C's integer operators on 32 bits, as in mksh."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping

_TOKEN = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|<<=|>>=|<<|>>|\+\+|--|[-+*/%&|^!=<>]=|&&|\|\||[-+*/%&|^~!<>=?:()])"
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_ASSIGN = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")


class ArithmeticProblem(Exception):
    """No expression, or a division by zero."""


def wrap(value: int) -> int:
    """Cut to 32 bits with sign: what the phone's shell does."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise ArithmeticProblem("divide by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_BINARY: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b), "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b), "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << (b & 31), ">>": lambda a, b: a >> (b & 31), "+": lambda a, b: a + b,
    "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": _divide,
    "%": lambda a, b: a - b * _divide(a, b),
}  # fmt: skip


def evaluate(text: str, variables: MutableMapping[str, str]) -> int:
    """The value of an expression; it may assign variables."""
    return _Reader(text, variables).whole()


class _Reader:
    def __init__(self, text: str, variables: MutableMapping[str, str]) -> None:
        self._variables = variables
        self._tokens, place = [], 0
        text = text.strip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise ArithmeticProblem(f"{text}: unexpected '{text[place]}'")
            self._tokens.append(found.group(1))
            place = found.end()
        self._place = 0

    def whole(self) -> int:
        if not self._tokens:
            return 0
        value = self._assignment()
        if self._place < len(self._tokens):
            raise ArithmeticProblem(f"unexpected '{self._tokens[self._place]}'")
        return value

    def _peek(self, ahead: int = 0) -> str:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._place += 1
        return token

    def _assignment(self) -> int:
        if self._peek().isidentifier() and self._peek(1) in _ASSIGN:
            name, sign = self._take(), self._take()
            value = self._assignment()
            if sign != "=":
                value = wrap(_BINARY[sign[:-1]](self._read(name), value))
            self._variables[name] = str(value)
            return value
        condition = self._binary(0)
        if self._peek() != "?":
            return condition
        self._take()
        yes = self._assignment()
        if self._take() != ":":
            raise ArithmeticProblem("':' is missing")
        no = self._assignment()
        return yes if condition else no

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _LEVELS[level]:
            sign = self._take()
            right = self._binary(level + 1)
            if sign == "||":
                left = int(bool(left) or bool(right))
            elif sign == "&&":
                left = int(bool(left) and bool(right))
            else:
                left = wrap(_BINARY[sign](left, right))
        return left

    def _unary(self) -> int:
        token = self._take()
        if token in ("++", "--"):
            return self._step(self._take(), 1 if token == "++" else -1)
        if token in ("-", "+", "!", "~"):
            value = self._unary()
            return wrap({"-": -value, "+": value, "!": int(not value), "~": ~value}[token])
        if token == "(":
            value = self._assignment()
            if self._take() != ")":
                raise ArithmeticProblem("')' is missing")
            return value
        if token.isidentifier():
            before = self._read(token)
            if self._peek() in ("++", "--"):
                self._step(token, 1 if self._take() == "++" else -1)
            return before
        return _number(token)

    def _step(self, name: str, by: int) -> int:
        value = wrap(self._read(name) + by)
        self._variables[name] = str(value)
        return value

    def _read(self, name: str) -> int:
        text = self._variables.get(name, "").strip()
        if not text:
            return 0
        return evaluate(text, self._variables) if not text.lstrip("-").isdigit() else _signed(text)


def _signed(text: str) -> int:
    return wrap(-_number(text[1:]) if text.startswith("-") else _number(text))


def _number(token: str) -> int:
    try:
        if token[:2] in ("0x", "0X"):
            return wrap(int(token, 16))
        return wrap(int(token))  # mksh takes 010 for ten
    except ValueError:
        raise ArithmeticProblem(f"'{token}' is no number") from None
