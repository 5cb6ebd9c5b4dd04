"""Quantisation recipes as values: shipped, out of a user's TOML file, or built in code; light, for any process."""

from __future__ import annotations

import hashlib
import re
import sys
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec
import platformdirs

from mtplab.litert.audit import Role
from mtplab.litert.errors import LiteRtError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_RECIPE = "mixed"

Compute = Literal["dynamic", "weight_only", "static", "float"]
Granularity = Literal["tensor", "channel", "block32", "block64", "block128", "block256"]
Algorithm = Literal["min_max", "octav", "mse", "search", "gptq", "hadamard"]

_WHOLE: tuple[Granularity, ...] = ("tensor", "channel")
_BLOCKS: tuple[Granularity, ...] = ("block32", "block64", "block128", "block256")
# What ai-edge-quantizer 0.10 writes AND LiteRT 2.3 runs on a CPU, by (compute, bits); seen by running every
# combination. Blockwise int2 is written but does not compile; blockwise int8 is silently left float.
WORKS: dict[tuple[Compute, int], tuple[Granularity, ...]] = {
    ("dynamic", 2): _WHOLE,
    ("dynamic", 4): (*_WHOLE, *_BLOCKS),
    ("dynamic", 8): _WHOLE,
    ("weight_only", 4): _WHOLE,
    ("weight_only", 8): _WHOLE,
    ("weight_only", 16): ("tensor",),
    ("static", 4): _WHOLE,
    ("static", 8): _WHOLE,
    ("float", 32): ("tensor",),
}
_SCALELESS = (16, 32)  # float16 and float32 have no scales, so neither granularity nor algorithm
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_MOST_BYTES = 256 * 1024
_LONGEST_PATTERN = 300


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a recipe: which weights (`on` a role, or `match` over their names), and how.

    `bits` 16 is float16 storage (weight_only), 32 with compute `float` lifts weights that an earlier rule took.
    `activation_bits` belongs to `static`, which needs calibration statistics; `gptq` needs them too. `offsets` gives
    blocks of int4 a zero point each (`offsets.py`).
    """

    bits: Literal[2, 4, 8, 16, 32]
    compute: Compute
    on: Role | None = None
    match: str | None = None
    granularity: Granularity | None = None
    algorithm: Algorithm | None = None
    activation_bits: Literal[8, 16] | None = None
    offsets: bool = False
    if_present: bool = False

    def __post_init__(self) -> None:
        self._check_choice()
        works = WORKS.get((self.compute, self.bits))
        if works is None:
            known = ", ".join(f"{compute} {bits}" for compute, bits in WORKS)
            raise ValueError(f"{self.compute} with {self.bits} bits does not work; what works: {known}")
        if self.bits in _SCALELESS:
            if self.granularity or self.algorithm:
                raise ValueError(f"{self.bits} bits are floats without scales: no `granularity` and no `algorithm`")
        elif self.scales not in works:
            raise ValueError(
                f"{self.compute} with {self.bits} bits works per {', '.join(works)}, not per {self.scales}: "
                "the quantizer would ignore it, or the runtime would refuse the file"
            )
        if self.activation_bits is not None and self.compute != "static":
            raise ValueError('`activation_bits` belongs to compute = "static"')
        if self.offsets and not (self.scales in _BLOCKS and self.bits == 4):
            raise ValueError("`offsets` are for blocks of int4")
        if self.algorithm == "mse" and (self.bits == 2 or self.scales in _BLOCKS):
            raise ValueError("`mse` knows 4 and 8 bits per tensor or channel only; take octav")

    def _check_choice(self) -> None:
        if (self.on is None) == (self.match is None):
            raise ValueError("a rule picks weights by either `on` or `match`")
        if self.match is None:
            return
        if len(self.match) > _LONGEST_PATTERN:
            raise ValueError(f"`match` is longer than {_LONGEST_PATTERN} characters")
        try:
            re.compile(self.match)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"`match` is no regular expression: {error}") from error

    @property
    def scales(self) -> Granularity:
        """What one scale is for: a channel unless the rule says otherwise."""
        return self.granularity or ("tensor" if self.bits in _SCALELESS else "channel")

    @property
    def block(self) -> int:
        """Weights of one block; 0 where scales are for channels or tensors."""
        return int(self.scales[5:]) if self.scales in _BLOCKS else 0

    @property
    def needs_calibration(self) -> bool:
        return self.compute == "static" or self.algorithm == "gptq"

    def __str__(self) -> str:
        return f"on = {self.on}" if self.on else f"match = {self.match!r}"


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to quantise and what must stay float. `head` names the recipe that a draft head gets beside it."""

    name: str
    title: str
    rules: tuple[Rule, ...]
    keep: tuple[Role, ...] = ()
    head: str | None = None

    @property
    def sha256(self) -> str:
        """Of everything that decides the file, so not of name and title."""
        decides = {"rules": self.rules, "keep": self.keep}
        return hashlib.sha256(msgspec.json.encode(decides, order="sorted")).hexdigest()

    @property
    def label(self) -> str:
        """The name; with its hash unless it is the shipped recipe of that name, whose content a version fixes."""
        shipped = recipes().get(self.name)
        return self.name if shipped and shipped.sha256 == self.sha256 else f"{self.name}@{self.sha256[:8]}"

    @property
    def needs_calibration(self) -> bool:
        return any(rule.needs_calibration for rule in self.rules)


def recipes() -> dict[str, Recipe]:
    """All shipped recipes by name."""
    return _read(resources.files("mtplab.litert").joinpath("recipes.toml").read_bytes(), "recipes.toml")


def user_folder() -> Path:
    """Where a user's own recipes lie: every *.toml in it."""
    return platformdirs.user_config_path("mtplab") / "recipes"


def user_recipes(folder: Path | None = None) -> dict[str, Recipe]:
    """The user's own recipes by name. A name that is shipped or stands twice is refused: it would mean two things."""
    found: dict[str, Recipe] = {}
    shipped = recipes()
    folder = folder or user_folder()
    for path in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
        for name, recipe in read_recipes(path).items():
            if name in shipped or name in found:
                raise LiteRtError(
                    f"The recipe {name!r} in {path} has the name of another one, so figures of two recipes would "
                    "look the same; rename it."
                )
            found[name] = recipe
    return found


def recipe_named(name: str) -> Recipe:
    """A shipped or a user's recipe by name, or out of a file: `FILE.toml`, `FILE.toml:NAME` where it holds several.

    Raises `LiteRtError` with one sentence.
    """
    shipped = recipes()
    if name in shipped:
        return shipped[name]
    file, _, inside = name.partition(".toml")
    if _ and (not inside or inside.startswith(":")):
        return _from_file(Path(file + ".toml"), inside[1:])
    own = user_recipes()
    if name not in own:
        raise LiteRtError(
            f"There is no recipe {name!r}; choose one of {', '.join([*shipped, *own])}, or give a FILE.toml."
        )
    return own[name]


def head_recipe_for(recipe: Recipe, asked: str | None = None) -> Recipe:
    """The recipe of a draft head: the one that was asked for, else the recipe's own word, else the same."""
    wanted = asked or recipe.head
    return recipe_named(wanted) if wanted else recipe


def read_recipes(path: Path) -> dict[str, Recipe]:
    """The recipes of one file, by name. Raises `LiteRtError` with one sentence for whatever is wrong with it."""
    try:
        if not path.is_file():
            raise LiteRtError(f"There is no recipe file {path}; name a TOML file of the form of recipes.toml.")
        if path.stat().st_size > _MOST_BYTES:
            raise LiteRtError(f"{path} has more than {_MOST_BYTES // 1024} KiB, which no recipe has; check the path.")
        return _read(path.read_bytes(), str(path))
    except OSError as error:
        raise LiteRtError(f"The recipe file {path} cannot be read ({error.strerror}); check its rights.") from error


def _from_file(path: Path, name: str) -> Recipe:
    found = read_recipes(path)
    if not name and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        what = f"no recipe {name!r}" if name else "several recipes" if found else "no recipe"
        raise LiteRtError(f"{path} holds {what} ({', '.join(found) or 'it is empty'}); say which: {path.name}:NAME.")
    return found[name]


def _read(data: bytes, where: str) -> dict[str, Recipe]:
    try:
        tables = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # a decode error of either kind is a ValueError
        raise LiteRtError(f"{where} is no TOML file ({error}); correct it.") from error
    return {name: _recipe(name, table, where) for name, table in tables.items()}


def _recipe(name: str, table: Any, where: str) -> Recipe:
    if not _NAME.fullmatch(name):
        raise LiteRtError(f"A recipe in {where} has a name that is no plain word ({name[:60]!r}); rename it.")
    if not isinstance(table, dict) or "name" in table:
        raise LiteRtError(
            f"{name!r} in {where} is no recipe: a recipe is a table [NAME] with title and rules, its name its own."
        )
    try:
        return msgspec.convert({**table, "name": name}, Recipe)
    except (msgspec.ValidationError, RecursionError) as error:
        raise LiteRtError(f"The recipe {name!r} in {where} is not valid ({error}); correct it.") from error
