"""A small engine: what was requested × what the log proves → one verdict, by explicit precedence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .reading import ACCELERATORS, BACKENDS, Backend, Evidence, Verdict
from .run import ENFORCING_FLAG, Nodes, Run, Sign

MAX_REASONS = 3
MAX_EVIDENCE = 12
# When several accelerators were asked for, the one that gets the graph first.
_ORDER: tuple[Backend, ...] = ("npu", "gpu", "nnapi")
_SWITCHES = {"gpu": "use_gpu", "nnapi": "use_nnapi", "npu": "use_npu"}
_STRANGER_SWITCHES = ("external_delegate", "stable_delegate", "use_coreml")
_SIGNAL_EXITS = frozenset(range(129, 160))  # 128 + the signal's number, as every shell reports it


@dataclass(frozen=True)
class Claim:
    """One candidate: the verdict that these lines speak for, and how much they weigh."""

    verdict: Verdict
    priority: int
    signs: tuple[Sign, ...]
    reason: str | None = None
    cause: str | None = None
    cure: str | None = None


@dataclass(frozen=True)
class Judgement:
    """The verdict with its reason (None when all is well) and the lines it rests on."""

    verdict: Verdict
    reason: str | None
    cause: str | None
    cure: str | None
    evidence: tuple[Evidence, ...]


def requested_by_log(run: Run) -> tuple[Backend | None, str | None]:
    """Which backend the log itself says was wanted, and where it says so."""
    for backend in _ORDER:
        if run.is_on(_SWITCHES[backend]) or _SWITCHES[backend] in run.ignored:
            return backend, "parameters"
    if run.external in BACKENDS:
        return run.external, "parameters"
    named = run.says_backend or (run.flags.get("backend") or run.flags.get("accelerator") or "").lower()
    for known in BACKENDS:
        if named == known:
            return known, "parameters"
    for backend in _ORDER:
        if backend in run.accelerators:
            return backend, "parameters"
    if run.accelerators == {"cpu"}:
        return "cpu", "no accelerator asked"
    asks = sorted(run.asks, key=lambda ask: (-ask[0], _ORDER.index(ask[1])))
    if asks and asks[0][0] >= 2:
        return asks[0][1], "delegate lines"
    if run.strangers or _asks_stranger(run):
        return None, None
    if "graph" in run.params or "graph" in run.flags:
        return "cpu", "no accelerator asked"
    if asks:
        return asks[0][1], "failure lines"
    if _cpu_signs(run):
        return "cpu", "delegate lines"
    if any(key in run.params for key in _SWITCHES.values()):
        return "cpu", "no accelerator asked"
    return None, None


def _asks_stranger(run: Run) -> bool:
    """Whether a delegate was asked for by its library, whatever backend that is for."""
    return any(run.setting(key) not in (None, "", "0", "false") for key in _STRANGER_SWITCHES)


def judge(run: Run, requested: Backend | None) -> Judgement:
    """The verdict for `requested` on this run. Only lines about that backend (or about any) count for it."""
    claims = list(_claims(run, requested))
    if not claims:
        return Judgement("unknown", _why_unknown(run, requested), None, None, ())
    top = max(claims, key=lambda claim: (claim.priority, -min(s.line for s in claim.signs)))
    reasons = _reason_signs(run, requested, top)
    good = top.verdict in ("full_delegate", "cpu_baseline")
    explained = next((sign for sign in reasons if sign.rule.cause), None)
    # The lines that say why come first: they are what a reader looks for.
    evidence = [] if good else [s for s in reasons if s.rule.priority]
    evidence += top.signs
    evidence += [s for c in claims if c.verdict == top.verdict for s in c.signs]
    evidence += [] if good else reasons
    use = explained.rule if explained and not good else None
    return Judgement(
        top.verdict,
        None if good else _reason(run, top, reasons),
        None if good else (use.cause if use else top.cause),
        None if good else (use.cure if use else top.cure),
        _as_evidence(evidence),
    )


def _claims(run: Run, requested: Backend | None) -> Iterator[Claim]:
    for sign in run.signs:
        rule = sign.rule
        if rule.verdict and _about(sign, requested) and run.counts(sign):
            # A CPU run never becomes "full": for it, what its own delegate says is the baseline.
            if requested == "cpu" and sign.backend == "cpu":
                continue
            yield Claim(rule.verdict, rule.priority, (sign,), None, rule.cause, rule.cure)
    yield from _exit_claims(run)
    if requested == "cpu":
        yield from _cpu_claims(run)
    elif requested is not None:
        yield from _node_claims(run, requested)
        yield from _flag_claims(run, requested)
        yield from _accelerated_claims(run, requested)
        yield from _profile_claims(run, requested)
        yield from _only_cpu_claims(run, requested)


def _about(sign: Sign, requested: Backend | None) -> bool:
    if sign.backend == "any":
        return True
    return sign.backend == requested is not None or (sign.backend == "accelerator" and requested in ACCELERATORS)


def _node_claims(run: Run, requested: Backend) -> Iterator[Claim]:
    derived = run.rules.file.derived
    own = nodes_of(run, requested)
    missing = [n for n in own if n.total is not None and 0 < n.delegated < n.total]
    if missing:
        rule = missing[0].sign.rule
        signs = tuple(n.sign for n in missing)
        yield Claim("partial", derived["nodes-partial"], signs, None, rule.cause, rule.cure)
    taken = [n for n in own if n.sign.rule.id != "npu-coverage"]
    if taken and all(n.all_taken for n in taken):
        yield Claim("full_delegate", derived["nodes-full"], tuple(n.sign for n in taken))
    none = [n for n in own if n.delegated == 0 and not n.sign.rule.verdict]
    if none and len(none) == len(own):
        yield Claim("fallback_cpu", derived["nodes-none"], (none[0].sign,), "the delegate took no node")
    elsewhere = [n for n in run.other_nodes if n.sign.backend == requested and n.delegated]
    if elsewhere and not own:  # the tool's own sentence about "the model graph" speaks of the first subgraph
        name = run.own_subgraph
        signs = tuple(n.sign for n in run.own_nodes if n.name == name)
        text = f"the {requested.upper()} delegate took nodes of other subgraphs, and no line shows any of {name}"
        yield Claim("fallback_cpu", derived["nodes-none"], signs, text)
    for opsum in run.own_opsums:
        # An older delegate names operations that it takes all the same, with no reason and none remaining.
        refused = opsum.rest if opsum.rest is not None else sum(bool(why) for _, why in run.own_ops)
        sign = opsum.sign
        if sign.backend != requested or not refused:
            continue
        if opsum.delegated == 0:
            # A subgraph of which nothing was taken gets no node line: where the one that was run has its own, the
            # sentence is about another.
            rule = sign.rule
            if not run.holds("nodes:named", sign):
                yield Claim("fallback_cpu", derived["nodes-none"], (sign,), sign.text, rule.cause, rule.cure)
        else:
            yield Claim("partial", derived["opsum-partial"], (sign,), None, sign.rule.cause, sign.rule.cure)


def _flag_claims(run: Run, requested: Backend) -> Iterator[Claim]:
    derived = run.rules.file.derived
    switch = _SWITCHES[requested]
    if switch in run.ignored and not _touched(run, requested):
        sign = run.ignored[switch]
        yield Claim("fallback_cpu", derived["flag-ignored"], (sign,), sign.text, sign.rule.cause, sign.rule.cure)
    # The one configuration that proves: a flag that would have ended the run, on a run that gave figures.
    others = [s for b, s in _SWITCHES.items() if b != requested]
    enforced = run.is_on(ENFORCING_FLAG) and ENFORCING_FLAG not in run.ignored
    alone = run.is_on(switch) and not any(map(run.is_on, others)) and switch not in run.ignored
    figure = run.figure_signs.get("inference_avg_us")
    if enforced and alone and figure and run.figures["inference_avg_us"] > 0:
        flag = run.enforcing_sign
        yield Claim("full_delegate", derived["enforced"], (flag, figure) if flag else (figure,))


def _accelerated_claims(run: Run, requested: Backend) -> Iterator[Claim]:
    """`Fully accelerated` proves a backend only where no other was allowed; a no is always a no."""
    sign, figure = run.fully_sign, run.figure_signs.get("inference_avg_us")
    if sign is None:
        return
    derived = run.rules.file.derived
    if run.fully and run.accelerators == {requested} and figure:
        asked = (run.accelerators_sign,) if run.accelerators_sign else ()
        yield Claim("full_delegate", derived["enforced"], (*asked, sign, figure))
    took = any(n.delegated for n in nodes_of(run, requested))
    if not run.fully and took:
        text = "the tool says that not all of the graph was accelerated"
        yield Claim("partial", derived["nodes-partial"], (sign,), text)


def _profile_claims(run: Run, requested: Backend) -> Iterator[Claim]:
    """The op profile shows who ran the nodes; only a whole one shows that nobody else did."""
    derived, signs = run.rules.file.derived, run.profile_signs
    own, cpu = signs.get(requested) or (signs.get("any") if not _cpu_signs(run) else None), signs.get("cpu")
    if own and cpu:
        text = "the op profile shows nodes that ran on the CPU"
        yield Claim("partial", derived["nodes-partial"], (own, cpu), text)
    elif own and run.profile_whole and signs.keys() <= {requested, "any"}:
        yield Claim("full_delegate", derived["nodes-full"], (own,))
    elif cpu and not own and run.profile_whole and not took_nodes(run):
        text = f"every node of the op profile ran on the CPU, none under the {requested.upper()} delegate"
        yield Claim("fallback_cpu", derived["nodes-none"], (cpu,), text)


def _touched(run: Run, backend: str) -> bool:
    return any(
        s.backend == backend for s in (*run.signs, *(n.sign for n in run.nodes), *(o.sign for o in run.opsums))
    )


def _only_cpu_claims(run: Run, requested: Backend) -> Iterator[Claim]:
    """XNNPACK at work and not one line of the requested delegate, in a run that got as far as its figures."""
    cpu = _cpu_signs(run)
    if cpu and not _touched(run, requested) and (run.figures or run.blocks):
        yield Claim(
            "fallback_cpu",
            run.rules.file.derived["only-cpu"],
            tuple(cpu),
            f"only the CPU's XNNPACK delegate was seen, and no line of a delegate for {requested.upper()}",
            "The delegate was not asked for in a way the program understands, or could not be created.",
            "Check the flags, and look for 'Unconsumed cmdline flags'.",
        )


def _cpu_claims(run: Run) -> Iterator[Claim]:
    if took_nodes(run):
        return
    signs = _cpu_signs(run)
    python = run.figure_signs.get("inference_avg_us") if run.accelerators == {"cpu"} else None
    asked = any(run.is_on(switch) for switch in _SWITCHES.values()) or any(weight >= 2 for weight, _ in run.asks)
    classic = run.figure_signs.get("inference_avg_us")
    asked = asked or bool(run.strangers) or _asks_stranger(run)
    if not signs and classic and not asked and run.says_backend in (None, "cpu") and tool_is_classic(run):
        signs = [classic]  # the tool's default: no delegate was asked for, and the runs were made
    if not signs and python and run.accelerators_sign:
        signs = [run.accelerators_sign, python]  # no other accelerator was allowed
    if signs:
        yield Claim("cpu_baseline", run.rules.file.derived["baseline"], tuple(signs))


def _cpu_signs(run: Run) -> list[Sign]:
    return [s for s in (*run.signs, *(n.sign for n in run.own_nodes)) if s.backend == "cpu"]


def tool_is_classic(run: Run) -> bool:
    """Whether TFLite's benchmark_model speaks, which prints a line for every delegate that it applies."""
    return bool({"benchmark_model", "classic"} & run.tools.keys()) and "benchmark_litert_model" not in run.tools


def took_nodes(run: Run) -> str | None:
    """The accelerator that took nodes in this run, if any line shows one."""
    for n in run.own_nodes:
        if n.sign.backend in ACCELERATORS and n.delegated:
            return n.sign.backend
    for sign in run.signs:
        if sign.backend in ACCELERATORS and sign.rule.verdict in ("full_delegate", "partial"):
            return sign.backend
    return None


def _exit_claims(run: Run) -> Iterator[Claim]:
    if not run.exit_code or run.exit_sign is None:
        return
    derived, code, sign = run.rules.file.derived, run.exit_code, run.exit_sign
    failed = any(s.rule.verdict == "failed" for s in run.signs)
    if code in _SIGNAL_EXITS or not (run.closed or failed or code in (126, 127)):
        text = f"the process was ended by signal {code - 128} (exit code {code})"
        if code not in _SIGNAL_EXITS:
            text = f"the process ended with exit code {code} before its closing line"
        cure = "Keep the log and the tombstone; retry with another backend or precision."
        yield Claim("crash", derived["exit-crash"], (sign,), text, "The process did not end by itself.", cure)
    else:
        text = f"the program ended with exit code {code}"
        yield Claim("failed", derived["exit-failed"], (sign,), text, None, "Read the last ERROR line.")


def nodes_of(run: Run, backend: str | None) -> list[Nodes]:
    """That delegate's node counts: the compiler's real coverage, the subgraph that was run, then subgraph 0."""
    name, mine = run.own_subgraph, run.own_nodes
    own = [n for n in mine if n.sign.backend == backend]
    if backend in ACCELERATORS:
        own += [n for n in mine if n.sign.backend == "accelerator"]

    def order(n: Nodes) -> tuple[bool, ...]:
        return n.sign.rule.id != "npu-coverage", name is not None and n.name != name, n.subgraph not in (0, None)

    return sorted(own, key=order)


def _reason_signs(run: Run, requested: Backend | None, top: Claim) -> list[Sign]:
    why = [s for s in run.signs if s.rule.why and _about(s, requested) and run.counts(s)]
    if top.verdict == "partial":  # what failed was another delegate's attempt: this one took its part
        why = [s for s in why if s.rule.verdict == "partial"]
    elif not why and top.verdict in ("failed", "crash"):
        why = run.errors
    return sorted(why, key=lambda sign: (-sign.rule.priority, sign.line))


def _reason(run: Run, top: Claim, reasons: list[Sign]) -> str:
    opsums = run.own_opsums
    refused = not opsums or any(opsum.rest != 0 for opsum in opsums)
    ops = ops_summary(run) if refused and top.verdict in ("partial", "failed", "fallback_cpu") else None
    if top.verdict == "partial" and ops:
        return ops
    texts = list(dict.fromkeys(sign.text for sign in reasons))[:MAX_REASONS]
    if top.reason and top.priority > max((s.rule.priority for s in reasons), default=-1):
        texts.insert(0, top.reason)
    text = "; ".join(texts) or top.reason or top.signs[0].text
    return f"{text} ({ops})" if ops else text


def ops_summary(run: Run) -> str | None:
    """The unsupported operations in one line."""
    ops = run.own_ops
    if not ops:
        return None
    if len(ops) == 1:
        name, why = ops[0]
        return f"{name}: {why}" if why else name
    names = list(dict.fromkeys(name for name, _ in ops))
    more = f", and {len(names) - 16} more" if len(names) > 16 else ""
    return f"{len(ops)} unsupported op signatures ({', '.join(names[:16])}{more})"


def _why_unknown(run: Run, requested: Backend | None) -> str:
    if not run.seen:
        return "no line of this text is one that a benchmark prints"
    if requested is None and run.strangers:
        return f"a delegate that this reader does not know was at work: {run.strangers[0].text}"
    if requested is None:
        return "no backend or delegate line in the log"
    if run.fully is False and run.figures and requested != "cpu":
        return "not all of the graph was accelerated, and no line says who ran how much"
    other = took_nodes(run)
    if other and other != requested:
        return f"the log shows the {other.upper()} delegate at work, and nothing about {requested.upper()}"
    if requested == "cpu":
        return "no line shows that the runs were made on the CPU"
    if any(s.backend == requested for s in run.signs):
        return f"the {requested.upper()} delegate was created, but no line says what it took of the graph"
    if run.figures or run.blocks or run.closed:
        return f"{requested.upper()} was asked for, but no line shows its delegate at work: configuration is no proof"
    return "the log ends before any delegate line"


def _as_evidence(signs: list[Sign]) -> tuple[Evidence, ...]:
    unique = {(s.line, s.rule.id): Evidence(s.line, s.text, s.rule.id) for s in signs}
    return tuple(unique.values())[:MAX_EVIDENCE]
