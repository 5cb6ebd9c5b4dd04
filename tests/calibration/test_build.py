"""The set: duplicates, tokens of every script, the system prompt, how many, how long; saved and refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("datasketch")

from mtplab.calibration.build import Plan, build_set
from mtplab.calibration.duplicates import exact_duplicates, near_duplicates
from mtplab.calibration.errors import CalibrationError
from mtplab.calibration.lengths import Distribution
from mtplab.calibration.reader import Reader
from mtplab.calibration.record import CalibrationSet, load_set, require_tokenizer, save_set
from mtplab.calibration.sources import Log, Record, Turn

TINY = Path(__file__).parents[2] / "mtplab" / "model" / "tiny" / "tokenizer.json"
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WORDS = ["amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll", "larch"]


def quiet(done: int, total: int, note: str) -> None:
    """Progress that nobody watches."""


def reader(template: str | None = None, vocab: int = 1024) -> Reader:
    return Reader("tiny", TINY, vocab, template)


def said(*texts: str, system: str | None = None, raw: bool = False) -> Log:
    records = [Record(turns=(Turn("user", text),), place="x", system=system, raw=raw) for text in texts]
    return Log(tuple(records), (), 0)


def different(count: int, words: int = 6) -> list[str]:
    """Texts that share no three tokens in a row, of `words` to three times as many words."""
    return [
        " ".join(
            WORDS[(n * 7 + k * (n % 11 + 2)) % len(WORDS)] + str(n * 31 + k) for k in range(words + n % (2 * words))
        )
        for n in range(count)
    ]


def build(log: Log, least: int = 5, with_reader: Reader | None = None, **plan: Any) -> CalibrationSet:
    wanted: dict[str, Any] = {"longest": 250, "size": 8, "no_system": True, **plan}
    return build_set(log, with_reader or reader(), Plan(**wanted), quiet, least)


def test_what_people_read_as_the_same_is_the_same() -> None:
    assert exact_duplicates(["Hello  world", "hello world ", "ｈｅｌｌｏ world", "hello, world"]) == {1, 2}


def test_near_duplicates_are_found_in_scripts_without_spaces() -> None:
    base = "请把下面这段话翻译成英文，并且保持原来的语气和格式不要改变任何数字"
    other = "今天的天气很好，我们一起去公园散步，然后在湖边吃午饭"
    ids = reader().encode([base, base[:-1] + "值", other], quiet, "")
    assert near_duplicates(ids, 0.8, quiet) == {1}
    assert near_duplicates(ids, 1.0, quiet) == set()


def test_every_row_that_was_read_is_accounted_for() -> None:
    texts = different(12)
    log = said(*texts, texts[0], texts[1] + " ok", "word " * 400)
    counts = build(log).counts
    assert (counts.exact_duplicates, counts.near_duplicates, counts.too_long) == (1, 1, 1)
    parts = msgspec.to_builtins(counts)
    assert parts.pop("read") == 15 == sum(parts.values())


def test_lengths_are_tokens_and_not_characters() -> None:
    latin, han = "the the the the", "你好世界"
    found = build(said(*different(6), latin, han), size=8)
    lengths = {prompt.text_sha256: len(prompt.tokens) for prompt in found.prompts}
    alone = reader().encode([han], quiet, "")[0]
    assert len(alone) > len(han)  # three bytes a character, and this tokenizer knows few Chinese ones
    assert len(alone) in lengths.values()
    assert found.lengths.mean == pytest.approx(sum(lengths.values()) / 8)


def test_the_choice_comes_closer_to_production_and_says_how_close() -> None:
    log = said(*different(60))
    target = Distribution.of([30, 31, 32, 90], "prod.json")
    found = build(log, size=16, target=target)
    assert found.lengths.distance_tokens is not None and found.lengths.distance_before is not None
    assert found.lengths.distance_tokens < found.lengths.distance_before
    assert found.lengths.production_name == "prod.json"
    assert sum(found.lengths.production or ()) == pytest.approx(1)


def test_a_set_far_from_production_warns_and_names_what_lacks() -> None:
    found = build(said(*different(12)), target=Distribution.of([200, 210, 220]))
    assert any("from production's" in one and "most lacking are prompts of 2" in one for one in found.warnings)


def test_without_production_lengths_the_distance_is_unknown_with_a_reason() -> None:
    lengths = build(said(*different(12))).lengths
    assert (lengths.distance_tokens, lengths.production) == (None, None)
    assert lengths.reason == "no production lengths were given"


def test_a_set_without_a_system_prompt_is_refused_unless_there_is_none() -> None:
    log = said(*different(12))
    with pytest.raises(CalibrationError, match="12 of 12 prompts carry no system prompt"):
        build(log, no_system=False)
    assert build(log).system.kind == "declared absent"
    assert build(said(*different(12), system="be kind"), no_system=False).system.kind == "in the rows"


def test_the_whole_system_prompt_stands_in_every_prompt_inside_the_chat_template() -> None:
    system = "Answer in one sentence, always politely."
    found = build(said(*different(12)), with_reader=reader(TEMPLATE), system=system, no_system=False)
    start = reader().encode([f"<system>{system}<user>"], quiet, "")[0][:-2]
    assert all(prompt.tokens[: len(start)] == start for prompt in found.prompts)
    assert found.system.kind == "given" and found.system.tokens


def test_a_template_that_drops_the_system_prompt_is_refused() -> None:
    deaf = reader("{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}")
    with pytest.raises(CalibrationError, match="leaves the system prompt out"):
        build(said(*different(12)), with_reader=deaf, system="be kind")


def test_too_few_prompts_are_refused_and_say_where_they_went() -> None:
    text = different(1)[0]
    with pytest.raises(CalibrationError, match=r"Only 1 usable prompts are left of 9 \(8 repeat another"):
        build(said(*[text] * 9))
    with pytest.raises(CalibrationError, match="200 to 1000 prompts and not 20"):
        build_set(said("x"), reader(), Plan(longest=9, size=20, no_system=True), quiet)


def test_the_same_log_gives_the_same_set_in_any_order() -> None:
    texts = different(40)
    one, other = build(said(*texts)), build(said(*reversed(texts)))
    assert {p.text_sha256 for p in one.prompts} == {p.text_sha256 for p in other.prompts}
    assert build(said(*texts)).sha256 == one.sha256


def test_another_models_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="knows 1024 tokens and the model tiny only 500"):
        reader(vocab=500)
    from tokenizers import Tokenizer, models, pre_tokenizers

    deaf = Tokenizer(models.WordLevel(vocab={"<unk>": 0, "the": 1}, unk_token="<unk>"))
    deaf.pre_tokenizer = pre_tokenizers.Whitespace()
    deaf.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(CalibrationError, match="unknown to the tokenizer"):
        build(said(*different(12)), with_reader=Reader("other", tmp_path / "tokenizer.json", 1024))


def test_a_set_is_read_as_it_was_written_and_only_by_its_owner(tmp_path: Path) -> None:
    found = build(said(*different(12)))
    path = tmp_path / "calibration.json"
    save_set(path, found)
    assert load_set(path) == found
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert different(1)[0] not in path.read_text()


def test_a_set_that_was_edited_or_belongs_to_another_tokenizer_is_refused(tmp_path: Path) -> None:
    found = build(said(*different(12)))
    path = tmp_path / "calibration.json"
    save_set(path, found)
    require_tokenizer(found, "tiny", found.tokenizer_sha256, 1024)
    with pytest.raises(CalibrationError, match="made with the tokenizer of tiny"):
        require_tokenizer(found, "smollm2", "0" * 64, 49152)
    with pytest.raises(CalibrationError, match="knows 100 tokens only"):
        require_tokenizer(found, "tiny", found.tokenizer_sha256, 100)
    value = json.loads(path.read_text())
    value["prompts"][0]["tokens"][0] += 1
    path.write_text(json.dumps(value))
    with pytest.raises(CalibrationError, match="changed after it was built"):
        load_set(path)
    path.write_text("{}")
    with pytest.raises(CalibrationError, match="is no calibration set"):
        load_set(path)


def test_the_shipped_log_gives_a_set_for_the_shipped_model() -> None:
    from mtplab.calibration.sources import read_logs

    log = read_logs(["calibration"])
    found = build_set(log, reader(), Plan(longest=250, size=256, no_system=True), quiet)
    assert len(found.prompts) == 256
    assert {prompt.prompt_class for prompt in found.prompts} == {"templated", "code", "chat", "open", "prose"}
