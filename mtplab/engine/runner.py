"""One pipeline run: its stages in order, host stages in workers and device stages here, told as events."""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from mtplab.benchlog.files import exit_code_of
from mtplab.device import paths as device_paths
from mtplab.device.errors import DeviceError, DeviceGone
from mtplab.device.memory import Need
from mtplab.device.prepare import names_of
from mtplab.engine.care import PhoneCare
from mtplab.engine.core import Recorder
from mtplab.engine.errors import EngineError
from mtplab.engine.measuring import MeasurePlan, exported_lengths, planned
from mtplab.engine.options import (
    BOUNDS,
    MEASURING,
    STAGES,
    RunOptions,
    check_bench,
    check_measure,
    check_tables,
)
from mtplab.engine.phone import Phone
from mtplab.engine.worker_events import RECIPES, WorkerEvents, recipes_judged
from mtplab.measure.plan import DEPLOYED, PLAIN
from mtplab.model.files import is_factory
from mtplab.model.prompts import load_prompts
from mtplab.pipeline.cache import Store
from mtplab.pipeline.choices import choose, choose_model, head_name, model_name, prompt_sets
from mtplab.pipeline.device_stage import DeviceContext, Outcome, StageCancelled
from mtplab.pipeline.errors import PipelineError
from mtplab.pipeline.host_run import run_host_stage
from mtplab.pipeline.job import StageFailed
from mtplab.pipeline.lm_phone import known_flags
from mtplab.pipeline.stage import (
    HOST_STAGES,
    RunParameters,
    StageResult,
    check_bundle,
    chosen_recipes,
    inputs_for,
    params_for,
    recipe_pairs,
)
from mtplab.session import events as ev
from mtplab.session import paths
from mtplab.session.identity import LITERT_LM, Policy
from mtplab.session.state import standing
from mtplab.session.text import clean_text

_HOST = tuple(stage.name for stage in HOST_STAGES)
CALIBRATE, BUNDLE = "calibrate", "bundle"


def stages_of(options: RunOptions) -> list[str]:
    """The stages a run goes through; EngineError where the names make no sense."""
    for name in (options.from_stage, options.to_stage):
        if name is not None and name not in STAGES:
            raise EngineError(f"There is no stage {name!r}: {', '.join(STAGES)}.", 1)
    last = STAGES.index(options.to_stage) if options.to_stage else len(STAGES) - 1
    first = STAGES.index(options.from_stage) if options.from_stage else 0
    if first > last:
        raise EngineError(f"The run would begin at {options.from_stage}, after its end at {options.to_stage}.", 1)
    skipped = {*options.skip} | (set() if _calibrates(options) else {CALIBRATE})
    if not (options.recipes or options.head_recipes):
        skipped.add(RECIPES)
    if not _bundles(options):
        skipped.add(BUNDLE)
    return [name for name in STAGES[: last + 1] if name not in skipped]


def _bundles(options: RunOptions) -> bool:
    """Whether a bundle is wanted: by the runtime, or by name."""
    return options.runtime == LITERT_LM or BUNDLE in (options.from_stage, options.to_stage)


def _calibrates(options: RunOptions) -> bool:
    """Whether ranges are wanted: by a recipe, by name, or with a set of prompts."""
    if options.calibration is not None or CALIBRATE in (options.from_stage, options.to_stage):
        return True
    parameters = RunParameters(
        recipe=options.recipe,
        head_recipe=options.head_recipe,
        compared_recipes=options.recipes,
        compared_head_recipes=options.head_recipes,
    )
    chosen = [*_refused(lambda: chosen_recipes(parameters)).values()]
    if options.recipes or options.head_recipes:
        chosen += [one for pair in _refused(lambda: recipe_pairs(parameters)) for one in pair]
    return any(recipe.needs_calibration for recipe in chosen)


def check_run(options: RunOptions, *, from_command_line: bool = False) -> tuple[list[str], RunParameters]:
    """The stages and parameters of a run; names that make no sense are refused here, before anything begins.

    Only `from_command_line` may the model be a `module:factory`. Raises EngineError with exit code 1.
    """
    stages = stages_of(options)
    for name, low, high in BOUNDS:
        if not low <= getattr(options, name) <= high:
            raise EngineError(f"{name} must lie in {low}…{high}, not {getattr(options, name)}.", 1)
    model = _refused(lambda: choose_model(options.model, from_command_line=from_command_line))
    head = _refused(lambda: choose(options.head, options.head_map, model))
    try:
        names_of(options.prepare)
    except ValueError as error:
        raise EngineError(str(error), 1) from None
    check_bench(options)
    check_tables(options)
    measured_set, acceptance_set = prompt_sets(model)
    prompts = _refused(lambda: load_prompts(measured_set if options.prompts is None else options.prompts))
    check_measure(options, exported_lengths(options))
    policy = Policy(
        temperature=options.temperature,
        top_k=options.top_k if options.temperature else 1,
        seed=options.seed,
        draft_length=f"fixed:{options.gamma}",
        output_limit=options.output_limit,
        prompt_set=prompts.name,
        prompt_set_sha256=prompts.sha256,
        threads=options.threads,
        core_mask=options.core_mask,
        runtime=options.runtime,
    )
    parameters = RunParameters(
        model=model,
        head=head,
        measured_set=measured_set if options.prompts is None else options.prompts,
        acceptance_set=acceptance_set if options.judge_prompts is None else options.judge_prompts,
        gamma=options.gamma,
        gammas=options.gammas,
        recipe=options.recipe,
        head_recipe=options.head_recipe,
        compared_recipes=options.recipes,
        compared_head_recipes=options.head_recipes,
        alpha_drop_limit=options.alpha_drop_limit,
        policy=policy,
        calibration=options.calibration or "calibration",
    )
    if BUNDLE in stages:
        _refused(lambda: check_bundle(parameters))
    _refused(lambda: [params_for(name, parameters) for name in _HOST])
    return stages, parameters


def _told(parameters: RunParameters) -> str:
    """The recipes as the identity says them; with the set that gave ranges, since another one gives another file."""
    recipes = chosen_recipes(parameters)
    backbone, head = recipes["backbone"].label, recipes["head"].label
    told = f"{backbone} (backbone and head)" if backbone == head else f"{backbone} (backbone), {head} (head)"
    if not any(recipe.needs_calibration for recipe in recipes.values()):
        return told
    by = params_for(CALIBRATE, parameters)
    return f"{told}, ranges {by['calibration_ranges']} of {by['calibration']['sha256'][:8]}"


class PipelineRun:
    """A run in a thread of its own."""

    def __init__(
        self, options: RunOptions, phone: Phone, recorder: Recorder, care: PhoneCare,
        measure: MeasurePlan | None = None, *, from_command_line: bool = False,
    ) -> None:  # fmt: skip
        self.options, self._measure_plan = options, measure
        self.run_id = secrets.token_hex(4)
        self.code: int | None = None
        self._phone, self._recorder, self._care = phone, recorder, care
        self._cancel = threading.Event()
        self._results: dict[str, StageResult] = {}
        self._thread: threading.Thread | None = None
        self._prepared = False
        self._stages, self._parameters = check_run(options, from_command_line=from_command_line)
        self._store = _refused(lambda: Store(paths.cache_dir() / "stages"))
        self._context = DeviceContext(
            link=phone.link,
            post=recorder.post,
            cancel=self._cancel,
            logs=recorder.path / "logs" / self.run_id,
            heat=lambda: recorder.state.heat,
            throttled_since=self._throttled_since,
            simulated=phone.simulated,
            token_runner=phone.token_runner,
            options=options,
            policy=self._parameters.policy,
            configurations=measure.configurations if measure else planned(options, self._parameters.policy),
            classes=measure.classes if measure else (),
            essential=frozenset() if measure else frozenset((PLAIN, DEPLOYED)),
        )

    # -- control ------------------------------------------------------------
    def start(self, at_end: Callable[[], None]) -> None:
        """Begin; `at_end` is called, in the run's thread, after the last event."""

        def work() -> None:
            try:
                self._work()
            finally:
                at_end()

        self._thread = threading.Thread(target=work, name="run", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Ask the run to stop; workers are ended at once, and what runs on the phone is ended there."""
        self._cancel.set()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def running(self) -> bool:
        """Whether the end has not been told yet."""
        return self._thread is not None and self._thread.is_alive()

    # -- the work -----------------------------------------------------------
    def _work(self) -> None:
        post, options = self._recorder.post, self.options
        identity = msgspec.structs.replace(
            self._phone.identity,
            quantisation=_told(self._parameters),
            gamma=options.gamma,
            temperature=self._parameters.policy.temperature,
            model=model_name(self._parameters.model),
            head=head_name(self._parameters.head),
        )
        post(ev.DeviceSeen(t=time.monotonic(), identity=identity))
        post(
            ev.RunStarted(
                t=time.monotonic(),
                run=self.run_id,
                stages=self._stages,
                policy=self._parameters.policy,
                model=identity.model or "",
                head=identity.head or "",
                recipe=chosen_recipes(self._parameters)["backbone"].label,
                experiment=self._measure_plan.experiment if self._measure_plan is not None else None,
            )
        )
        if set(self._stages) & set(MEASURING):
            self._care.warn_if_wireless()
        try:
            outcome, reason = self._all_stages()
        finally:
            self._care.put_back()
        self.code = self._exit_code(outcome)
        post(ev.RunEnded(t=time.monotonic(), run=self.run_id, outcome=outcome, exit_code=self.code, reason=reason))
        self._recorder.settle()

    def _all_stages(self) -> tuple[Any, str | None]:
        if self._parameters.policy.runtime == LITERT_LM and "measure" in self._stages:
            try:
                self._context.lm_flags = known_flags(self._phone.link, device_paths.LITERT_LM)
            except (StageFailed, DeviceError) as error:
                cancelled = self._cancel.is_set()
                for name in self._stages:
                    self._tell(name, "skipped", None, "LiteRT-LM's program was not found to be usable")
                return ("cancelled", "The run was cancelled.") if cancelled else ("failed", str(error))
        for index, name in enumerate(self._stages):
            reason = self._one_stage(name)
            if reason is None:
                continue
            cancelled = self._cancel.is_set()
            why = f"{name} was cancelled" if cancelled else f"{name} failed"
            for later in self._stages[index + 1 :]:
                self._tell(later, "skipped", None, why)
            return ("cancelled", f"{name} was cancelled.") if cancelled else ("failed", f"{name}: {reason}")
        return "done", None

    def _one_stage(self, name: str) -> str | None:
        """Run one stage; None where it ended well, else why not."""
        if self._cancel.is_set():
            self._tell(name, "cancelled", None, "cancelled")
            return "cancelled"
        began = time.monotonic()
        self._tell(name, "running", None, None)
        try:
            status, seconds, reason = self._host(name) if name in _HOST else self._device(name, began)
        except StageCancelled:
            status, seconds, reason = "cancelled", time.monotonic() - began, "cancelled"
        except (StageFailed, PipelineError, DeviceError) as error:
            if isinstance(error, StageFailed) and error.figures:
                self._report(name, error.figures, "")
            status, seconds, reason = "failed", time.monotonic() - began, str(error)
        except Exception as error:  # noqa: BLE001 - a fault in one stage must end the run with a word, not hang it
            status, seconds = "failed", time.monotonic() - began
            reason = f"An unexpected {type(error).__name__} ended the stage: {error}"
        self._tell(name, status, seconds, reason)
        return None if status in ("done", "cached") else reason or status

    def _host(self, name: str) -> tuple[str, float, str | None]:
        fresh = self.options.from_stage is not None and STAGES.index(name) >= STAGES.index(self.options.from_stage)
        # What a factory will return is known only when it has run; the later stages go by the frozen weights.
        fresh = fresh or (name == "freeze" and is_factory(self._parameters.model))
        result = run_host_stage(
            name,
            params_for(name, self._parameters),
            inputs_for(name, self._results),
            self._store,
            WorkerEvents(name, self._recorder, self._context.logs).take,
            self._cancel,
            fresh=fresh,
        )
        result = self._take_recipes(result)
        self._results[name] = result
        self._context.figures[name] = result.figures
        self._report(name, result.figures, result.summary)
        for artefact, ref in result.artefacts.items():
            self._recorder.post(
                ev.Artefact(t=time.monotonic(), name=f"{name}/{artefact}", sha256=ref.sha256, size_bytes=ref.bytes)
            )
        return result.status, result.seconds, result.reason

    def _take_recipes(self, result: StageResult) -> StageResult:
        """Tell the rows of the recipe table as an event of their own, in place of the figures of the stage."""
        table = result.figures.get("recipes")
        if table is None:
            return result
        self._recorder.post(recipes_judged(table))
        figures = {name: value for name, value in result.figures.items() if name != "recipes"}
        return msgspec.structs.replace(result, figures=figures)

    def _device(self, name: str, began: float) -> tuple[str, float, str | None]:
        from mtplab.pipeline.stages import bench, conclude, measure, push

        context = self._context
        if name == "push":
            self._collect_files()
            self._check_memory()
            outcome = push.run(context)
        elif name == "bench":
            self._prepare()
            outcome = bench.run(context)
        elif name == "measure":
            self._prepare()
            if self._measure_plan is not None:
                context.earlier = self._measure_plan.earlier(self._deployed_hashes())
            outcome = measure.run(context)
        else:
            self._recorder.settle()
            outcome = conclude.run(context, self._recorder.state)
        context.figures[name] = outcome.figures
        self._report(name, outcome.figures, outcome.summary)
        return self._status(name, outcome), time.monotonic() - began, None

    def _prepare(self) -> None:
        """Set the phone up for everything that is measured from here on, once; put back at the end of the run."""
        if self._prepared:
            return
        self._prepared, options = True, self.options
        try:
            told = self._care.prepare(options.prepare)
        except DeviceError as problem:
            if options.prepare_required or isinstance(problem, DeviceGone):
                raise
            return
        odd = [one.sentence for one in told if one.problem is not None]
        if odd and options.prepare_required:
            raise StageFailed(f"The phone is not as the measurement wants it: {'; '.join(odd)}.")

    def _check_memory(self) -> None:
        files, inputs = self._context.files, self._context.figures["acceptance"]["bench_inputs"]
        caches = max(
            (sum(4 * math.prod(row["shape"]) for row in rows if row["name"].startswith("kv_cache")))
            for rows in inputs.values()
        )
        weights = sum(files[name].stat().st_size for name in ("backbone", "head"))
        fit = self._care.check_memory(Need(weights_bytes=weights, caches_bytes=caches))
        if fit.refused:
            raise StageFailed(fit.sentence)

    @staticmethod
    def _status(name: str, outcome: Outcome) -> str:
        return "cached" if outcome.cached and name not in MEASURING else "done"

    def _deployed_hashes(self) -> dict[str, str]:
        """What figures of a round depend on, by the names that the session's artefacts have."""
        names = (("quantise", "backbone.tflite"), ("quantise", "head.tflite"), ("freeze", "tokenizer.json"))
        return {f"{stage}/{name}": self._results[stage].artefacts[name].sha256 for stage, name in names}

    @property
    def measured(self) -> dict[str, Any]:
        """What the measure stage found, once it has ended; empty before."""
        return self._context.measured

    def _collect_files(self) -> None:
        """What is deployed: the quantised graphs, the tokenizer, the prompts, and real inputs for the benchmark."""
        deployed, frozen = self._results["quantise"].artefacts, self._results["freeze"].artefacts
        self._context.files = {
            "backbone": self._store.path(deployed["backbone.tflite"].sha256),
            "head": self._store.path(deployed["head.tflite"].sha256),
            "tokenizer": self._store.path(frozen["tokenizer.json"].sha256),
            "prompts": self._store.path(frozen["prompts.jsonl"].sha256),
        }
        if self._parameters.policy.runtime == LITERT_LM:
            made = self._results[BUNDLE].artefacts["model.litertlm"]
            self._context.files["bundle"] = self._store.path(made.sha256)
        # Real inputs of every signature: benchmark_model must not be fed random bytes.
        self._context.files |= {
            name: self._store.path(ref.sha256) for name, ref in self._results["acceptance"].artefacts.items()
        }

    # -- telling ------------------------------------------------------------
    def _tell(self, name: str, status: Any, seconds: float | None, reason: str | None) -> None:
        rounded = None if seconds is None else round(seconds, 3)
        text = clean_text(reason, 600) if reason else None
        self._recorder.post(
            ev.StageChanged(t=time.monotonic(), name=name, status=status, seconds=rounded, reason=text)
        )

    def _report(self, name: str, figures: dict[str, Any], summary: str) -> None:
        self._recorder.post(
            ev.StageReport(t=time.monotonic(), name=name, figures=figures, summary=clean_text(summary, 300))
        )

    def _throttled_since(self, began: float) -> bool:
        state = self._recorder.state
        return state.throttled is not None or any(e.began and e.t >= began for e in state.throttle_events)

    def _exit_code(self, outcome: str) -> int:
        if outcome == "cancelled":
            return 130
        self._recorder.settle()
        asked = [standing(v) for v in self._recorder.state.verdicts if v.requested != "cpu"]
        return exit_code_of([*asked, *(["failed"] if outcome == "failed" else [])])


def _refused(build: Callable[[], Any]) -> Any:
    """Bad input of a run is a usage error, with the room's own sentence."""
    from mtplab.litert.errors import LiteRtError
    from mtplab.model.errors import ModelError

    try:
        return build()
    except (LiteRtError, ModelError, PipelineError) as error:
        raise EngineError(str(error), 1) from error
