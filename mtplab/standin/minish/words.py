"""Reads the words of a shell program: quotes, parameters, substitutions and arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mtplab.standin.minish.syntax import (
    BLANK,
    META,
    NAME,
    Arithmetic,
    Incomplete,
    Literal,
    Parameter,
    Part,
    Sequence_,
    Substitution,
    SyntaxProblem,
    Word,
)  # fmt: skip

SPECIAL = "@*#?-$!0123456789"
PARAMETER_OPERATORS = (":-", ":=", ":?", ":+", "%%", "##", "-", "=", "?", "+", "%", "#")


class WordReader(ABC):
    """A place in a text, and what can be read there without knowing commands."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    @abstractmethod
    def nested(self, text: str) -> WordReader:
        """A reader of a part of the text."""

    @abstractmethod
    def commands_in_parentheses(self) -> Sequence_:
        """What stands between `$(` and its `)`."""

    @abstractmethod
    def commands_to_end(self) -> Sequence_:
        """The whole text as a program."""

    def _skip_blanks(self) -> None:
        text = self.text
        while self.position < len(text):
            if text[self.position] in BLANK:
                self.position += 1
            elif text.startswith("\\\n", self.position):
                self.position += 2
            elif text[self.position] == "#":
                end = text.find("\n", self.position)
                self.position = len(text) if end < 0 else end
            else:
                return

    def word(self) -> Word | None:
        self._skip_blanks()
        parts = self._parts(META)
        return tuple(parts) if parts else None

    def _parts(self, stop: str) -> list[Part]:
        text, plain_text = self.text, ""
        parts: list[Part] = []

        def flush() -> None:
            nonlocal plain_text
            if plain_text:
                parts.append(Literal(plain_text, False))
                plain_text = ""

        while self.position < len(text) and text[self.position] not in stop:
            char = text[self.position]
            if char not in "\\'\"$`":
                plain_text += char
                self.position += 1
                continue
            flush()
            parts += self._special(char)
        flush()
        return parts

    def _special(self, char: str) -> list[Part]:
        text = self.text
        if char == "\\":
            escaped = text[self.position + 1 : self.position + 2]
            self.position += 2
            return [] if escaped == "\n" else [Literal(escaped or "\\", True)]
        if char == "'":
            end = text.find("'", self.position + 1)
            if end < 0:
                raise Incomplete("a quote is not closed")
            found = Literal(text[self.position + 1 : end], True)
            self.position = end + 1
            return [found]
        if char == '"':
            self.position += 1
            inner = self.quoted_parts('"')
            self.position += 1
            return [Literal("", True), *inner]
        return [self._dollar(False) if char == "$" else self._backquote(False)]

    def quoted_parts(self, close: str) -> Word:
        """What stands between double quotes (or in a here-document, where `close` is "")."""
        text, literal = self.text, ""
        parts: list[Part] = []
        while True:
            if self.position >= len(text):
                if close:
                    raise Incomplete("a quote is not closed")
                break
            char = text[self.position]
            if char == close:
                break
            if char == "\\" and text[self.position + 1 : self.position + 2] in ("$", "`", '"', "\\", "\n"):
                escaped = text[self.position + 1]
                literal += "" if escaped == "\n" else ("\\" + escaped if escaped == '"' and not close else escaped)
                self.position += 2
            elif char == '"' and close == "}":  # quotes within "${name:-"word"}"
                parts.append(Literal(literal, True))
                literal = ""
                self.position += 1
                parts += self.quoted_parts('"')
                self.position += 1
            elif char in "$`":
                parts.append(Literal(literal, True))
                literal = ""
                parts.append(self._dollar(True) if char == "$" else self._backquote(True))
            else:
                literal += char
                self.position += 1
        parts.append(Literal(literal, True))
        return tuple(part for part in parts if not isinstance(part, Literal) or part.text)

    def _dollar(self, quoted: bool) -> Part:
        text = self.text
        self.position += 1
        if text.startswith("((", self.position):
            return self._arithmetic(quoted)
        following = text[self.position : self.position + 1]
        if following == "(":
            self.position += 1
            return Substitution(self.commands_in_parentheses(), quoted)
        if following == "{":
            return self._braces(quoted)
        name = NAME.match(text, self.position)
        if name is not None:
            self.position = name.end()
            return Parameter(name.group(), "", None, quoted)
        if following and following in SPECIAL:
            self.position += 1
            return Parameter(following, "", None, quoted)
        return Literal("$", True)

    def _arithmetic(self, quoted: bool) -> Part:
        depth, start = 0, self.position + 2
        place = start
        while True:
            if place >= len(self.text):
                raise Incomplete("an expression is not closed")
            char = self.text[place]
            if char == "(":
                depth += 1
            elif char == ")":
                if depth == 0:
                    break
                depth -= 1
            place += 1
        if not self.text.startswith("))", place):
            raise SyntaxProblem("an expression is not closed by ))")
        word = self.nested(self.text[start:place]).quoted_parts("")
        self.position = place + 2
        return Arithmetic(word, quoted)

    def _braces(self, quoted: bool) -> Part:
        text = self.text
        self.position += 1
        length = text.startswith("#", self.position) and text[self.position + 1 : self.position + 2] not in ("}", "")
        if length:
            self.position += 1
        name = NAME.match(text, self.position)
        if name is not None:
            found = name.group()
        else:
            end = self.position
            while end < len(text) and text[end].isdigit():
                end += 1
            found = text[self.position : end] or text[self.position : self.position + 1]
        self.position += len(found)
        operator = next((s for s in PARAMETER_OPERATORS if text.startswith(s, self.position)), "")
        self.position += len(operator)
        word: Word | None = None
        if operator:
            # Inside double quotes a default is quoted too; a pattern to cut off never is.
            in_quotes = quoted and operator not in ("%", "%%", "#", "##")
            word = self.quoted_parts("}") if in_quotes else tuple(self._parts("}"))
        if not text.startswith("}", self.position):
            if self.position >= len(text):
                raise Incomplete("a brace is not closed")
            raise SyntaxProblem("bad substitution")
        self.position += 1
        return Parameter(found, "length" if length else operator, word, quoted)

    def _backquote(self, quoted: bool) -> Part:
        text, place, inner = self.text, self.position + 1, ""
        while place < len(text) and text[place] != "`":
            if text[place] == "\\" and text[place + 1 : place + 2] in ("`", "\\", "$"):
                place += 1
            inner += text[place]
            place += 1
        if place >= len(text):
            raise Incomplete("a backquote is not closed")
        self.position = place + 1
        return Substitution(self.nested(inner).commands_to_end(), quoted)
