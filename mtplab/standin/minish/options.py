"""Command-line options in the style of getopt."""

from __future__ import annotations

import errno


class Options:
    """The options given (with their values) and the rest of the words."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.rest: list[str] = []


def read_options(words: list[str], known: str, stop_early: bool = False) -> Options:
    """Read `-a -bc -d value`; in `known` a colon follows what takes a value. OSError names an unknown one."""
    found, words = Options(), list(words)
    while words:
        word = words.pop(0)
        if word == "--":
            found.rest += words
            break
        if not word.startswith("-") or word == "-":
            found.rest.append(word)
            if stop_early:
                found.rest += words
                break
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter not in known or letter == ":":
                raise OSError(errno.EINVAL, f"Unknown option '{letter}'")
            if f"{letter}:" in known:
                found.given[letter] = letters or (words.pop(0) if words else "")
                break
            found.given[letter] = ""
    return found
