"""What a run is given by a name or a file is chosen before anything begins, and refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplab.engine.errors import EngineError
from mtplab.engine.options import RunOptions
from mtplab.engine.runner import check_run
from mtplab.model.errors import ModelError
from mtplab.model.prompts import load_prompts
from mtplab.pipeline.choices import HeadFile, choose, choose_model, head_name, model_name, prompt_sets
from mtplab.pipeline.host_run import key_of
from mtplab.pipeline.stage import RunParameters, params_for


def test_every_model_has_its_own_default_head_and_prompts(tmp_path: Path) -> None:
    assert choose(None, None, "tiny") == "token_conditioned"
    assert choose(None, None, "smollm2") == "zero_copy"
    assert prompt_sets("tiny") == ("demo", "acceptance")
    assert prompt_sets("smollm2") == ("classes:4", "classes:4")
    _, parameters = check_run(RunOptions(prompts="classes:2", judge_prompts="classes:3"))
    assert (parameters.policy.prompt_set, parameters.acceptance_set) == ("classes:2", "classes:3")
    judged = params_for("acceptance", parameters)["acceptance_prompts"]
    own = tmp_path / "customer.jsonl"
    own.write_text('{"id": "1", "class": "c", "text": "x"}\n')
    _, given = check_run(RunOptions(prompts=str(own), judge_prompts=f"{own}:02"))
    assert given.policy.prompt_set == "customer", "a session never says where a file lies"
    assert params_for("acceptance", given)["acceptance_prompts"]["name"] == "customer:2"
    assert params_for("freeze", given)["prompts"]["path"] == str(own)
    assert judged["name"] == "classes:3" and len(load_prompts(judged["path"]).prompts) == 15
    assert (
        judged["sha256"]
        == params_for("acceptance", RunParameters(acceptance_set="classes"))["acceptance_prompts"]["sha256"]
    )
    _, parameters = check_run(RunOptions())
    assert (parameters.head, parameters.policy.prompt_set, parameters.acceptance_set) == (
        "token_conditioned",
        "demo",
        "acceptance",
    )


def test_a_folder_with_one_head_needs_no_name_for_it_and_its_place_stays_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    model = choose_model("mine", from_command_line=False)
    assert model == str(folder) and model_name(model) == "mine"
    with pytest.raises(ModelError, match=r"mine has no draft heads of its own.*train-head"):
        choose(None, None, model)
    (folder / "head_parallel.safetensors").write_bytes(b"x")
    assert choose(None, None, model) == "parallel"
    (folder / "head_zero_copy.safetensors").write_bytes(b"x")
    with pytest.raises(ModelError, match="has 2 draft heads"):
        choose(None, None, model)


def test_a_head_file_is_known_by_its_bytes_and_not_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtplab.pipeline.stage.model_files", lambda spec: {"backbone.safetensors": "00"})
    keys = []
    for place, data in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / place).mkdir()
        path = tmp_path / place / "head.safetensors"
        path.write_bytes(data)
        choice = choose(str(path), None, "tiny")
        assert isinstance(choice, HeadFile) and head_name(choice) == "head.safetensors"
        run = RunParameters(head=choice)
        inputs = {"backbone.json": "00", "head.json": "00"}
        keys.append(key_of("export", params_for("export", run), inputs))
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (RunOptions(model="os:getcwd"), "only a command line may ask for"),
        (RunOptions(model="nowhere"), "is not known"),
        (RunOptions(head="no-such-file"), "There is no head 'no-such-file'"),
        (RunOptions(head_map="map.toml"), "A map belongs to a head's file"),
        (RunOptions(gammas=(1, 9)), "Draft lengths to export lie in 1…8"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(options: RunOptions, sentence: str) -> None:
    with pytest.raises(EngineError, match=sentence) as refused:
        check_run(options)
    assert refused.value.exit_code == 1


def test_a_factory_is_taken_from_the_command_line_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_model_for_a_test.py").write_text("raise AssertionError('it must not be run here')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    options = RunOptions(model="my_model_for_a_test:make", head="token_conditioned")
    _, parameters = check_run(options, from_command_line=True)
    assert parameters.model == "my_model_for_a_test:make"
    assert set(params_for("freeze", parameters)["model_files"]) == {"my_model_for_a_test.py"}
    with pytest.raises(EngineError, match="only a command line"):
        check_run(options)
