"""`mtplab run`: the pipeline without a screen; the figures at the end, the documented exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click

from mtplab.engine.errors import EngineError
from mtplab.engine.options import (
    GPU_PRECISIONS,
    STAGES,
    EngineOptions,
    RunOptions,
    check_scenario,
    names_in,
    numbers_of,
)
from mtplab.model.kinds import KINDS
from mtplab.session import events as ev
from mtplab.session.events import Event
from mtplab.session.identity import RUNTIMES, TOKEN_RUNNER
from mtplab.session.text import clean_text

_FILE = click.Path(exists=True, dir_okay=False, resolve_path=True)


class Refused(click.ClickException):
    """A sentence and the exit code it stands for."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


class Narrator:
    """Tells on stderr what happens: every stage, warnings, verdicts; progress on one line where it is a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._open_line = False
        self._told = 0.0
        self._verdicts: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Tell one event; that nobody reads stderr any more is no reason to lose a measurement."""
        with contextlib.suppress(OSError):
            self._tell(event)

    def _tell(self, event: Event) -> None:
        if isinstance(event, ev.StageChanged):
            self._stage(event)
        elif isinstance(event, ev.StageReport) and event.summary:
            self._line(f"    {event.summary}")
        elif isinstance(event, ev.StageProgress):
            self._progress(event)
        elif isinstance(event, ev.VerdictReached) and not event.provisional:
            if self._verdicts.get(event.log) != event.verdict:  # told again, it has only gained a finding
                self._verdicts[event.log] = event.verdict
                why = f": {clean_text(event.reason, 160)}" if event.reason else ""
                self._line(f"    {event.graph} asked {event.requested}: {event.verdict}{why}")
        elif isinstance(event, ev.Message):
            self._line(f"  ! {event.text}" if event.level != "info" else f"    {event.text}")
        elif isinstance(event, ev.LinkChanged) and event.state in ("lost", "returned"):
            self._line(f"  ! phone {event.state}: {event.reason}")

    def _stage(self, event: ev.StageChanged) -> None:
        seconds = "" if event.seconds is None else f" {event.seconds:.1f} s"
        why = f": {event.reason}" if event.reason else ""
        self._line(f"{event.name:<11} {event.status}{seconds if event.status != 'running' else ''}{why}")

    def _progress(self, event: ev.StageProgress) -> None:
        now = time.monotonic()
        if not self._terminal or now - self._told < 0.1:
            return
        self._told = now
        of = f"{event.done:.0f}/{event.total:.0f} {event.unit}" if event.total else f"{event.done:.0f} {event.unit}"
        eta = f" · {event.eta_s:.0f} s left" if event.eta_s else ""
        sys.stderr.write(f"\r\x1b[K    {of} {event.note[:70]}{eta}")
        sys.stderr.flush()
        self._open_line = True

    def _line(self, text: str) -> None:
        if self._open_line:
            sys.stderr.write("\r\x1b[K")
            self._open_line = False
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


@click.command("run")
@click.option("--model", default="tiny", show_default=True, metavar="tiny|smollm2|FOLDER|MODULE:FACTORY",
              help="FOLDER is a Hugging Face checkpoint on this disk; a factory runs your own code.")  # fmt: skip
@click.option("--head", default=None, metavar="KIND|FILE",
              help=f"{', '.join(KINDS)}, or the safetensors of a head; default: the model's own.")  # fmt: skip
@click.option("--map", "head_map", type=_FILE, metavar="TOML",
              help="What the tensors of a foreign --head FILE are called.")  # fmt: skip
@click.option("--recipe", default="mixed", show_default=True, metavar="NAME|FILE.toml[:NAME]",
              help="Quantisation recipe; `mtplab recipes` lists them.")  # fmt: skip
@click.option("--head-recipe", default=None, metavar="NAME|FILE.toml[:NAME]",
              help="The head's own; default: what the recipe says for a head, else the same.")  # fmt: skip
@click.option("--calibration", default=None, metavar="FILE",
              help="Calibrate with this set (see `mtplab calibrate`), or a log with its system prompts.")  # fmt: skip
@click.option("--recipes", metavar="NAME,…",
              help="Set these backbone recipes beside each other: size, acceptance, time on this host.")  # fmt: skip
@click.option("--head-recipes", metavar="NAME,…",
              help="Each of them with each of these head recipes; default: with its own.")  # fmt: skip
@click.option("--alpha-drop-limit", default=0.02, show_default=True, type=click.FloatRange(0, 1),
              help="Fail where quantisation may cost more of α (95 % bound); says which layers to lift.")  # fmt: skip
@click.option("--gamma", default=3, show_default=True, type=click.IntRange(1, 8), help="Draft length to measure.")
@click.option("--gammas", default="1,2,3", show_default=True, metavar="G,…",
              help="Draft lengths to export; a --gamma among them exports nothing again.")  # fmt: skip
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1, 16))
@click.option("--output-limit", default=48, show_default=True, type=click.IntRange(2, 400), help="Tokens per prompt.")
@click.option("--prompts", default=None, metavar="SET|FILE[:N]",
              help="To measure with (:N: N a class at most); default: demo for tiny, else classes:4.")  # fmt: skip
@click.option("--judge-prompts", default=None, metavar="SET|FILE[:N]",
              help="To judge acceptance with; default: acceptance for tiny, else classes:4.")  # fmt: skip
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(5, 100), help="Rounds per configuration.")
@click.option("--accelerators", default="cpu,gpu", show_default=True, metavar="cpu,gpu,npu",
              help="What the bench asks of every graph.")  # fmt: skip
@click.option("--bench-rounds", default=2, show_default=True, type=click.IntRange(1, 100),
              help="Benchmark processes of every graph on every accelerator.")  # fmt: skip
@click.option("--benchmark-binary", type=click.Path(exists=True, dir_okay=False, resolve_path=True),
              help="A benchmark_model of this computer to push, in place of the phone's.")  # fmt: skip
@click.option("--gpu-precision", type=click.Choice(GPU_PRECISIONS), help="Default: the tool's own.")
@click.option("--dispatch-dir", metavar="DIR",
              help="Where the NPU's dispatch library lies on the phone; default /data/local/tmp.")  # fmt: skip
@click.option("--core-mask", metavar="HEX", help="Cores the phone may use, such as f0; part of the policy.")
@click.option("--check-numerics", is_flag=True, help="Compare the accelerators' outputs with the CPU's.")
@click.option("--op-profile", is_flag=True, help="Profile every graph's operations in runs of their own.")
@click.option("--standin", "standin", is_flag=False, flag_value="normal", default=None, metavar="[SCENARIO]",
              help="Use the stand-in Pixel (SIMULATED) instead of a phone.")  # fmt: skip
@click.option("--standin-speed", default=1.0, hidden=True, type=float)
@click.option("--serial", default=None, help="Serial of the phone, where several are attached.")
@click.option("--from", "from_stage", type=click.Choice(STAGES), help="Run this stage and those after it afresh.")
@click.option("--to", "to_stage", type=click.Choice(STAGES), help="Stop after this stage.")
@click.option("--skin-limit", "skin_limit_c", default=37.0, show_default=True, type=click.FloatRange(20, 60),
              help="Rounds begin below this skin temperature (°C) and at thermal status NONE.")  # fmt: skip
@click.option("--cool-down", default=60.0, show_default=True, type=click.FloatRange(0, 3600),
              help="Seconds in all to wait for a hot phone before its rounds are marked hot.")  # fmt: skip
@click.option("--prepare", default="bench", show_default=True, metavar="bench|none|NAME,…",
              help="Settings borrowed from the phone while it is measured: stay_awake, screen, brightness_mode, "
              "brightness, battery_saver, airplane_mode.")  # fmt: skip
@click.option("--prepare-required", is_flag=True, help="Measure nothing where one of them cannot be set.")
@click.option("--measure-gammas", metavar="G,…",
              help="Measure these exported draft lengths, too, interleaved with the others.")  # fmt: skip
@click.option("--policies", metavar="additive,tiers",
              help="Measure these adaptive draft lengths beside every exported one.")  # fmt: skip
@click.option("--head-threads", metavar="N,…", help="Measure with the head on this many threads, too.")
@click.option("--head-backends", metavar="cpu,gpu,npu", help="Measure with the head on this backend, too.")
@click.option("--temperature", default=0.0, show_default=True, type=click.FloatRange(0, 5),
              help="0 is greedy; above, outputs are sampled and drafting keeps their distribution.")  # fmt: skip
@click.option("--top-k", type=click.IntRange(1), help="Sample among the K most likely tokens only.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of sampling; rounds count it up.")
@click.option("--runtime", type=click.Choice(RUNTIMES), default=TOKEN_RUNNER, show_default=True,
              help="What decodes on the phone; litert-lm: LiteRT-LM's own program, on a bundle.")  # fmt: skip
@click.option("--reconnect", "reconnect_s", default=60.0, show_default=True, type=click.FloatRange(0, 3600),
              help="Seconds to wait for a phone whose cable was lost in a round.")  # fmt: skip
@click.option("--experiment", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="Measure the cells of an experiment.toml, going on where it was interrupted.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="With --experiment: list its cells and measure nothing.")
@click.option("--again", is_flag=True, help="With --experiment: begin anew; earlier sessions are kept.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value on stdout, nothing else.")
@click.pass_context
def run_command(
    ctx: click.Context, as_json: bool, cool_down: float, experiment: str | None, dry_run: bool, again: bool,
    **given: Any,
) -> int:  # fmt: skip
    """Freeze, export, align, quantise, push, bench, measure and conclude; leaves a session.

    Exit codes: 0 fine; 1 usage; 2 not ready; 3 the requested accelerator did not (fully) run; 4 failed or crashed;
    5 unknown; 130 stopped.
    """
    from mtplab.engine.runner import check_run
    from mtplab.engine.service import Engine
    from mtplab.report.command import print_json
    from mtplab.report.contract import run_contract
    from mtplab.report.text import session_text
    from mtplab.session.journal import SessionError

    engine_given = {name: given.pop(name) for name in ("standin", "standin_speed", "serial")}
    options = EngineOptions(**engine_given)
    if experiment is not None or dry_run or again:
        return _experiment(ctx, experiment, options, dry_run=dry_run, again=again, as_json=as_json)
    try:
        check_scenario(options.standin)
        for name in ("accelerators", "policies", "head_backends", "recipes", "head_recipes"):
            given[name] = names_in(given[name], _option(name))
        for name in ("gammas", "measure_gammas", "head_threads"):
            given[name] = numbers_of(given[name], _option(name))
        wanted = RunOptions(cooldown_timeout_s=cool_down, **given)
        check_run(wanted, from_command_line=True)
        engine = Engine(options, listen=Narrator())
        began = time.monotonic()
        with _interruptible(engine), engine:
            if engine.phone.simulated:
                click.echo(_simulated(options), err=True)
            run = engine.start_run(wanted, from_command_line=True)
            while run.running:
                run.join(0.2)
                if engine.stopping.is_set():
                    engine.cancel()
        wall_s = time.monotonic() - began
    except EngineError as error:
        raise Refused(str(error), error.exit_code) from None
    except SessionError as error:
        raise Refused(str(error), 4) from None
    record = engine.record
    if record is None:
        raise Refused("The run left no session: its folder could not be written.", 4)
    if as_json:
        print_json(run_contract(record, engine.recorder.path))
    else:
        click.echo(session_text(record, engine.recorder.path))
        click.echo(f"{_times(record)} · wall {wall_s:.1f} s")
    return run.code if run.code is not None else 4


_NEVER_IN_EXPERIMENTS = ("runtime", "judge_prompts")
_WITH_EXPERIMENT = ("experiment", "dry_run", "again", "as_json", "standin", "standin_speed", "serial")


def _experiment(
    ctx: click.Context, experiment: str | None, options: EngineOptions, *, dry_run: bool, again: bool, as_json: bool
) -> int:
    """Hand over to the experiment; what its file says cannot be said on the command line, too."""
    from click.core import ParameterSource

    from mtplab.engine.experiment_command import run_experiment
    from mtplab.session.journal import SessionError

    if experiment is None:
        raise click.UsageError("--dry-run and --again belong to --experiment FILE.")
    for name in ctx.params:
        if name not in _WITH_EXPERIMENT and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            if name in _NEVER_IN_EXPERIMENTS:
                raise click.UsageError(f"{_option(name)} is no part of experiments yet; leave it out.")
            raise click.UsageError(f"{_option(name)} is the experiment's to say: put it into its file.")
    try:
        check_scenario(options.standin)
        path = Path(experiment)
        return run_experiment(path, options, listen=Narrator(), dry_run=dry_run, again=again, as_json=as_json)
    except EngineError as error:
        raise Refused(str(error), error.exit_code) from None
    except SessionError as error:
        raise Refused(str(error), 4) from None


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _simulated(options: EngineOptions) -> str:
    if options.standin is None:
        return "SIMULATED: this device calls itself a stand-in, or does not say that it is none."
    return f"SIMULATED: a stand-in Pixel, scenario {options.standin}; no figure is a phone's."


def _times(record: Any) -> str:
    from mtplab.engine.options import MEASURING

    measuring = sum(s.wall_s or 0.0 for s in record.stages if s.name in MEASURING)
    other = sum(s.wall_s or 0.0 for s in record.stages if s.name not in MEASURING)
    cached = sum(s.status == "cached" for s in record.stages)
    return f"Time: measuring {measuring:.1f} s · all other stages {other:.1f} s ({cached} of them cached)"


class _interruptible:
    """Ctrl-C and SIGTERM cancel the run and let the session be sealed; a second Ctrl-C ends at once."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._stop)

    def _stop(self, number: int, _frame: object) -> None:
        if self._engine.stopping.is_set():
            os._exit(130)
        sys.stderr.write("\nstopping; the session is being sealed (again to end at once)\n")
        self._engine.stopping.set()

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
