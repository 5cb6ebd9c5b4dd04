"""`mtplab calibrate`: a calibration set out of one's own logs, and the ranges of every signature on it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtplab.pipeline.headless import ProgressLine, run_stages
from mtplab.pipeline.stage import RunParameters, StageResult, needed_for

if TYPE_CHECKING:
    from mtplab.calibration.record import CalibrationSet

FILES = ("backbone_statistics.json", "head_statistics.json")
_STAGE = "calibrate"
_EXIT_REFUSED, _EXIT_FAILED, _EXIT_STOPPED = 2, 4, 130
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


class _Refused(click.ClickException):
    """A sentence and the exit code it stands for."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


@click.command("calibrate")
@click.argument("logs", nargs=-1, type=click.Path(path_type=Path))
@click.option("--model", default="tiny", show_default=True, help="tiny, smollm2, a folder, module:factory.")
@click.option("--lengths", type=_FILE, help="Production's lengths in tokens: JSON or CSV, a list or buckets.")
@click.option("--system", type=_FILE, help="A file with the full system prompt that production sends.")
@click.option("--no-system", is_flag=True, help="Production sends no system prompt.")
@click.option("--unit", type=click.Choice(["line", "paragraph", "file"]), help="What one prompt of a text file is.")
@click.option("--size", type=click.IntRange(200, 1000), default=400, show_default=True, help="Prompts of the set.")
@click.option("--near", type=click.FloatRange(0.1, 1.0), default=0.8, show_default=True,
              help="Similarity of token triples (Jaccard) from which prompts are duplicates.")  # fmt: skip
@click.option("--head", default="token_conditioned", show_default=True, help="Head whose graph is calibrated, too.")
@click.option("--gamma", type=click.IntRange(1, 8), default=3, show_default=True, help="Draft length of the export.")
@click.option("--ranges", type=click.Choice(["moving_average", "min_max"]), default="moving_average",
              show_default=True, help="How ranges widen: the quantiser's way, or to the widest seen.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where the files go.")
@click.option("--set-only", is_flag=True, help="Build the set and stop: no export, no ranges.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value on stdout, nothing else.")
def calibrate_command(logs: tuple[Path, ...], out: Path, set_only: bool, as_json: bool, **given: Any) -> int:
    """Build a calibration set from LOGS (JSON Lines, text files, folders; without any, the shipped ones).

    Leaves calibration.json, which `mtplab run --calibration` takes, and the quantiser's statistics of both graphs.
    Fewer than 200 usable prompts are refused; of more than --size those whose lengths come closest to production's
    are taken. Interrupted, the same command goes on where it was. Exit codes: 0 fine; 1 usage; 2 the logs, lengths or
    tokenizer cannot be used; 4 a stage failed; 130 stopped.
    """
    from mtplab.report.calibration import calibration_lines
    from mtplab.report.command import print_json
    from mtplab.report.text import printable

    found = _build(logs, out, given)
    figures: dict[str, Any] = {"set": _builtins(found.report())}
    status, code = "built", 0
    if not set_only:
        result = _stages(out, given)
        status = result.status
        code = {"failed": _EXIT_FAILED, "cancelled": _EXIT_STOPPED}.get(status, 0)
        figures = figures if code else result.figures
        if code == _EXIT_FAILED:
            raise _Refused(f"{result.stage}: {result.reason}", code)
    if as_json:
        print_json({**figures, "status": status, "out": str(out)})
        return code
    from mtplab.session.calibrated import calibrated

    kept = calibrated(figures)
    click.echo(printable(calibration_lines(kept)) if kept else "")
    files = ["calibration.json", *([] if set_only or code else FILES)]
    click.echo(printable([f"Written to {out}: {', '.join(files)}."]))
    if code == _EXIT_STOPPED:
        click.echo("Stopped; the same command goes on where it was.", err=True)
    return code


def _builtins(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def _build(logs: tuple[Path, ...], out: Path, given: dict[str, Any]) -> CalibrationSet:
    from mtplab.calibration.build import Plan, build_set
    from mtplab.calibration.errors import CalibrationError
    from mtplab.calibration.lengths import read_target
    from mtplab.calibration.record import save_set
    from mtplab.calibration.sources import read_logs
    from mtplab.model.errors import ModelError
    from mtplab.model.sources import load_model
    from mtplab.pipeline.stages.calibrate import SHIPPED_LOG, reader_of, room_in

    if given["system"] and given["no_system"]:
        raise click.UsageError("--system and --no-system contradict each other; give one of them.")
    try:
        log = read_logs(logs or (SHIPPED_LOG,), given["unit"])
        target = read_target(given["lengths"]) if given["lengths"] else None
        # The line end that editors put behind the last line is not sent.
        system = given["system"].read_text(encoding="utf-8").removesuffix("\n") if given["system"] else None
        model = load_model(given["model"], from_command_line=True)
        plan = Plan(
            longest=room_in(model.config.context, given["gamma"]),
            size=given["size"],
            system=system,
            no_system=given["no_system"] or (not logs and system is None),
            target=target,
            near=given["near"],
        )
        found = build_set(log, reader_of(model, model.tokenizer_path), plan, ProgressLine("set"))
        save_set(out / "calibration.json", found)
    except (CalibrationError, ModelError) as error:
        raise _Refused(str(error), _EXIT_REFUSED) from None
    except UnicodeDecodeError:
        raise _Refused(f"The system prompt {given['system']} is no UTF-8 text; convert it.", _EXIT_REFUSED) from None
    except OSError as error:
        raise _Refused(f"{out} cannot be written ({error.strerror}); give another --out.", _EXIT_REFUSED) from None
    finally:
        ProgressLine.close()
    return found


def _stages(out: Path, given: dict[str, Any]) -> StageResult:
    """Calibrate, and before that whatever it needs and is not cached; the result of the last stage that ran."""
    from mtplab.model.errors import ModelError
    from mtplab.pipeline.cache import Store
    from mtplab.pipeline.errors import PipelineError
    from mtplab.session.paths import cache_dir

    run = RunParameters(
        model=given["model"],
        head=given["head"],
        gamma=given["gamma"],
        calibration=str(out / "calibration.json"),
        calibration_ranges=given["ranges"],
    )
    try:
        store = Store(cache_dir() / "stages")
        results = run_stages(needed_for(_STAGE), run, store)
        last = results[-1]
        if last.status in ("done", "cached"):
            for file in FILES:
                shutil.copyfile(store.path(last.artefacts[file].sha256), out / file)
    except (ModelError, PipelineError) as error:
        raise _Refused(str(error), _EXIT_FAILED) from None
    return last
