"""How one line that a rule knows changes the facts of a run, by the rule's kind."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable

from .lines import Line
from .reading import ACCELERATORS, BACKENDS, Evidence, Figure, Finding
from .rules import Rule
from .run import (
    ENFORCING_FLAG,
    MAX_FINDINGS,
    MAX_FLAGS,
    MAX_NODES,
    MAX_SIGNS_PER_RULE,
    MAX_TURNS,
    TEXT_LIMIT,
    TRUE,
    Event,
    Nodes,
    OpSum,
    Run,
    Sign,
    Turn,
)

# ending of a group's name -> (ending of the figure's name, scale as a power of ten, or a factor)
_UNITS: dict[str, tuple[str, int, float]] = {
    "us": ("us", 0, 1.0),
    "ms": ("us", 3, 1.0),
    "s": ("us", 6, 1.0),
    "mb": ("bytes", 0, 1048576.0),
    "mega": ("bytes", 6, 1.0),
    "n": ("", 0, 1.0),
}
_FLAG = re.compile(r"--([A-Za-z_][\w-]{0,60})(?:[= ](?!-)(\S{1,300}))?", re.ASCII)
# What LiteRT-LM and its runtime never print without a prefix: beside lines with one, those are the model's words.
_NEVER_BARE = frozenset(
    {
        "nodes",
        "ops",
        "opsum",
        "created",
        "outcome",
        "request",
        "param",
        "ignored",
        "accelerators",
        "accelerated",
        "flags",
    }
)
_TIMES = frozenset({"first_us", "warmup_avg_us", "inference_avg_us"})
_ERRORS = frozenset({"ERROR", "FATAL"})
_ERROR_TAGS = frozenset({"tflite", "litert", "native"})  # a phone's log holds the errors of everybody
_SWITCH = re.compile(r"(?:use|enable|with)?(gpu|nnapi|npu)(?:delegate)?")
_STAT = re.compile(r"\b(count|first|curr|min|max|avg|std|p5|median|p95)=([\d.]+(?:e[+-]?\d{1,3})?)", re.ASCII)
_JSON = re.compile(r'"(\w{1,40})": ?([\d.]{1,30}(?:e[+-]?\d{1,3})?)', re.ASCII)
_NAME = re.compile(r"CPU|GPU|NPU")
_DURATION = re.compile(r"([\d.]{1,30})(h|m(?!s)|s|ms|us|ns)", re.ASCII)
_DURATION_US = {"h": 3.6e9, "m": 6e7, "s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


def take(run: Run, rule: Rule, match: re.Match[str], line: Line, number: int) -> list[Event]:
    """Adds what `rule` saw in the line and returns what is new."""
    if line.printer is None and run.converses and rule.kind in _NEVER_BARE and rule.verdict != "crash":
        return []
    run.printers.add(line.printer)
    if rule.tool:
        run.tools[rule.tool] = max(run.tools.get(rule.tool, 0), rule.tool_weight)
    text = (line.whole if rule.whole else line.text)[:TEXT_LIMIT]
    sign = Sign(rule, _backend(run, rule, match), number, text)
    run.seen.setdefault(rule.id, number)
    if rule.asks or rule.weight:
        wanted = sign.backend if rule.asks in (None, "named") else rule.asks
        for backend in ACCELERATORS:
            if backend == wanted:
                run.asks.setdefault((rule.weight, backend), number)
    if rule.cache:
        run.cold_init = rule.cache == "cold"
    if rule.kind != "separator":
        run.rule_between = True
    handler = _HANDLERS.get(rule.kind)
    events: list[Event] = list(handler(run, sign, match)) if handler else []
    if rule.verdict or rule.why or rule.kind == "created":
        events += _add_sign(run, sign)
    if rule.says:
        events += _add_finding(run, rule.says, number, rule.id)
    return events


def take_error(run: Run, rule: Rule, line: Line, number: int) -> None:
    """Keeps the first line that the tool or the runtime printed as an ERROR and that no other rule knows."""
    if not run.errors and line.severity in _ERRORS and (line.printer == "stream" or line.tag in _ERROR_TAGS):
        run.errors.append(Sign(rule, "any", number, line.text[:TEXT_LIMIT]))


def _backend(run: Run, rule: Rule, match: re.Match[str]) -> str | None:
    if rule.backend != "named":
        return rule.backend
    known = run.backend_named(match["delegate"])
    # A node that fails under an operation's own name is nobody's delegate and everybody's failure.
    return known or ("any" if rule.id == "node-failed" else None)


def _add_sign(run: Run, sign: Sign) -> Iterable[Event]:
    if sign.backend is None and len(run.strangers) < MAX_SIGNS_PER_RULE:
        run.strangers.append(sign)
    kept = run.kept[sign.rule.id] = run.kept.get(sign.rule.id, 0) + 1
    if kept <= MAX_SIGNS_PER_RULE:
        run.signs.append(sign)
        yield Evidence(sign.line, sign.text, sign.rule.id)


def _add_finding(run: Run, text: str, line: int | None, rule: str) -> Iterable[Event]:
    """Keeps a finding once, at the line where it was first seen."""
    if text not in run.findings and len(run.findings) < MAX_FINDINGS:
        run.findings[text] = Finding(line, text, rule)
        yield run.findings[text]


# ---- what was asked for


def _param(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    key = run.rules.file.labels.get(match["label"])
    if key is not None and match["value"]:
        first = key not in run.params
        run.params[key] = match["value"][:TEXT_LIMIT]
        if key == ENFORCING_FLAG:
            run.enforcing_sign = sign
        elif key == "external_delegate_options" and first:  # a hostile log may repeat it for ever
            _name_again(run)
    return ()


def _name_again(run: Run) -> None:
    """Says anew whom the lines are about that came before the external delegate's options: stderr may come first."""

    def named(sign: Sign) -> Sign:
        match = re.search(sign.rule.pattern, sign.text, re.ASCII) if sign.rule.backend == "named" else None
        return sign._replace(backend=_backend(run, sign.rule, match)) if match else sign

    run.signs[:] = map(named, run.signs)
    run.nodes[:] = [dataclasses.replace(n, sign=named(n.sign)) for n in run.nodes]


def _flags(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    for name, value in _FLAG.findall(match.string)[: MAX_FLAGS - len(run.flags)]:
        name = name.replace("-", "_")
        run.flags[run.rules.file.flags.get(name, name)] = value.strip("\"'") or "true"
        if name == ENFORCING_FLAG:
            run.enforcing_sign = sign
    return ()


def _ignored(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    for name, value in _FLAG.findall(match.string)[: MAX_FLAGS - len(run.ignored)]:
        if not value or value in TRUE:
            run.ignored[_meant(name, run.rules.file.flags)] = sign
    return _add_finding(run, f"the tool ignored: {match.string[match.end() :].strip()}", sign.line, sign.rule.id)


def _meant(name: str, known: dict[str, str]) -> str:
    """The switch that an ignored flag was meant to be: usegpu, use-gpu and gpu are use_gpu."""
    name = name.replace("-", "_")
    match = _SWITCH.fullmatch(name.replace("_", "").lower())
    return known.get(name, f"use_{match[1]}" if match else name)


def _request(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    run.says_backend = match["backend"].lower()
    return ()


def _accelerators(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    run.accelerators_sign = sign
    named = [name.lower() for name in _NAME.findall(match["names"])]
    run.accelerators = {backend for backend in BACKENDS if backend in named}
    return ()


def _list(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    run.accelerators_sign, run.accelerators = sign, set()  # the names come in the next lines: see tables.py
    return ()


# ---- figures


def _figure(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    for group, text in match.groupdict().items():
        if text is not None:
            yield from _keep(run, sign, group, text)


def _keep(run: Run, sign: Sign, group: str, text: str) -> Iterable[Event]:
    """Keeps one number; the ending of the group's name is its unit."""
    name, power, factor = _unit(group)
    value = scaled(text, power, factor)
    if value is not None and (value or name not in _TIMES):  # without a run the tool prints 0
        run.figures[name] = value
        run.figure_signs[name] = sign
        yield Figure(name, value, sign.line)


@functools.cache
def _unit(group: str) -> tuple[str, int, float]:
    """The figure's name with its unit, and its scale as a power of ten and a factor."""
    if group.startswith("llm_"):
        return group, 0, 1.0
    name, unit = group.rsplit("_", 1)
    ending, power, factor = _UNITS[unit]
    return f"{name}_{ending}".rstrip("_"), power, factor


def _json(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    if "json-begin" in run.seen:
        for key, text in _JSON.findall(match.string):
            if group := run.rules.file.json.get(key):
                yield from _keep(run, sign, group, text)


def _stats(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    if sign.text in run.blocks or len(run.blocks) >= MAX_NODES:
        return  # the same line once more: two streams of one log
    values = {key: scaled(text, 0, 1.0) for key, text in _STAT.findall(sign.text)}
    block = {key: value for key, value in values.items() if value is not None}
    run.blocks[sign.text] = block
    kind = "warmup" if len(run.blocks) == 1 else "inference"
    average = block.get("avg", block.get("curr"))
    if average is not None and block["count"] > 0:
        yield Figure(f"{kind}_avg_us", average, sign.line)
        yield Figure(f"{kind}_runs", block["count"], sign.line)


def _llm(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    """A BenchmarkInfo begins: of several in one log the last one counts, which knows all turns so far."""
    if run.converses:  # a process that crashed prints no report any more: a reply spoke of one
        run.signs[:] = [s for s in run.signs if s.rule.verdict != "crash"]
    run.turns.clear()
    for name in [name for name in run.figures if name.startswith("llm_")]:
        del run.figures[name]
    run.closed, run.info_tail = False, False
    return ()


def _turn(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    took = duration_us(match["took"])
    if "lm-info" not in run.seen or took is None or len(run.turns) >= MAX_TURNS:
        return
    phase = (match.groupdict().get("phase") or "tokenize").lower()
    run.turns[phase, int(match["turn"])] = turn = Turn(int(match["tokens"]), took)
    if phase != "tokenize":
        yield Figure(f"llm_{phase}_tokens", turn.tokens, sign.line)


# ---- who ran it


def _nodes(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    groups = match.groupdict()
    found = {k: int(v) for k, v in groups.items() if k not in ("delegate", "name") and v is not None}
    if sign.backend is None and found["delegated"] and len(run.strangers) < MAX_SIGNS_PER_RULE:
        run.strangers.append(sign)
    if len(run.nodes) < MAX_NODES and sign.backend is not None:
        entry = (found["delegated"], found.get("total"), found.get("partitions"), found.get("subgraph"))
        run.nodes.append(Nodes(sign, *entry, groups.get("name")))
        yield Evidence(sign.line, sign.text, sign.rule.id)


def _opsum(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    if len(run.opsums) < MAX_NODES:
        rest = int(match["rest"]) if match["rest"] else None
        run.opsums.append(OpSum(sign, int(match["delegated"]), rest, len(run.nodes)))
        yield Evidence(sign.line, sign.text, sign.rule.id)


def _accelerated(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    run.fully, run.fully_sign = match["fully"].lower() == "true", sign
    yield Evidence(sign.line, sign.text, sign.rule.id)


def _note(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    if "signature" in match.groupdict():
        run.signature = match["signature"][:TEXT_LIMIT]
    return ()


# ---- the frame


def _opening(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    run.opened = True
    return _note(run, sign, match)


def _closing(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    run.closed = run.closed or run.counts(sign)
    return _figure(run, sign, match) if match.groupdict() else ()


def _reopening(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    run.closed = False
    run.info_tail = sign.rule.id == "lm-tail"
    return ()


def _wrapper(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    run.wrapped = True
    return ()


def _exit(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    if run.exit_code != int(match["code"]):
        run.exit_sign, run.exit_code = sign, int(match["code"])
        yield Evidence(sign.line, sign.text, sign.rule.id)


def _separator(run: Run, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
    if run.rule_between:
        run.rules_first = run.rules_first or run.rules_in_row
        run.rules_in_row = 0
    run.rule_between = False
    run.rules_in_row += 1
    # A BenchmarkInfo ends with its rule printed twice (twice as often as before, in a doubled log), or with the one
    # below its last part.
    doubled = bool(run.rules_first) and run.rules_in_row >= 2 * run.rules_first
    if "lm-info" in run.seen and (doubled or run.info_tail):
        run.closed = True
    return ()


def scaled(text: str, power: int, factor: float) -> float | None:
    """The number times 10**power times factor, without rounding twice; None when it is none."""
    try:
        value = float(text) * 10**power if "e" in text else float(f"{text}e{power}")
    except ValueError:
        return None
    return value * factor if math.isfinite(value * factor) else None


def duration_us(text: str) -> float | None:
    """An absl duration such as 92.4ms or 1m2.5s in µs; None when it is none."""
    parts = _DURATION.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        return None
    values = [scaled(value, 0, _DURATION_US[unit]) for value, unit in parts]
    return None if None in values else math.fsum(v for v in values if v is not None)


_HANDLERS: dict[str, Callable[[Run, Sign, re.Match[str]], Iterable[Event]]] = {
    "param": _param,
    "flags": _flags,
    "ignored": _ignored,
    "request": _request,
    "accelerators": _accelerators,
    "list": _list,
    "figure": _figure,
    "json": _json,
    "stats": _stats,
    "llm": _llm,
    "turn": _turn,
    "nodes": _nodes,
    "opsum": _opsum,
    "accelerated": _accelerated,
    "note": _note,
    "opening": _opening,
    "closing": _closing,
    "reopening": _reopening,
    "wrapper": _wrapper,
    "exit": _exit,
    "separator": _separator,
}
