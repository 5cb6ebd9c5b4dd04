"""The parser: recursive descent over the characters of a shell program."""

from __future__ import annotations

from mtplab.standin.minish.syntax import (
    BLANK,
    META,
    NAME,
    OPERATORS,
    REDIRECTIONS,
    RESERVED,
    AndOr,
    Case,
    Compound,
    For,
    Function,
    If,
    Incomplete,
    Literal,
    Loop,
    Node,
    Pipeline,
    Redirection,
    Sequence_,
    Simple,
    Subshell,
    SyntaxProblem,
    Word,
    plain,
)  # fmt: skip
from mtplab.standin.minish.words import WordReader


def parse(text: str) -> Sequence_:
    """The tree of a whole program; SyntaxProblem, or Incomplete when it ends too early."""
    return Parser(text).commands_to_end()


class Parser(WordReader):
    """One pass over one text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._here: list[tuple[Redirection, str, bool, bool]] = []

    def nested(self, text: str) -> WordReader:
        """A reader of a part of the text."""
        return Parser(text)

    def commands_to_end(self) -> Sequence_:
        """The whole text as a program."""
        body = self.sequence(frozenset())
        if self.position < len(self.text):
            raise SyntaxProblem(f"unexpected '{self.text[self.position]}'")
        return body

    def commands_in_parentheses(self) -> Sequence_:
        """What stands between `$(` and its `)`."""
        body = self.sequence(frozenset())
        self._expect(")")
        return body

    # --- tokens

    def _operator(self) -> str:
        """The operator at this place, or ""."""
        self._skip_blanks()
        return next((sign for sign in OPERATORS if self.text.startswith(sign, self.position)), "")

    def _accept(self, sign: str) -> bool:
        if self._operator() != sign:
            return False
        self.position += len(sign)
        if sign == "\n":
            self._read_here_documents()
        return True

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            self._unexpected()

    def _unexpected(self) -> None:
        self._skip_blanks()
        if self.position >= len(self.text):
            raise Incomplete("unexpected end of text")
        raise SyntaxProblem(f"unexpected '{self.text[self.position : self.position + 12].split(chr(10))[0]}'")

    def _skip_newlines(self) -> None:
        while self._accept("\n"):
            continue

    def _keyword(self) -> str:
        """The reserved word at this place, or ""."""
        self._skip_blanks()
        end = self.position
        while end < len(self.text) and self.text[end] not in META:
            end += 1
        word = self.text[self.position : end]
        return word if word in RESERVED else ""

    def _accept_keyword(self, word: str) -> bool:
        if self._keyword() != word:
            return False
        self.position += len(word)
        return True

    def _expect_keyword(self, word: str) -> None:
        self._skip_newlines()
        if not self._accept_keyword(word):
            self._unexpected()

    # --- commands

    def sequence(self, stop: frozenset[str]) -> Sequence_:
        """Commands up to a reserved word of `stop`, a `)`, a `;;` or the end."""
        found = Sequence_()
        while True:
            self._skip_newlines()
            self._skip_blanks()
            at_end = self.position >= len(self.text) or self._operator() in (")", ";;")
            if at_end or self._keyword() in stop:
                if self._here:
                    self._read_here_documents()
                return found
            node = self._and_or()
            background = self._accept("&")
            found.items.append((node, background))
            if background or self._accept(";"):
                continue
            self._skip_blanks()
            at_end = self.position >= len(self.text) or self._operator() in ("\n", ")", ";;")
            if not at_end and self._keyword() not in stop:
                self._unexpected()

    def _and_or(self) -> Node:
        items: list[tuple[str, Node]] = [("", self._pipeline())]
        while (sign := self._operator()) in ("&&", "||"):
            self.position += 2
            self._skip_newlines()
            items.append((sign, self._pipeline()))
        return items[0][1] if len(items) == 1 else AndOr(items)

    def _pipeline(self) -> Node:
        negated = self._accept_keyword("!")
        commands = [self._command()]
        while self._operator() == "|":
            self.position += 1
            self._skip_newlines()
            commands.append(self._command())
        return commands[0] if len(commands) == 1 and not negated else Pipeline(commands, negated)

    def _command(self) -> Node:
        word = self._keyword()
        readers = {
            "if": self._if, "while": self._loop, "until": self._loop, "for": self._for, "case": self._case,
            "{": self._group,
        }  # fmt: skip
        if word in readers:
            return self._with_redirections(readers[word]())
        if word:
            self._unexpected()
        if self._accept("("):
            body = self.sequence(frozenset())
            self._expect(")")
            return self._with_redirections(Subshell(body))
        return self._simple()

    def _with_redirections(self, body: Node) -> Node:
        found: list[Redirection] = []
        while (redirection := self._redirection()) is not None:
            found.append(redirection)
        return Compound(body, found) if found else body

    def _group(self) -> Node:
        self._accept_keyword("{")
        body = self.sequence(frozenset(("}",)))
        self._expect_keyword("}")
        return body

    def _if(self) -> Node:
        branches, word = [], "if"
        while self._accept_keyword(word):
            condition = self.sequence(frozenset(("then",)))
            self._expect_keyword("then")
            branches.append((condition, self.sequence(frozenset(("elif", "else", "fi")))))
            word = "elif"
        otherwise = self.sequence(frozenset(("fi",))) if self._accept_keyword("else") else None
        self._expect_keyword("fi")
        return If(branches, otherwise)

    def _loop(self) -> Node:
        until = self._keyword() == "until"
        self.position += 5
        condition = self.sequence(frozenset(("do",)))
        return Loop(condition, self._do(), until)

    def _do(self) -> Sequence_:
        self._expect_keyword("do")
        body = self.sequence(frozenset(("done",)))
        self._expect_keyword("done")
        return body

    def _for(self) -> Node:
        self._accept_keyword("for")
        self._skip_blanks()
        name = NAME.match(self.text, self.position)
        if name is None:
            raise SyntaxProblem("for: a name is missing")
        self.position = name.end()
        self._skip_newlines()
        words: list[Word] | None = None
        if self._accept_keyword("in"):
            words = []
            while (word := self.word()) is not None:
                words.append(word)
        self._accept(";")
        return For(name.group(), words, self._do())

    def _case(self) -> Node:
        self._accept_keyword("case")
        word = self.word()
        if word is None:
            self._unexpected()
        self._expect_keyword("in")
        items: list[tuple[list[Word], Sequence_]] = []
        self._skip_newlines()
        while not self._accept_keyword("esac"):
            self._accept("(")
            patterns = [self._needed_word()]
            while self._accept("|"):
                patterns.append(self._needed_word())
            self._expect(")")
            items.append((patterns, self.sequence(frozenset(("esac",)))))
            self._accept(";;")
            self._skip_newlines()
        assert word is not None
        return Case(word, items)

    def _needed_word(self) -> Word:
        word = self.word()
        if word is None:
            self._unexpected()
        assert word is not None
        return word

    def _simple(self) -> Node:
        found = Simple()
        while True:
            redirection = self._redirection()
            if redirection is not None:
                found.redirections.append(redirection)
                continue
            word = self.word()
            if word is None:
                break
            assignment = _as_assignment(word) if not found.words else None
            if assignment is not None:
                found.assignments.append(assignment)
                continue
            text = plain(word)
            if text and not found.words and not found.assignments and self._is_function(text):
                return self._function(text)
            found.words.append(word)
        if not (found.words or found.assignments or found.redirections):
            self._unexpected()
        return found

    def _is_function(self, text: str) -> bool:
        if not NAME.fullmatch(text) or self._operator() != "(":
            return False
        after = self.position + 1
        while after < len(self.text) and self.text[after] in BLANK:
            after += 1
        return self.text[after : after + 1] == ")"

    def _function(self, name: str) -> Node:
        self._expect("(")
        self._expect(")")
        self._skip_newlines()
        return Function(name, self._command())

    # --- redirections

    def _redirection(self) -> Redirection | None:
        self._skip_blanks()
        end = self.position
        while end < len(self.text) and self.text[end].isdigit():
            end += 1
        digits = self.text[self.position : end]
        sign = next((s for s in OPERATORS if self.text.startswith(s, end)), "")
        if sign not in REDIRECTIONS:
            return None
        self.position = end + len(sign)
        word = self._needed_word()
        handle = int(digits) if digits else (0 if sign.startswith("<") else 1)
        found = Redirection(handle, sign, word)
        if sign.startswith("<<"):
            quoted = any(isinstance(part, Literal) and part.quoted for part in word)
            delimiter = "".join(part.text for part in word if isinstance(part, Literal))
            self._here.append((found, delimiter, quoted, sign == "<<-"))
        return found

    def _read_here_documents(self) -> None:
        waiting, self._here = self._here, []
        for redirection, delimiter, quoted, strip in waiting:
            lines = []
            while True:
                if self.position >= len(self.text):
                    raise Incomplete(f"here-document without {delimiter}")
                end = self.text.find("\n", self.position)
                end = len(self.text) if end < 0 else end
                line = self.text[self.position : end]
                self.position = min(end + 1, len(self.text))
                line = line.lstrip("\t") if strip else line
                if line == delimiter:
                    break
                lines.append(line + "\n")
            body = "".join(lines)
            redirection.word = (Literal(body, True),) if quoted else Parser(body).quoted_parts("")


def _as_assignment(word: Word) -> tuple[str, Word] | None:
    first = word[0]
    if not isinstance(first, Literal) or first.quoted:
        return None
    name = NAME.match(first.text)
    if name is None or first.text[name.end() : name.end() + 1] != "=":
        return None
    rest = first.text[name.end() + 1 :]
    return name.group(), (*((Literal(rest, False),) if rest else ()), *word[1:])
