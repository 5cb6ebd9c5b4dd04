"""The shipped tiny model: it loads, it is the one its card describes, and it does what the card says."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mtplab.model import evaluate, sources  # noqa: E402
from mtplab.model.card import NEW_TOKENS, render  # noqa: E402
from mtplab.model.errors import ModelError  # noqa: E402
from mtplab.model.freeze import freeze  # noqa: E402
from mtplab.model.kinds import TINY_KINDS  # noqa: E402
from mtplab.model.prompts import load_prompts  # noqa: E402
from mtplab.session.identity import Policy  # noqa: E402

pytestmark = pytest.mark.pipeline
FOLDER = Path(sources.__file__).parent / "tiny"


@pytest.fixture(scope="module")
def tiny() -> sources.LoadedModel:
    return sources.load_model("tiny")


@pytest.fixture(scope="module")
def tokenizer(tiny: sources.LoadedModel) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(tiny.tokenizer_path))


@pytest.fixture(scope="module")
def card() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "card.json").read_text())
    return loaded


def test_it_loads_with_both_heads_and_freezes(tiny: sources.LoadedModel) -> None:
    assert set(tiny.heads) == set(TINY_KINDS)
    for head in tiny.heads.values():
        assert freeze(tiny.backbone, head, Policy()).gamma == 3


def test_all_shipped_files_together_stay_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 6_000_000


def test_the_card_names_exactly_the_files_that_are_shipped(card: dict[str, Any]) -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in FOLDER.iterdir()
        if path.name not in ("card.json", "MODEL_CARD.md")
    }
    assert card["files"] == found == sources.model_files("tiny")


def test_the_readable_card_is_generated_from_the_measured_one(card: dict[str, Any]) -> None:
    assert (FOLDER / "MODEL_CARD.md").read_text(encoding="utf-8") == render(card)


def test_it_predicts_held_out_text_far_better_than_a_uniform_guess(
    tiny: sources.LoadedModel, tokenizer: Any, card: dict[str, Any]
) -> None:
    prompts = load_prompts("acceptance").prompts
    loss = evaluate.prompt_loss(tiny.backbone, tokenizer, prompts)
    assert loss < 0.6 * math.log(tiny.config.vocab)
    assert loss == pytest.approx(card["acceptance_prompts_nats_per_token"], abs=0.01)


def test_acceptance_on_a_few_own_texts_agrees_with_the_cards_interval(
    tiny: sources.LoadedModel, tokenizer: Any, card: dict[str, Any]
) -> None:
    head = tiny.heads["token_conditioned"]
    prompts = load_prompts("acceptance").of_class("code")[::3]
    texts = evaluate.greedy_texts(tiny.backbone, tokenizer, prompts, NEW_TOKENS, head.gamma)
    measured = evaluate.own_text(tiny.backbone, head, texts).overall.alpha[0]
    stated = card["heads"]["token_conditioned"]["own_greedy_text"]["by_class"]["code"]["alpha"][0]
    assert measured.low is not None and measured.high is not None and measured.trials > 150
    assert measured.low <= stated["high"] and stated["low"] <= measured.high


def test_the_card_was_measured_on_todays_prompts(card: dict[str, Any]) -> None:
    assert card["prompts"]["sha256"] == load_prompts("acceptance").sha256


def test_the_tokenizer_begins_every_prompt_and_gives_the_text_back(tokenizer: Any) -> None:
    text = "def f(x):\n    return 'é' + x  # ∑\n"
    ids = tokenizer.encode(text).ids
    assert ids[0] == sources.END_OF_TEXT_ID
    assert tokenizer.decode(ids) == text


def test_every_shipped_prompt_leaves_room_for_the_output_in_the_context(
    tiny: sources.LoadedModel, tokenizer: Any
) -> None:
    for name in ("demo", "acceptance"):
        for prompt in load_prompts(name).prompts:
            assert len(tokenizer.encode(prompt.text).ids) <= 128, prompt.id


def test_an_unknown_model_is_refused_with_what_is_supported() -> None:
    for spec in ("gemini-nano", "../tiny", "os:system", ""):
        with pytest.raises(ModelError, match="give tiny, smollm2, the folder"):
            sources.load_model(spec)
        with pytest.raises(ModelError, match=r"give tiny, smollm2, the folder|There is no module os"):
            sources.model_files(spec)


def test_weights_that_do_not_fit_the_configuration_are_refused(tmp_path: Path) -> None:
    for path in FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "layers": 2}))
    with pytest.raises(ModelError, match=r"do not fit its configuration"):
        sources.load_folder(tmp_path, "broken", {})


def test_a_pickle_in_the_place_of_weights_is_refused(tmp_path: Path) -> None:
    for path in FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    torch.save({"embedding.weight": torch.zeros(2)}, tmp_path / "backbone.safetensors")
    with pytest.raises(ModelError, match="pickled checkpoints are refused"):
        sources.load_folder(tmp_path, "broken", {})
