"""LiteRT-LM's own program on a phone: its streamed text, stamped as it arrives, as records of the token protocol.

One process a prompt. Both the request and the text are stamped where they arrive, so that the way to the host is in
neither difference; half a round trip is taken off every stamp to bring them onto the host's time axis.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from mtplab.benchlog.reader import LogReader
from mtplab.device.binaries import lm_flags_of
from mtplab.device.clock import ClockOffset, measure_clock
from mtplab.device.link import Link, Stream
from mtplab.device.shell import Line
from mtplab.device.tools import LitertLmOptions, litert_lm_command
from mtplab.measure.protocol import ProtocolRun, parse
from mtplab.pipeline.job import StageFailed
from mtplab.session.text import clean_text
from mtplab.tokenrunner.arrivals import STAMPS, Piece, Request, write_prompt
from mtplab.tokenrunner.protocol import ProtocolWriter

PROGRAM = "litert_lm_advanced_main"
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # what a shell ends with
# Characters of one process: far more than its log and any token of the text can have.
_MOST_PER_TOKEN, _MOST_OF_LOG = 1_000, 4_000_000
# The program's large form says in its log when it hands the prompt over; its small one echoes it before the text.
_RUNNING = re.compile(r"Running single-turn conversation")
_ECHO = "input_prompt: {}\n"
# What stands behind the text, sometimes glued to it; the model may write the same word, so the last one counts.
_REPORT = re.compile(r"(?:[IWEF]\d{4} [\d.:]+ +\d+ [\w./]+:\d+\] )?BenchmarkInfo:\n")

Watched = Callable[[Stream], AbstractContextManager[object]]


class ProgramFailed(StageFailed):
    """The program ended with another exit code than 0, or said what no measurement can rest on."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class LmPrompt(msgspec.Struct, frozen=True):
    """What is asked: the bare text, since the program's conversation puts the template around it."""

    id: str
    klass: str
    text: str


class Heard(msgspec.Struct, frozen=True):
    """One process: when it took the prompt, its text in pieces, when it last spoke, and its log."""

    asked_t: float | None
    pieces: tuple[tuple[str, float], ...]
    ended_t: float
    log: tuple[str, ...]


def hear(said: Sequence[Line], prompt: str) -> Heard:
    """Take apart all that one process said (standard output in pieces): echo, text and report."""
    output = [(line.text, line.t) for line in said if line.stream == "stdout"]
    log = [line.text for line in said if line.stream == "stderr"]
    whole, echo = "".join(text for text, _ in output), _ECHO.format(prompt)
    begin = whole.find(echo)
    asked: float | None
    if begin >= 0:
        asked, start = _arrival(output, begin), begin + len(echo)
    else:
        running = [line.t for line in said if line.stream == "stderr" and _RUNNING.search(line.text)]
        asked, start = (running[0] if running else None), 0
    reports = [found.start() for found in _REPORT.finditer(whole, start)]
    end = reports[-1] if reports else len(whole)
    end = start + len(whole[start:end].rstrip("\n"))
    log += [*whole[:start].splitlines(), *whole[end:].splitlines()]
    return Heard(asked, _between(output, start, end), said[-1].t if said else 0.0, tuple(log))


def _arrival(output: Sequence[tuple[str, float]], at: int) -> float:
    """When the character at that place of the whole output arrived."""
    for text, t in output:
        at -= len(text)
        if at < 0:
            return t
    return output[-1][1]


def _between(output: Sequence[tuple[str, float]], start: int, end: int) -> tuple[tuple[str, float], ...]:
    """The pieces of the characters start…end."""
    found, at = [], 0
    for text, t in output:
        if part := text[max(0, start - at) : max(0, end - at)]:
            found.append((part, t))
        at += len(text)
    return tuple(found)


def run_on_phone(
    link: Link,
    prompts: Sequence[LmPrompt],
    tokenizer: Any,
    options: LitertLmOptions,
    *,
    gamma: int | None,
    simulated: bool,
    log: Path,
    flags: frozenset[str] = frozenset(),
    watched: Watched = nullcontext,
    heard: Callable[[], None] = lambda: None,
) -> ProtocolRun:
    """Every prompt in a process of its own, the first once more before as a warm-up.

    All that arrives is kept in `log` as it comes, a JSON object {t, stream, text} a line, behind one with the prompt.
    With `gamma`, the bundle's draft length, speculation is on. Each process runs inside `watched`, and `heard` is
    called whenever one of them speaks. Raises ProgramFailed where a process fails or does not say when it took its
    prompt, DeviceError where the phone is lost.
    """
    clock = measure_clock(link)
    stream = io.BytesIO()
    writer = ProtocolWriter(stream, PROGRAM)
    writer.write("hello", program=PROGRAM)
    writer.write(
        "env", mtp="off" if gamma is None else "on", gamma=gamma, threads=options.threads, stamps=STAMPS,
        max_tokens=options.max_tokens, backend=options.backend, simulated=simulated,
        clock={"offset_s": clock.offset_s, "uncertainty_s": clock.uncertainty_s, "round_trip_s": clock.round_trip_s},
    )  # fmt: skip
    with log.open("w", encoding="utf-8") as kept:
        for number, prompt in enumerate([*prompts[:1], *prompts]):
            asked = msgspec.structs.replace(options, prompt=prompt.text, mtp=gamma is not None)
            kept.write(json.dumps({"prompt": prompt.id, "warmup": number == 0}) + "\n")

            def keep(line: Line) -> None:
                kept.write(json.dumps({"t": line.t, "stream": line.stream, "text": line.text}) + "\n")
                heard()

            most = _MOST_OF_LOG + _MOST_PER_TOKEN * options.max_tokens
            said, code = _process(link, litert_lm_command(asked, flags), watched, keep, most)
            told = hear(said, prompt.text)
            if code != 0 or told.asked_t is None:
                raise ProgramFailed(_complaint(prompt, code, told, options), code)
            request = Request(
                prompt=prompt.id, klass=prompt.klass, warmup=number == 0, limit=options.max_tokens, gamma=gamma
            )
            _write(writer, tokenizer, request, told, clock)
    writer.close()
    return parse(stream.getvalue())


def known_flags(link: Link, binary: str) -> frozenset[str]:
    """The flags of the program on the phone; StageFailed where there is none that runs, or none that can be used."""
    flags = lm_flags_of(link, binary)
    if not flags:
        raise StageFailed(_ABSENT.format(binary=binary))
    litert_lm_command(LitertLmOptions(bundle="b", prompt="p", max_tokens=1, binary=binary), flags)
    return flags


_ABSENT = (
    f"There is no {PROGRAM} at {{binary}} that tells its flags; push the one of a LiteRT-LM release: "
    f"adb push {PROGRAM} {{binary}} && adb shell chmod +x {{binary}}."
)


def _process(
    link: Link, command: list[str], watched: Watched, keep: Callable[[Line], None], most: int
) -> tuple[list[Line], int]:
    """All that one process said, at most so many characters, and how it ended."""
    said, length = [], 0
    with link.stream(command, whole_lines=False) as stream, watched(stream):
        for line in stream:
            said.append(line)
            keep(line)
            length += len(line.text)
            if length > most:
                stream.cancel()
                raise StageFailed(f"{PROGRAM} wrote more than {most} characters for one prompt, so it was ended.")
        return said, stream.wait(5.0)


def _complaint(prompt: LmPrompt, code: int, heard: Heard, options: LitertLmOptions) -> str:
    last = " / ".join(clean_text(line, 200) for line in heard.log[-2:]) or "it gave no reason"
    if code in (_NOT_EXECUTABLE, _NOT_FOUND) and options.core_mask is None:
        return f"{_ABSENT.format(binary=options.binary)} The phone says: {last}"
    if code != 0:
        return f"{PROGRAM} ended with exit code {code} on prompt {prompt.id}: {last}."
    return (
        f"{PROGRAM} did not say when it took prompt {prompt.id}, so no time to first token can be had; "
        f"take the {PROGRAM} of another release."
    )


def _write(writer: ProtocolWriter, tokenizer: Any, request: Request, heard: Heard, clock: ClockOffset) -> None:
    def stamp(t: float) -> int:
        return round((t - clock.round_trip_s / 2) * 1e9)

    pieces = [Piece(text, stamp(t)) for text, t in heard.pieces]
    last = pieces[-1].t_ns if pieces else stamp(heard.ended_t)
    write_prompt(writer, tokenizer, request, pieces, stamp(heard.asked_t or 0.0), last, _totals(heard.log))


def _totals(log: Sequence[str]) -> dict[str, float]:
    """What the program's report says of this one turn; nothing where it printed none."""
    reader = LogReader()
    for line in log:
        reader.feed(line)
    llm = reader.finish().llm
    if llm is None:
        return {}
    found = {
        "decode_tokens": _whole(llm.decode_tokens),
        "decode_tokens_per_s": llm.decode_tok_s,
        "prefill_tokens": _whole(llm.prefill_tokens),
        "prefill_tokens_per_s": llm.prefill_tok_s,
        "ttft_derived_ms": None if llm.ttft_s is None else llm.ttft_s * 1e3,
    }
    return {name: value for name, value in found.items() if value is not None}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
