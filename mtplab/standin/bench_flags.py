"""benchmark_model's command line: its flags as it understands and logs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtplab.standin.settings import HERE, read_toml


class FlagError(Exception):
    """A value a flag cannot take; `usage` is the list of flags that the tool then prints."""

    usage = ""


@dataclass(frozen=True)
class Flags:
    """Every flag's value, which of them were given, and what nobody knows."""

    values: dict[str, Any]
    given: frozenset[str]
    unknown: tuple[str, ...]
    _table: tuple[dict[str, Any], ...]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def log_lines(self) -> list[str]:
        """`Label: [value]` of every flag that is logged."""
        verbose = self.values["verbose"]
        lines = [f"Log parameter values verbosely: [{int(verbose)}]"]
        for row in self._table:
            if row["label"] and (verbose or row.get("always") or row["name"] in self.given):
                lines.append(f"{row['label']}: [{show(self.values[row['name']])}]")
        return lines


def show(value: Any) -> str:
    """A value as a C++ stream prints it."""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse(arguments: list[str], file: str = "benchmark_flags.toml") -> Flags:
    """Read `--name=value` words by the table in `file`; FlagError for a value of the wrong kind."""
    table = tuple(read_toml(HERE / file)["flags"])
    kinds = {row["name"]: row["type"] for row in table}
    values = {row["name"]: row["default"] for row in table}
    given, unknown = set(), []
    for word in arguments:
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in kinds:
            unknown.append(word)
            continue
        try:
            values[name] = _convert(kinds[name], name, text if equals else "true", word)
        except FlagError as error:
            error.usage = _usage(table)
            raise
        given.add(name)
    return Flags(values, frozenset(given), tuple(unknown), table)


def _usage(rows: tuple[dict[str, Any], ...]) -> str:
    """The list of flags in the form of tflite/tools/command_line_flags.cc."""
    table = {row["name"]: row for row in rows}
    names = {name: f"--{name}={show(row['default'])}" for name, row in table.items()}
    width = max(map(len, names.values()))
    kinds = {"int": "int32", "str": "string"}
    lines = []
    for name, row in table.items():
        kind = kinds.get(row["type"], row["type"])
        lines.append(f"\t{names[name]:<{width}}\t{kind:<6}\toptional\t{row['label'].rstrip('.').lower()}")
    return "\n".join(["usage: benchmark_model <flags>", "Flags:", *lines])


def _convert(kind: str, name: str, text: str, word: str) -> Any:
    failed = FlagError(f"Failed to parse flag '{name}' against argv '{word}'")
    if kind == "bool":
        if text not in ("true", "1", "false", "0"):
            raise failed
        return text in ("true", "1")
    try:
        return {"int": int, "float": float, "str": str}[kind](text)
    except ValueError:
        raise failed from None
