"""What a run was given by a name or a file: its model, its draft head, its prompt sets. Needs no torch."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mtplab.model.errors import ModelError
from mtplab.model.files import SMOLLM2, TINY, is_factory, is_folder, model_files, model_folder
from mtplab.model.kinds import KINDS
from mtplab.pipeline.cache import file_sha256


class NamedFile(msgspec.Struct, frozen=True):
    """A file of the user's, with the hash that decides results; where it stands does not."""

    path: str
    sha256: str

    @classmethod
    def of(cls, path: str | Path, what: str) -> NamedFile:
        """Raise `ModelError` where it cannot be read."""
        place = Path(path).resolve()
        try:
            return cls(str(place), file_sha256(place))
        except OSError as error:
            raise ModelError(f"The {what} {place.name} cannot be read ({error.strerror}); check the path.") from error


class HeadFile(msgspec.Struct, frozen=True):
    """A head in a file of its own; `map` names its tensors where it is another checkpoint's (see model/head_map)."""

    file: NamedFile
    map: NamedFile | None = None


Choice = str | HeadFile

_DEFAULTS = {TINY: "token_conditioned", SMOLLM2: "zero_copy"}


def choose(head: str | None, head_map: str | None, model: str) -> Choice:
    """A family or a file out of what a run was given; the model's own default where it was given nothing.

    Raises `ModelError` for what is neither, and where a model has no default.
    """
    if head is None or head in KINDS:
        if head_map is not None:
            raise ModelError("A map belongs to a head's file; give it with --head FILE.")
        return head or default_head(model)
    if not Path(head).is_file():
        raise ModelError(
            f"There is no head {head!r}: give {', '.join(KINDS)}, or the safetensors file of a head "
            "(see `mtplab train-head` and `mtplab import-head`)."
        )
    return HeadFile(NamedFile.of(head, "head"), None if head_map is None else NamedFile.of(head_map, "map"))


def default_head(model: str) -> str:
    """The family of a shipped model's best head, or the only head beside a folder's weights."""
    if model in _DEFAULTS:
        return _DEFAULTS[model]
    own = [name for name in model_files(model) if name.startswith("head_")]
    if len(own) != 1:
        raise ModelError(
            f"The model {model_name(model)} has {len(own) or 'no'} draft heads of its own; name one with --head "
            "(train one with `mtplab train-head`, or map MTP weights with --head FILE --map TOML)."
        )
    return own[0].removeprefix("head_").removesuffix(".safetensors")


def choose_model(spec: str, *, from_command_line: bool) -> str:
    """The model of a run, a folder by its absolute path; `ModelError` for what is none.

    A `module:factory` runs the user's own code, so only a command line may name one: a session or a lab never does.
    """
    if is_factory(spec):
        if not from_command_line:
            raise ModelError(
                f"The model {spec!r} would run a program of its own, which only a command line may ask for; "
                "run `mtplab run --model` with it."
            )
        return spec
    model_folder(spec)
    return str(Path(spec).resolve()) if is_folder(spec) else spec


def prompt_sets(model: str) -> tuple[str, str]:
    """The sets to measure and to judge acceptance with, where none is asked for.

    Tiny goes on with code, all others answer; what is no toy takes tens of milliseconds a token, so a few prompts of
    each class must do (both languages are among them).
    """
    return ("demo", "acceptance") if model == TINY else ("classes:4", "classes:4")


def model_name(model: str) -> str:
    """What a session calls a model: never a path of this computer."""
    return Path(model).name if Path(model).is_absolute() else model


def head_name(choice: Choice) -> str:
    """What a session calls a head."""
    return choice if isinstance(choice, str) else Path(choice.file.path).name
