"""The typed events of a session: all that the lab ever knows arrives as one of these."""

from __future__ import annotations

from typing import Any, Literal, Union

import msgspec

from mtplab.session.configuration import Configuration
from mtplab.session.identity import Identity, Policy

SCHEMA = 1

StageStatus = Literal["pending", "running", "done", "cached", "failed", "cancelled", "skipped"]
Level = Literal["info", "warning", "error"]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One thing known of the device, or None with the reason why it is not."""

    value: str | int | float | bool | None = None
    source: str = ""
    reason: str | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="k"):
    """Base of all events; `t` is host monotonic time in seconds."""

    t: float


class DeviceSeen(Event, frozen=True, kw_only=True, tag="device"):
    """The phone was identified: its identity and the facts behind it."""

    identity: Identity
    facts: dict[str, Fact] = {}


class FactsSeen(Event, frozen=True, kw_only=True, tag="facts"):
    """Facts that were learnt, or changed, after the phone was identified; each replaces the one of its name."""

    facts: dict[str, Fact]


class LinkChanged(Event, frozen=True, kw_only=True, tag="link"):
    """The connection to the phone came, went or came back."""

    state: Literal["connected", "lost", "returned", "closed"]
    reason: str = ""


class SamplerCost(msgspec.Struct, frozen=True, kw_only=True):
    """What watching the phone costs, per sample: CPU time there and here, packets and bytes on the cable.

    None is "not measured (yet)"; where that is not for want of samples, `reason` says why.
    """

    zones: int
    samples: int
    rate_hz: float | None = None
    device_ms: float | None = None
    host_ms: float | None = None
    packets: float | None = None
    bytes: float | None = None
    rejected: int = 0
    pacing: str | None = None
    reason: str | None = None

    @property
    def text(self) -> str:
        """In one line for a pane: `32 zones · 10.0 Hz · 1.2 ms on the phone · 0.3 ms here`."""
        rate = f"{self.rate_hz:.1f} Hz" if self.rate_hz is not None else "rate unknown"
        there = f"{self.device_ms:.1f} ms on the phone" if self.device_ms is not None else ""
        here = f"{self.host_ms:.1f} ms here" if self.host_ms is not None else ""
        return " · ".join(word for word in (f"{self.zones} zones", rate, there, here) if word)


class Heat(Event, frozen=True, kw_only=True, tag="heat", omit_defaults=True):
    """One sample of the phone's temperatures (°C), thermal status and clocks (kHz, current and maximum).

    `device_uptime_s` is the phone's own clock when it read its sensors: samples that arrive in one packet share `t`.
    `skin_source` names where the skin's temperature comes from. `caps_khz` are the limits in force on the clocks.
    `load` is the busy share (0..1) of the busiest core of each CPU policy (and of the GPU as `gpu`), only in samples
    in which it was read. `silent` (why a zone gives no temperature, by zone) stands in the first sample and wherever
    it changed, `cost` every few seconds: LabState keeps the last of each.
    """

    zones: dict[str, float | None] = {}
    device_uptime_s: float | None = None
    skin_c: float | None = None
    status: int | None = None
    headroom: float | None = None
    clocks_khz: dict[str, tuple[int | None, int | None]] = {}
    skin_source: str | None = None
    caps_khz: dict[str, int | None] = {}
    load: dict[str, float] = {}
    silent: dict[str, str] | None = None
    cost: SamplerCost | None = None


class HostLoad(Event, frozen=True, kw_only=True, tag="host"):
    """How busy the host was: a busy host spoils conversions and arrival stamps."""

    cpu_percent: float
    memory_available_bytes: int
    temperature_c: float | None = None


class Throttled(Event, frozen=True, kw_only=True, tag="throttle"):
    """Throttling of one kind began or ended, with the evidence (a sentence with the numbers in it).

    `kind`: `status` (Android says so), `cap` (a clock's limit was lowered), `clock` (a clock fell under load).
    """

    began: bool
    evidence: str
    kind: str = ""


class Marker(Event, frozen=True, kw_only=True, tag="marker"):
    """A place on the time axis worth finding again."""

    label: str
    kind: Literal["user", "verdict", "throttle", "link", "round"] = "user"


class Message(Event, frozen=True, kw_only=True, tag="message"):
    """A sentence for the person at the bench."""

    text: str
    level: Level = "info"


class Gap(Event, frozen=True, kw_only=True, tag="gap"):
    """A span in which something was not recorded, and why."""

    what: str
    reason: str
    seconds: float


class RunStarted(Event, frozen=True, kw_only=True, tag="run"):
    """A pipeline run began: its stages in order, its policy, what it deploys, and the experiment it is part of."""

    run: str
    stages: list[str]
    policy: Policy
    model: str
    head: str
    recipe: str
    experiment: str | None = None


class RunEnded(Event, frozen=True, kw_only=True, tag="run_end"):
    """A pipeline run ended."""

    run: str
    outcome: Literal["done", "failed", "cancelled"]
    exit_code: int
    reason: str | None = None


class StageChanged(Event, frozen=True, kw_only=True, tag="stage"):
    """A stage changed its status; `seconds` is what it took (of the earlier run when cached)."""

    name: str
    status: StageStatus
    seconds: float | None = None
    reason: str | None = None


class StageProgress(Event, frozen=True, kw_only=True, tag="progress"):
    """How far a running stage is."""

    name: str
    done: float
    total: float | None = None
    unit: str = ""
    note: str = ""
    eta_s: float | None = None


class StageReport(Event, frozen=True, kw_only=True, tag="stage_report"):
    """What a stage found out: its figures (JSON values) and one line for people."""

    name: str
    figures: dict[str, Any]
    summary: str = ""


class Artefact(Event, frozen=True, kw_only=True, tag="artefact"):
    """A file that a stage made, by content."""

    name: str
    sha256: str
    size_bytes: int


class LogOpened(Event, frozen=True, kw_only=True, tag="log"):
    """A benchmark log began: which graph, which accelerator was asked for, by which command."""

    log: str
    graph: str
    requested: str
    command: str
    file: str | None = None


class LogLine(Event, frozen=True, kw_only=True, tag="line"):
    """One cleaned line of a log; `n` counts from 1 within the log."""

    log: str
    n: int
    text: str
    stream: Literal["stdout", "stderr", "merged"] = "merged"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The line that proves a verdict."""

    line: int
    text: str
    rule: str


class VerdictReached(Event, frozen=True, kw_only=True, tag="verdict"):
    """What a log proves so far about the delegate; `provisional` until the log has ended."""

    log: str
    graph: str
    requested: str
    verdict: str
    provisional: bool
    complete: bool = False
    delegated_nodes: int | None = None
    total_nodes: int | None = None
    partitions: int | None = None
    reason: str | None = None
    cause: str | None = None
    cure: str | None = None
    evidence: list[Evidence] = []
    findings: list[str] = []
    figures: dict[str, float | int | None] = {}


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A measured figure with its 95 % interval; `value` None means it could not be had, for `reason`."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    unit: str = ""
    evidence: str = ""
    reason: str | None = None


class RecipeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A backbone recipe with a head recipe, as judged on this host; what could not be had is None with its reason.

    `top1` is teacher-forced (every position of the backbone's own text), by draft position; `conditional_alpha`,
    `alpha` and `mean_accepted` are of true rounds on that text; `delta_alpha` is the change against the float pair on
    equal text. Times are milliseconds on this host's CPU; `ms_per_token` is with drafts, `decode_ms` without.
    `changed_outputs` counts prompts whose output drafting changed at a clear margin: with one, the graphs are faulty.
    `reason` says why a row has no figures.
    """

    backbone: str
    head: str
    backbone_bytes: int | None = None
    head_bytes: int | None = None
    top1: list[Figure] = []
    conditional_alpha: list[Figure] = []
    alpha: Figure = Figure(value=None, reason="not judged")
    alpha_without_loops: Figure = Figure(value=None, reason="not judged")
    mean_accepted: Figure = Figure(value=None, reason="not judged")
    delta_alpha: Figure = Figure(value=None, reason="not judged")
    perplexity: Figure = Figure(value=None, reason="not judged")
    decode_ms: Figure = Figure(value=None, reason="not timed")
    draft_ms: Figure = Figure(value=None, reason="not timed")
    verify_ms: Figure = Figure(value=None, reason="not timed")
    ms_per_token: Figure = Figure(value=None, reason="not timed")
    changed_outputs: int | None = None
    reason: str | None = None

    @property
    def warning(self) -> str | None:
        """That drafting changed outputs, where it did."""
        if not self.changed_outputs:
            return None
        return (
            f"drafting changed the output of {self.changed_outputs} prompts, so verify and decode do not agree: "
            "no figure of drafting stands"
        )

    @property
    def bytes(self) -> int | None:
        """Of both graphs."""
        if self.backbone_bytes is None or self.head_bytes is None:
            return None
        return self.backbone_bytes + self.head_bytes


class RecipesJudged(Event, frozen=True, kw_only=True, tag="recipes"):
    """Rows of the recipe table; a row takes the place of an earlier one of the same two recipes."""

    rows: list[RecipeRow]
    gamma: int
    prompt_set: str
    prompt_set_sha256: str
    prompts: int
    output_tokens: int
    threads: int


class RoundMeasured(Event, frozen=True, kw_only=True, tag="round"):
    """One round of one configuration: heat around it, marks, and what each prompt gave (R15, R16).

    `waited_s` is how long the cool-down gate held it back. `init_ms` is what compiling the graphs took and
    `first_runs_ms` what their first runs did: neither is in a figure. `reason` says why a round is not whole;
    `resumed_from` names the session of an interrupted experiment in which it was measured.
    """

    configuration: str
    index: int
    order: int
    marks: list[str] = []
    skin_before_c: float | None = None
    skin_max_c: float | None = None
    skin_after_c: float | None = None
    waited_s: float | None = None
    prompts: list[dict[str, Any]] = []
    init_ms: float | None = None
    first_runs_ms: float | None = None
    reason: str | None = None
    resumed_from: str | None = None


class ConfigurationMeasured(Event, frozen=True, kw_only=True, tag="configuration"):
    """The figures of one configuration over all its rounds.

    `setting` is what it is, `advice` how many more rounds its throughput needs, `reason` why it has no figures.
    """

    name: str
    figures: dict[str, Figure]
    per_class: dict[str, dict[str, Figure]] = {}
    counts: list[int] = []
    counts_per_class: dict[str, list[int]] = {}
    setting: Configuration | None = None
    advice: str | None = None
    reason: str | None = None


class Concluded(Event, frozen=True, kw_only=True, tag="conclusion"):
    """What the measurement says, in one sentence and per scenario (R20).

    `comparisons` set every configuration with MTP on beside plain decoding on the same ground, `adaptive` every
    adaptive draft length beside the best fixed one.
    """

    text: str
    scenarios: list[dict[str, Any]] = []
    exactness: dict[str, Any] = {}
    predicted: dict[str, Any] = {}
    comparisons: list[dict[str, Any]] = []
    adaptive: list[dict[str, Any]] = []


class PitfallFound(Event, frozen=True, kw_only=True, tag="pitfall"):
    """A known way to fool oneself, found in this session, with its evidence (R22)."""

    pitfall: str
    text: str
    evidence: str


AnyEvent = Union[  # noqa: UP007 - msgspec needs the runtime union on Python 3.10 too
    DeviceSeen, FactsSeen, LinkChanged, Heat, HostLoad, Throttled, Marker, Message, Gap, RunStarted, RunEnded,
    StageChanged, StageProgress, StageReport, Artefact, LogOpened, LogLine, VerdictReached, RecipesJudged,
    RoundMeasured, ConfigurationMeasured, Concluded, PitfallFound,
]  # fmt: skip


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a journal: how to read the rest, and where its clock stands."""

    schema: int
    session: str
    created_utc: str
    t0: float
    versions: dict[str, str] = {}
    format: str = "mtplab-journal"


encoder = msgspec.json.Encoder()
decoder = msgspec.json.Decoder(AnyEvent)
