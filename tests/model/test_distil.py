"""Self-distillation: text is made once, training resumes to the same weights, and judges as decoding would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")

from mtplab.model import distil_data, distil_fit  # noqa: E402
from mtplab.model.backbone import Backbone, BackboneConfig  # noqa: E402
from mtplab.model.deployed import DeployedBackbone, Row  # noqa: E402
from mtplab.model.distil_data import Sample, Shards, Tokens, batches_of, draft_vocabulary  # noqa: E402
from mtplab.model.distil_fit import FitRecipe, fit, judge, sample_rounds  # noqa: E402
from mtplab.model.errors import ModelError  # noqa: E402
from mtplab.model.evaluate import Text, rounds_of  # noqa: E402
from mtplab.model.heads import Head, build_head, load_head  # noqa: E402
from mtplab.model.kinds import KINDS  # noqa: E402

pytestmark = pytest.mark.pipeline
SMALL = FitRecipe(steps=30, muon_rate=0.02, positions_per_step=64, negatives=16, evaluate_every=10, warm_up=2)


def prompts(count: int) -> list[Tokens]:
    return [Tokens([1 + i % 3, 5 + i % 40, 9 + i % 7][: 2 + i % 2], "even" if i % 2 else "odd") for i in range(count)]


@pytest.fixture
def backbone() -> Backbone:
    """An untied one: a tied random backbone repeats its input, which any untrained head guesses."""
    torch.manual_seed(6)
    shape = {"vocab": 64, "d_model": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "ff": 64}
    model = Backbone(BackboneConfig(**shape, context=32, tied=False)).eval()
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() == 2:
                value.mul_(6)
    return model


def samples(backbone: Backbone, count: int = 12) -> list[Sample]:
    given = prompts(count)
    rows = DeployedBackbone(backbone, "float").texts([one.ids for one in given], 16, None)
    return [Sample(prompt_class=one.prompt_class, row=row) for one, row in zip(given, rows, strict=True)]


def silent(line: str) -> None:
    """Progress that nobody reads."""


def weights(head: Head) -> list[Any]:
    return [value.detach().clone() for _, value in head.own_parameters()]


def test_text_is_made_once_and_an_interrupted_making_goes_on(backbone: Backbone, tmp_path: Path) -> None:
    deployed, batches = DeployedBackbone(backbone, "float"), batches_of(prompts(10), 2)
    calls: list[int] = []

    def run(given: list[list[int]]) -> list[Row]:
        calls.append(len(given))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return deployed.texts(given, 5, None)

    shards = Shards(tmp_path, "a", ["these"])
    with pytest.raises(KeyboardInterrupt):
        shards.make(batches, run, silent)
    assert not shards.complete(batches)
    shards.make(batches, run, silent)
    assert shards.complete(batches)
    assert len(calls) == len(batches) + 1, "only the interrupted batch ran twice"
    found = list(shards.samples())
    assert sorted((*one.row.tokens[: one.row.prompt_length].tolist(),) for one in found) == sorted(
        (*one.ids,) for one in prompts(10)
    )
    again = deployed.texts([found[0].row.tokens[: found[0].row.prompt_length].tolist()], 5, None)[0]
    assert torch.equal(found[0].row.tokens, again.tokens)
    torch.testing.assert_close(found[0].row.k.float(), again.k, atol=1e-2, rtol=1e-2)
    assert len(list(Shards(tmp_path, "a").samples())) == 10, "as text made elsewhere it may have any prompts"
    for backbone_name, asked, word in (("b", "these", "backbone"), ("a", "those", "prompts")):
        with pytest.raises(ModelError, match=f"another choice of {word}"):
            list(Shards(tmp_path, backbone_name, [asked]).samples())


def test_the_draft_vocabulary_is_what_was_generated_most_often() -> None:
    def sample(chosen: list[int]) -> Sample:
        empty = torch.zeros(0)
        row = Row(tokens=empty, choices=torch.tensor(chosen), hidden=empty, k=empty, v=empty, prompt_length=3)
        return Sample(prompt_class="c", row=row)

    # The first two positions lie inside the prompt and do not count.
    found = draft_vocabulary([sample([9, 9, 5, 5, 5, 7]), sample([9, 9, 7, 2])], 2, vocab=12)
    assert (found.ids, found.counted_tokens, found.coverage) == ([5, 7], 6, 0.8333)
    assert draft_vocabulary([sample([9, 9, 5])], 3, vocab=12).ids == [0, 1, 5], "filled with the lowest ids"
    assert distil_data.coverage([sample([9, 9, 5, 1])], [5, 7]) == 0.5
    with pytest.raises(ModelError, match="choose 1 to 11"):
        draft_vocabulary([sample([9, 9, 5])], 12, vocab=12)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_text_is_judged_by_the_rounds_that_decoding_would_make(backbone: Backbone, kind: Any) -> None:
    text = samples(backbone)
    head = build_head(kind, backbone, gamma=2, draft_ids=range(0, 64, 2))
    for sample in text[:4]:
        expected = rounds_of(
            backbone,
            head,
            Text(prompt_class="c", tokens=sample.row.tokens, prompt_length=sample.row.prompt_length, spare=2),
        )
        assert sample_rounds(head, sample) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_learns_the_backbones_text_and_the_backbone_stays(
    backbone: Backbone, kind: Any, tmp_path: Path
) -> None:
    margin = 0.05 if kind in ("recurrent_residual", "parallel") else 0.3  # one small matrix knows less
    text = samples(backbone, 24)
    before = [value.clone() for value in backbone.parameters()]
    torch.manual_seed(2)
    head = build_head(kind, backbone, gamma=2, draft_ids=sorted(draft_vocabulary(text, 40, 64).ids))
    untrained = judge(head, text[:6])["all"].mean_accepted
    ended = fit(backbone, head, text, text[:6], SMALL, tmp_path / "c.safetensors", silent)
    trained = judge(head, text[:6])["all"].mean_accepted
    assert ended["steps"] == 30 and ended["ended"] == "all steps done"
    assert untrained is not None and trained is not None and trained > untrained + margin
    assert all(torch.equal(one, other) for one, other in zip(before, backbone.parameters(), strict=True))


def test_a_regression_gives_a_head_that_knows_something_before_any_step(backbone: Backbone) -> None:
    text = samples(backbone, 24)
    torch.manual_seed(2)
    head = build_head("token_conditioned", backbone, gamma=1)
    before = judge(head, text)["all"].mean_accepted
    assert distil_fit.start_by_regression(head, text)
    after = judge(head, text)["all"].mean_accepted
    assert before is not None and after is not None and after > before + 0.2
    assert not distil_fit.start_by_regression(build_head("parallel", backbone), text)


def test_a_resumed_training_ends_with_the_same_weights(backbone: Backbone, tmp_path: Path) -> None:
    text = samples(backbone)

    def train(checkpoint: str, stops: list[bool]) -> tuple[Head, dict[str, Any]]:
        torch.manual_seed(2)
        head = build_head("zero_copy", backbone, gamma=2)
        answers = iter(stops)
        result = fit(
            backbone, head, text, text[:4], SMALL, tmp_path / checkpoint, silent, lambda: next(answers, False)
        )
        return head, result

    whole, _ = train("whole", [])
    _, first = train("parts", [False] * 12 + [True])
    assert first["ended"] == "stopped" and first["steps"] == 13
    resumed, second = train("parts", [])
    assert second["steps"] == 30
    for one, other in zip(weights(whole), weights(resumed), strict=True):
        assert torch.equal(one, other)


def test_training_stops_early_and_keeps_the_best(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, seen = samples(backbone), []

    def worse_every_time(head: Head, held_back: Any) -> Any:
        seen.append(weights(head))
        return {"all": judged[min(len(seen), 2) - 1]}

    head = build_head("token_conditioned", backbone, gamma=2)
    real = judge(head, text[:2])["all"]
    judged = [distil_fit.Acceptance(rounds=real.rounds, mean_accepted=mean, alpha=real.alpha) for mean in (0.9, 0.1)]
    monkeypatch.setattr(distil_fit, "judge", worse_every_time)
    recipe = FitRecipe(steps=200, positions_per_step=64, negatives=16, evaluate_every=2, patience=3)
    ended = fit(backbone, head, text, text[:2], recipe, tmp_path / "c", silent)
    assert ended["ended"] == "no better mean accepted for a while" and ended["steps"] == 8
    assert all(torch.equal(one, other) for one, other in zip(weights(head), seen[0], strict=True))


def test_prompts_to_learn_from_share_no_entry_with_held_out_ones() -> None:
    from mtplab.model.corpus import Document
    from mtplab.model.distil_prompts import CLASSES, PromptSource
    from mtplab.model.prompts import load_prompts

    documents = [
        Document(name, f"x = 1\n\ndef {name}(a, b):\n" + "    a = a + b\n" * 20 + f"# {sentence} \n", held_out)
        for name, sentence, held_out in (
            ("learn", "The quick brown fox jumps over the lazy dog and runs away from it.", False),
            ("judge", "A library of many books is a quiet place for those who like to read.", True),
        )
    ]
    source = {side: PromptSource(3, held_out=side, documents=documents) for side in (False, True)}
    for slot in source[False].slots:
        assert not set(source[False].slots[slot]) & set(source[True].slots[slot]), slot
        assert source[True].slots[slot], slot
    assert "judge" in source[True].functions[0] and "learn" in source[False].functions[0]
    made = list(source[False].distinct(dict.fromkeys(CLASSES, 12) | {"code": 1}))
    assert len({prompt.text for prompt in made}) == 37
    assert not [prompt.text for prompt in made if "{" in prompt.text and not prompt.raw]
    shipped = load_prompts("assistant")
    assert {name: len(shipped.of_class(name)) for name in shipped.classes()} == dict.fromkeys(CLASSES, 30)
    assert not {prompt.text for prompt in made} & {prompt.text for prompt in shipped.prompts}


def test_the_command_trains_a_head_for_the_tiny_model_with_a_card(tmp_path: Path) -> None:
    from mtplab.model.train_head_command import train_head_command

    given = [{"id": str(i), "class": "code", "text": f"def f{i}(a):\n    return"} for i in range(26)]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, given)))
    (tmp_path / "t.txt").write_text("import os\nimport sys\n" * 40)
    command = [
        "--model",
        "tiny",
        "--kind",
        "zero_copy",
        "--gamma",
        "2",
        "--draft-vocab",
        "256",
        "--out",
        str(tmp_path),
    ]
    command += ["--prompts", str(tmp_path / "p.jsonl"), "--text", str(tmp_path / "t.txt"), "--new-tokens", "12"]
    command += ["--held-out", "4", "--steps", "3"]
    elsewhere = ["--seed", "5", "--work", str(tmp_path / "other"), "--only-text"]
    assert CliRunner().invoke(train_head_command, [*command, *elsewhere], standalone_mode=False).return_value == 0
    command += ["--also", str(tmp_path / "other")]
    result = CliRunner().invoke(train_head_command, command, standalone_mode=False)
    assert result.return_value == 0, result.output
    from mtplab.model.sources import load_model

    head = load_head(tmp_path / "head_zero_copy.safetensors", load_model("tiny").backbone)
    assert head.gamma == 2 and head.config.draft_vocab == 256
    card = json.loads((tmp_path / "card_zero_copy.json").read_text())
    assert card["texts"] == 24 + 2 + 26 and card["result"]["steps"] == 3
    assert str(tmp_path) not in json.dumps(card), "a card says nothing about the machine it was made on"
    assert set(card["held_out"]["by_class"]) == {"templated", "code", "chat", "open"}
    text = (tmp_path / "MODEL_CARD_zero_copy.md").read_text()
    assert card["sha256"] in text and "drafts the 256 tokens" in text
    assert '"alpha_1"' in result.output and '"accepted"' in result.output
