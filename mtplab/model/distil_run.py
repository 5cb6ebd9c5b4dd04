"""One training of a draft head from start to card: text, draft vocabulary, fit, and the files that come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from mtplab.model.checkpoint import Say
from mtplab.model.deployed import DeployedBackbone, Row, States
from mtplab.model.distil_data import DraftVocabulary, Sample, Shards, Tokens, batches_of, coverage, draft_vocabulary
from mtplab.model.distil_data import encode as encode_prompts
from mtplab.model.distil_fit import FitRecipe, fit, start_by_regression
from mtplab.model.distil_prompts import CLASSES, PromptSource
from mtplab.model.errors import ModelError
from mtplab.model.head_card import write_head_card
from mtplab.model.heads import Head, Kind, build_head, head_cost, save_head
from mtplab.model.prompts import Prompt, load_prompts
from mtplab.model.sources import LoadedModel

BATCH = 64
HELD_OUT_SET = "assistant"
_LONGEST_PROMPT = 128
_HELD_BACK_ONE_IN = 24
_MOST_GIVEN_TEXTS = 4096
# Of eight texts: templated text is what drafting is for, chat and prose are where it is hard.
_MIX = {"templated": 2, "code": 2, "chat": 2, "open": 2}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What `mtplab train-head` was asked for."""

    kind: Kind
    gamma: int = 3
    draft_vocab: int | None = None
    ff: int | None = None
    states: States = "int8"
    texts: int = 1536
    new_tokens: int = 96
    steps: int = 1000
    held_out: int = 120
    seed: int = 31
    prompt_file: str | None = None
    text_file: str | None = None
    also: tuple[str, ...] = ()


def longest_row(model: LoadedModel, plan: Plan) -> int:
    """Positions that a text may take."""
    longest = min(model.config.context, _LONGEST_PROMPT + plan.new_tokens)
    if longest - plan.new_tokens < 8:
        raise ModelError(
            f"{plan.new_tokens} new tokens leave no room for a prompt in a context of {model.config.context}; "
            "choose fewer with --new-tokens."
        )
    return longest


class _Part(msgspec.Struct, frozen=True):
    """One kind of text: its folder, its batches, and whether it is continued or only read."""

    shards: Shards
    batches: list[list[Tokens]]
    continued: bool = True


def make_texts(model: LoadedModel, plan: Plan, work: Path, say: Say) -> None:
    """Generate what is missing: text to learn from, given text, and the text of the held-out prompts."""
    parts = [part for part in _parts(model, plan, work) if not part.shards.complete(part.batches)]
    if not parts:
        return
    deployed = DeployedBackbone(model.backbone, plan.states)

    def continued(prompts: list[list[int]]) -> list[Row]:
        return deployed.texts(prompts, plan.new_tokens, model.end_token)

    for part in parts:
        part.shards.make(part.batches, continued if part.continued else deployed.score, say)


def _parts(model: LoadedModel, plan: Plan, work: Path) -> list[_Part]:
    """The held-out text, the own text, and the given text if there is any."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model.tokenizer_path))
    longest = longest_row(model, plan)
    parts = []
    for name, prompts in (("held-out", _held_out_prompts(plan)), ("own", _train_prompts(plan))):
        tokens = encode_prompts(prompts, tokenizer, model.chat, longest - plan.new_tokens)
        if not tokens:
            raise ModelError("No prompt is short enough for the context; give shorter ones or fewer --new-tokens.")
        parts.append(_Part(_shards(model, plan, work, name, tokens), batches_of(tokens, BATCH)))
    if plan.text_file is not None:
        tokens = _given(Path(plan.text_file), tokenizer, longest)
        parts.append(_Part(_shards(model, plan, work, "given", tokens), batches_of(tokens, BATCH), continued=False))
    return parts


def _held_out_prompts(plan: Plan) -> Sequence[Prompt]:
    """The first prompts of every class of the held-out set, `held_out` together."""
    held_out = load_prompts(HELD_OUT_SET)
    each = max(1, plan.held_out // len(held_out.classes()))
    return [prompt for name in held_out.classes() for prompt in held_out.of_class(name)[:each]]


def _shards(model: LoadedModel, plan: Plan, work: Path, name: str, tokens: list[Tokens]) -> Shards:
    return Shards(work / name, _backbone_identity(model, plan), [tokens, plan.new_tokens])


def _backbone_identity(model: LoadedModel, plan: Plan) -> object:
    return [_backbone_files(model), plan.states]


def _backbone_files(model: LoadedModel) -> dict[str, str]:
    return {name: sha256 for name, sha256 in model.files.items() if not name.startswith("head_")}


def _train_prompts(plan: Plan) -> Sequence[Prompt]:
    if plan.prompt_file is not None:
        return load_prompts(plan.prompt_file).prompts
    share = sum(_MIX.values())
    per_class = {name: max(1, plan.texts * _MIX[name] // share) for name in CLASSES}
    return list(PromptSource(plan.seed, held_out=False).distinct(per_class))


def _given(path: Path, tokenizer: object, length: int) -> list[Tokens]:
    """A text file as rows of `length` tokens."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"The text {path.name} cannot be read ({error}); give a UTF-8 file.") from error
    ids: list[int] = tokenizer.encode(text).ids  # type: ignore[attr-defined]
    rows = [ids[at : at + length] for at in range(0, len(ids), length)]
    return [Tokens(row, "given") for row in rows if len(row) > length // 2][:_MOST_GIVEN_TEXTS]


def train(
    model: LoadedModel, plan: Plan, work: Path, out: Path, say: Say, stopped: Callable[[], bool] = lambda: False
) -> str:
    """Fit the head on the stored text and write it to `out` with its card; returns why training ended."""
    held_out_part, own_part, *given = _parts(model, plan, work)
    own = list(own_part.shards.samples())
    held_back = own[::_HELD_BACK_ONE_IN]
    learned = [sample for at, sample in enumerate(own) if at % _HELD_BACK_ONE_IN]
    for shards in (*(part.shards for part in given), *_made_elsewhere(model, plan)):
        learned += list(shards.samples())
    say(f"{len(learned)} texts to learn from, {len(held_back)} held back for early stop")
    vocabulary = _vocabulary(model, plan, work, learned)
    torch.manual_seed(plan.seed)
    head = build_head(
        plan.kind, model.backbone, plan.gamma, ff=plan.ff, draft_ids=vocabulary.ids if vocabulary else None
    )
    cost = head_cost(head, model.backbone, bytes_per_parameter=2.0)
    say(f"{cost.own_parameters:,} own parameters, {cost.own_share:.1%} of the backbone's")
    if cost.warning:
        say(cost.warning)
    if start_by_regression(head, learned):
        say("token and state are joined by regression to begin with")
    recipe = FitRecipe(seed=plan.seed, steps=plan.steps, evaluate_every=max(1, min(50, plan.steps // 5)))
    name = f"{plan.kind}_g{plan.gamma}_v{plan.draft_vocab or 0}_ff{plan.ff or 0}_s{plan.seed}"
    result = fit(model.backbone, head, learned, held_back, recipe, work / f"{name}.ckpt.safetensors", say, stopped)
    held_out = list(held_out_part.shards.samples())
    facts = {
        "plan": _without_paths(plan),
        "recipe": msgspec.to_builtins(recipe),
        "result": result,
        "texts": len(learned),
        "generated_tokens": sum(len(one.row.tokens) - one.row.prompt_length for one in learned),
    }
    _write(model, plan, head, vocabulary, held_out, facts, out)
    say(f"{result['ended']}; written to {out}")
    return str(result["ended"])


def _without_paths(plan: Plan) -> dict[str, object]:
    """The plan for a card: which files there were, not where they stood on this machine."""
    named = {name: Path(path).name for name in ("prompt_file", "text_file") if (path := getattr(plan, name))}
    return {**msgspec.to_builtins(plan), **named, "also": len(plan.also)}


def _made_elsewhere(model: LoadedModel, plan: Plan) -> list[Shards]:
    """Own text of other runs (other seeds or prompts), of the same backbone in the same arithmetic."""
    found = [Shards(Path(work) / "own", _backbone_identity(model, plan)) for work in plan.also]
    for shards in found:
        if not shards.paths():
            raise ModelError(f"There is no text in {shards.folder}; give the --work folder of another run.")
    return found


def _vocabulary(model: LoadedModel, plan: Plan, work: Path, samples: Sequence[Sample]) -> DraftVocabulary | None:
    """The draft vocabulary, counted once and kept, so that a resumed training has the same."""
    if plan.draft_vocab is None:
        return None
    path = work / f"draft_vocab_{plan.draft_vocab}.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=DraftVocabulary)
    found = draft_vocabulary(samples, plan.draft_vocab, model.config.vocab)
    path.write_bytes(msgspec.json.encode(found))
    return found


def _write(
    model: LoadedModel,
    plan: Plan,
    head: Head,
    vocabulary: DraftVocabulary | None,
    held_out: Sequence[Sample],
    facts: dict[str, object],
    out: Path,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"head_{plan.kind}.safetensors"
    save_head(head, path)
    if vocabulary is not None:
        facts["draft_vocabulary"] = {
            "size": len(vocabulary.ids),
            "coverage_of_training_text": vocabulary.coverage,
            "coverage_of_held_out_text": coverage(held_out, vocabulary.ids),
            "counted_tokens": vocabulary.counted_tokens,
        }
    write_head_card(model, path, held_out, facts, out)
