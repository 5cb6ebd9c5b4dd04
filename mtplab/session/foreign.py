"""Foreign JSON made harmless once, where it is read: clean text, bounded numbers, bounded depth."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from mtplab.session.text import MAX_TEXT_CHARS, clean_text

MAX_DEPTH = 32
NUMBER_LIMIT = 10**18  # nothing that a bench measures comes near it, and all arithmetic on it stays finite
# Whatever is no plain ASCII, is escaped, or is a number of 19 digits or with a large exponent.
_SUSPECT = re.compile(rb"[^\x20-\x5b\x5d-\x7e]|[:,\[ ]-?(?:\d{19}|\d[\d.]*[eE]\+?\d\d)")


class Unfit(ValueError):
    """JSON that cannot be taken; the text is a clause that says why."""


def decode_foreign(data: bytes) -> Any:
    """The JSON value with all its strings and keys cleaned; raises `Unfit` for anything else."""
    try:
        return _tidy(msgspec.json.decode(data), 0)
    except Unfit:
        raise
    except RecursionError:
        raise Unfit(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except (msgspec.MsgspecError, ValueError):
        raise Unfit("it is torn or no JSON") from None


def convert_foreign(value: Any, type_: Any) -> Any:
    """A tidy value as a struct; raises `Unfit` with the place that does not fit."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.MsgspecError as error:
        raise Unfit(clean_text(str(error), 200)) from None


def is_plain(data: bytes) -> bool:
    """Whether `data` can hold nothing that cleaning would change: then it may be decoded as it is, which is fast."""
    return (
        len(data) <= MAX_TEXT_CHARS and data.count(b"[") + data.count(b"{") <= MAX_DEPTH and not _SUSPECT.search(data)
    )


def _tidy(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise Unfit(f"it is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_tidy(item, depth + 1) for item in value]
    if isinstance(value, dict):
        tidy = {clean_text(name): _tidy(item, depth + 1) for name, item in value.items()}
        if len(tidy) < len(value):
            raise Unfit("two of its names differ in invisible characters only")
        return tidy
    if isinstance(value, (int, float)) and not -NUMBER_LIMIT <= value <= NUMBER_LIMIT:
        raise Unfit("it holds a number that nothing here can reach")
    return value
