"""Read the token protocol from a process that may lie, be cut off or be talked over, and say what was damaged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Union

import msgspec

from mtplab.session.foreign import Unfit, decode_foreign
from mtplab.session.text import clean_text

VERSION = 1
LINE_LIMIT_BYTES = 1 << 20
DAMAGE_LIMIT = 100  # damage is counted without end but described only so often
NAME_LIMIT = 200

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Stamps = Literal["own", "arrival"]
ARRIVAL: Stamps = "arrival"  # times at which pieces of streamed text came


class TokenSeen(msgspec.Struct, frozen=True):
    """One output token; `round` is None where no draft round made it."""

    id: int
    round: int | None
    t_ns: int
    margin: float | None


class RoundSeen(msgspec.Struct, frozen=True):
    """One draft–verify round as the process reported it."""

    round: int
    gamma: int
    accepted: int
    emitted: int | None
    ranks: tuple[int | None, ...]
    draft_ns: int | None
    verify_ns: int | None
    handover_ns: int | None = None


class RuntimeTotals(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime's own totals of one prompt, where it keeps any; it computes `ttft_derived_ms`, nobody sees it."""

    decode_tokens: Count | None = None
    decode_tokens_per_s: float | None = None
    prefill_tokens: Count | None = None
    prefill_tokens_per_s: float | None = None
    ttft_derived_ms: float | None = None
    mtp_rounds: Count | None = None
    """All draft rounds, also the last one where a stop token hid how much of it was accepted."""


class PromptRun(msgspec.Struct, frozen=True):
    """One decoded prompt. `problem` says why its records cannot be trusted; then it gives no figure.

    `stamps` says whose clock is read when: the process's own at every token, or at the arrival of streamed text.
    """

    prompt: str
    klass: str
    input_tokens: int | None
    warmup: bool
    begin_ns: int
    tokens: tuple[TokenSeen, ...]
    rounds: tuple[RoundSeen, ...]
    end_ns: int | None
    reason: str | None
    output_sha256: str | None
    problem: str | None
    stamps: Stamps = "own"
    runtime: RuntimeTotals | None = None


class Damage(msgspec.Struct, frozen=True):
    """One thing wrong with the stream; `line` counts from 1."""

    line: int
    what: str


class ProtocolRun(msgspec.Struct, frozen=True):
    """All that one process said. Incomplete runs keep what was whole and say in `reason` what is missing."""

    run: str | None
    hello: dict[str, Any]
    env: dict[str, Any]
    prompts: tuple[PromptRun, ...]
    damage: tuple[Damage, ...]
    damaged: int
    noise_lines: int
    complete: bool
    reason: str | None
    error: str | None

    def measured(self) -> tuple[PromptRun, ...]:
        """The prompts that count: not the warm-up, and with nothing wrong."""
        return tuple(p for p in self.prompts if not p.warmup and p.problem is None)


def output_sha256(tokens: Iterable[int]) -> str:
    """Hash of an output as the protocol defines it: SHA-256 of the token ids in decimal, joined by commas."""
    return hashlib.sha256(",".join(map(str, tokens)).encode()).hexdigest()


class _Line(msgspec.Struct, frozen=True, tag_field="type", kw_only=True):
    v: int
    run: str
    seq: Count
    t_ns: Nanoseconds


class _Hello(_Line, frozen=True, tag="hello", kw_only=True):
    pass


class _Env(_Line, frozen=True, tag="env", kw_only=True):
    pass


class _Begin(_Line, frozen=True, tag="begin", kw_only=True, rename={"klass": "class"}):
    prompt: str
    klass: str = "unclassified"
    input_tokens: Count | None = None
    warmup: bool = False
    stamps: Stamps = "own"


class _Token(_Line, frozen=True, tag="token", kw_only=True):
    id: Count
    round: Count | None = None
    margin: float | None = None


class _Round(_Line, frozen=True, tag="round", kw_only=True):
    round: Count
    gamma: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    accepted: Count
    emitted: Count | None = None
    ranks: list[Count | None] = []
    draft_ns: Nanoseconds | None = None
    verify_ns: Nanoseconds | None = None
    handover_ns: Nanoseconds | None = None


class _End(_Line, frozen=True, tag="end", kw_only=True):
    reason: str
    output_tokens: Count
    output_sha256: str | None = None
    runtime: RuntimeTotals | None = None


class _Error(_Line, frozen=True, tag="error", kw_only=True):
    message: str = ""


class _Done(_Line, frozen=True, tag="done", kw_only=True):
    count: Count
    sha256: str


# msgspec needs the runtime union on Python 3.10 too.
_decoder = msgspec.json.Decoder(Union[_Hello, _Env, _Begin, _Token, _Round, _End, _Error, _Done])  # noqa: UP007


class _Damaged(Exception):
    """A line that cannot be taken, and why."""


def _whole(body: bytes) -> dict[str, Any]:
    try:
        return decode_foreign(body)
    except Unfit as error:
        raise _Damaged(f"a line that cannot be used ({error})") from None


class _Open:
    """A prompt whose end has not been seen yet."""

    def __init__(self, line: _Begin) -> None:
        self.begin = line
        self.tokens: list[TokenSeen] = []
        self.rounds: list[RoundSeen] = []
        self.problem: str | None = None

    def spoil(self, problem: str) -> None:
        self.problem = self.problem or problem

    def close(self, end: _End | None) -> PromptRun:
        if end is None:
            self.spoil("its end was never seen")
        else:
            self._check(end)
        return PromptRun(
            prompt=clean_text(self.begin.prompt, NAME_LIMIT),
            klass=clean_text(self.begin.klass, NAME_LIMIT),
            input_tokens=self.begin.input_tokens,
            warmup=self.begin.warmup,
            begin_ns=self.begin.t_ns,
            tokens=tuple(self.tokens),
            rounds=tuple(self.rounds),
            end_ns=end.t_ns if end else None,
            reason=clean_text(end.reason, NAME_LIMIT) if end else None,
            output_sha256=end.output_sha256 if end else None,
            problem=self.problem,
            stamps=self.begin.stamps,
            runtime=end.runtime if end else None,
        )

    def _check(self, end: _End) -> None:
        if end.output_tokens != len(self.tokens):
            self.spoil(f"{end.output_tokens} output tokens were announced but {len(self.tokens)} were seen")
        if end.output_sha256 is not None and end.output_sha256 != output_sha256(t.id for t in self.tokens):
            self.spoil("the tokens seen do not have the hash that was announced")
        stamps = [self.begin.t_ns, *(t.t_ns for t in self.tokens), end.t_ns]
        if stamps != sorted(stamps):
            self.spoil("its time stamps go backwards")


class ProtocolReader:
    """Takes raw lines as they come; `result` may be asked at any time."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._n = self._protocol_lines = self._noise = self._damaged = 0
        self._next_seq = 0
        self._run: str | None = None
        self._hello: dict[str, Any] = {}
        self._env: dict[str, Any] = {}
        self._prompts: list[PromptRun] = []
        self._open: _Open | None = None
        self._damage: list[Damage] = []
        self._error: str | None = None
        self._done = False
        self._reason: str | None = None

    def feed(self, raw: bytes) -> None:
        """Take one line, with or without its end. Lines that are no JSON object are other programs' noise."""
        self._n += 1
        body = raw.rstrip(b"\r\n")
        if not body.startswith(b"{"):
            self._noise += bool(body.strip())
            return
        try:
            self._take(self._decoded(body), body)
        except _Damaged as damage:
            self._harm(str(damage))
        # A terminal on the way may have turned \n into \r\n: the hash is over what was printed.
        self._hash.update(body + b"\n")
        self._protocol_lines += 1

    def result(self) -> ProtocolRun:
        """What is known so far."""
        prompts = [*self._prompts, *([self._open.close(None)] if self._open else [])]
        reason = self._reason
        if not self._done:
            reason = f"it stopped with an error: {self._error}" if self._error else "its done line was never seen"
        elif reason is None and self._damaged:
            reason = f"{self._damaged} damaged places, the first: {self._damage[0].what}"
        return ProtocolRun(
            run=self._run,
            hello=self._hello,
            env=self._env,
            prompts=tuple(prompts),
            damage=tuple(self._damage),
            damaged=self._damaged,
            noise_lines=self._noise,
            complete=reason is None,
            reason=reason,
            error=self._error,
        )

    def _decoded(self, body: bytes) -> _Line:
        if len(body) > LINE_LIMIT_BYTES:
            raise _Damaged(f"a line of {len(body)} bytes")
        try:
            line = _decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _Damaged(f"a line that cannot be read ({error})") from None
        if line.v != VERSION:
            raise _Damaged(f"protocol version {line.v}, this lab reads {VERSION}")
        if self._run is None:
            self._run = clean_text(line.run, NAME_LIMIT)
        elif clean_text(line.run, NAME_LIMIT) != self._run:
            raise _Damaged("a line of another run")
        if line.seq < self._next_seq:
            raise _Damaged(f"line {line.seq} again or out of order")
        if line.seq > self._next_seq:
            self._harm(f"{line.seq - self._next_seq} lines missing before line {line.seq}")
        self._next_seq = line.seq + 1
        return line

    def _take(self, line: _Line, body: bytes) -> None:
        if self._done:
            raise _Damaged("a line after done")
        if isinstance(line, _Done):
            self._close(line)
        elif isinstance(line, _Hello):
            self._hello = _whole(body)
        elif isinstance(line, _Env):
            self._env = _whole(body)
        elif isinstance(line, _Error):
            self._error = clean_text(line.message)
        elif isinstance(line, _Begin):
            if self._open is not None:
                self._prompts.append(self._open.close(None))
            self._open = _Open(line)
        elif self._open is None:
            raise _Damaged("a record outside any prompt")
        elif isinstance(line, _Token):
            self._open.tokens.append(TokenSeen(line.id, line.round, line.t_ns, line.margin))
        elif isinstance(line, _Round):
            self._round(self._open, line)
        elif isinstance(line, _End):
            self._prompts.append(self._open.close(line))
            self._open = None

    def _round(self, prompt: _Open, line: _Round) -> None:
        if line.accepted > line.gamma or len(line.ranks) > line.gamma:
            raise _Damaged(f"a round that accepted {line.accepted} of {line.gamma} with {len(line.ranks)} ranks")
        prompt.rounds.append(
            RoundSeen(
                line.round,
                line.gamma,
                line.accepted,
                line.emitted,
                tuple(line.ranks),
                line.draft_ns,
                line.verify_ns,
                line.handover_ns,
            )
        )

    def _close(self, line: _Done) -> None:
        self._done = True
        if line.count != self._protocol_lines:
            self._reason = f"done counts {line.count} lines but {self._protocol_lines} were seen"
        elif line.sha256 != self._hash.hexdigest():
            self._reason = "the lines seen do not have the hash that done announces"

    def _harm(self, what: str) -> None:
        self._damaged += 1
        if len(self._damage) < DAMAGE_LIMIT:
            self._damage.append(Damage(self._n, clean_text(what, NAME_LIMIT)))
        if self._open is not None:
            self._open.spoil(f"damage within it: {clean_text(what, NAME_LIMIT)}")


def parse(data: bytes | str) -> ProtocolRun:
    """Read the whole output of one process."""
    reader = ProtocolReader()
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    for line in raw.split(b"\n"):
        if line:
            reader.feed(line)
    return reader.result()
