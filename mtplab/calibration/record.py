"""The calibration set as a file: token ids, where they came from, what was left out, and how lengths compare."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from mtplab.calibration.errors import CalibrationError
from mtplab.session.atomic import write_atomic
from mtplab.session.calibrated import SetReport

LEAST, MOST = 200, 1000
"""Prompts of a set (R9): fewer say too little about ranges, more say nothing new."""
VERSION = 1


class CalibrationPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt as the model reads it; its text is not kept, only the hash of it."""

    id: str
    prompt_class: str = msgspec.field(name="class")
    tokens: list[int]
    text_sha256: str


class CalibrationSet(SetReport, frozen=True, kw_only=True):
    """A finished set with its prompts."""

    prompts: list[CalibrationPrompt]

    def report(self) -> SetReport:
        """Everything but the prompts."""
        return SetReport(**{name: getattr(self, name) for name in SetReport.__struct_fields__})


def set_sha256(tokenizer_sha256: str, prompts: list[CalibrationPrompt]) -> str:
    """sha256 over the tokenizer's hash and every prompt's tokens."""
    return hashlib.sha256(msgspec.json.encode([tokenizer_sha256, [one.tokens for one in prompts]])).hexdigest()


def save_set(path: Path, found: CalibrationSet) -> None:
    """Write the set whole or not at all, readable by its owner only: token ids can be turned into text again."""
    write_atomic(path, msgspec.json.encode(found) + b"\n", mode=0o600)


def load_set(path: Path) -> CalibrationSet:
    """Read a set; raises `CalibrationError` where it is torn, edited or of another version."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=CalibrationSet)
    except OSError as error:
        raise CalibrationError(
            f"The calibration set {path} cannot be read ({error.strerror}); build it with `mtplab calibrate`."
        ) from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CalibrationError(
            f"{path.name} is no calibration set ({error}); build one with `mtplab calibrate`."
        ) from error
    if found.version != VERSION:
        raise CalibrationError(
            f"The calibration set {path.name} is of version {found.version} and this program reads {VERSION}; "
            "build it again with `mtplab calibrate`."
        )
    if set_sha256(found.tokenizer_sha256, found.prompts) != found.sha256:
        raise CalibrationError(
            f"The calibration set {path.name} was changed after it was built (its hash is another one); build it "
            "again with `mtplab calibrate`."
        )
    return found


def require_tokenizer(found: CalibrationSet, model: str, tokenizer_sha256: str, vocab: int) -> None:
    """Refuse a set whose tokens are another tokenizer's: the same numbers would be other words."""
    if found.tokenizer_sha256 != tokenizer_sha256:
        raise CalibrationError(
            f"The calibration set was made with the tokenizer of {found.model} ({found.tokenizer_sha256[:12]}) and "
            f"{model} has another one ({tokenizer_sha256[:12]}), so its tokens would be other words; build the set "
            f"again with `mtplab calibrate --model {model}`."
        )
    highest = max((max(one.tokens, default=0) for one in found.prompts), default=0)
    if highest >= vocab:
        raise CalibrationError(
            f"The calibration set holds the token {highest} and {model} knows {vocab} tokens only; build it again "
            f"with `mtplab calibrate --model {model}`."
        )
