"""A recipe is what the file holds afterwards, not what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.pipeline


@pytest.fixture(scope="module")
def names(small: Any) -> dict[str, str]:
    from mtplab.litert.export import module_names

    return module_names(small.torch_backbone, small.backbone)


def test_every_linear_weight_is_found_in_the_graph_under_its_module(small: Any, names: dict[str, str]) -> None:
    linears = {
        f"{name}.weight"
        for name, module in small.torch_backbone.named_modules()
        if type(module).__name__ == "Linear" and name != "lm_head"
    }
    assert linears <= set(names.values())


def test_int8_is_proven_by_reading_the_weights_back(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.quantise import quantise

    result = quantise(small.backbone, tmp_path / "int8.tflite", "dynamic_int8")
    assert result.after.dtypes_by_role()["body"] == ["INT8"]
    assert result.after.dtypes_by_role()["output_projection"] == ["INT8"]
    assert all(change.after == "INT8" for change in result.changes)
    assert all(change.granularity == "channel[0]" for change in result.changes)
    assert result.before.dtypes_by_role()["body"] == ["FLOAT32"]
    body = sum(weight.bytes for weight in result.before.of("body"))
    assert sum(weight.bytes for weight in result.after.of("body")) * 4 == body


@pytest.mark.parametrize("graph", ["backbone", "head", "plain_head"])
def test_mixed_keeps_the_output_projection_float(small: Any, tmp_path: Path, graph: str) -> None:
    from mtplab.litert.quantise import quantise

    result = quantise(getattr(small, graph), tmp_path / "mixed.tflite", "mixed")
    assert result.after.dtypes_by_role()["body"] == ["INT8"]
    assert result.after.dtypes_by_role()["output_projection"] == ["FLOAT32"]
    kept = [change for change in result.changes if change.role == "output_projection"]
    assert kept and all(change.after == "FLOAT32" for change in kept)


def test_the_float_recipe_leaves_the_file_as_it_is(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.quantise import quantise

    result = quantise(small.head, tmp_path / "float.tflite", "float")
    assert result.touched == 0
    assert (tmp_path / "float.tflite").read_bytes() == small.head.read_bytes()


def test_weight_only_is_seen_through_its_dequantize(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.quantise import quantise

    result = quantise(small.head, tmp_path / "weights.tflite", "weight_only_int8")
    body = [change for change in result.changes if change.role == "body"]
    assert body and all(change.after == "INT8" for change in body)


def test_a_rule_by_module_name_touches_that_module_only(small: Any, names: dict[str, str], tmp_path: Path) -> None:
    from mtplab.litert.quantise import Recipe, Rule, quantise

    rule = Rule(match=r"^blocks\.1\.down_proj\.weight$", bits=8, compute="dynamic")
    recipe = Recipe(title="one layer", rules=(rule,))
    result = quantise(small.backbone, tmp_path / "one.tflite", "one", recipe, names)
    changed = {change.module for change in result.changes if change.before != change.after}
    assert changed == {"blocks.1.down_proj.weight"}


def test_a_rule_that_matches_nothing_is_an_error(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.quantise import Recipe, Rule, quantise

    recipe = Recipe(title="typo", rules=(Rule(match="no_such_layer", bits=8, compute="dynamic"),))
    with pytest.raises(LiteRtError, match="finds no weight"):
        quantise(small.backbone, tmp_path / "never.tflite", "typo", recipe)
    assert not (tmp_path / "never.tflite").exists()


def test_a_request_that_the_quantizer_ignores_is_an_error(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from mtplab.litert import quantise as module
    from mtplab.litert.errors import LiteRtError

    monkeypatch.setattr(module, "_quantise", lambda source, target, wanted: shutil.copyfile(source, target))
    with pytest.raises(LiteRtError, match="asked for INT8 but"):
        module.quantise(small.head, tmp_path / "ignored.tflite", "dynamic_int8")


def test_a_recipe_that_quantises_what_it_promised_to_keep_is_an_error(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.quantise import Recipe, Rule, quantise

    rules = (Rule(on="output_projection", bits=8, compute="dynamic"),)
    recipe = Recipe(title="contradiction", rules=rules, keep=("output_projection",))
    with pytest.raises(LiteRtError, match="keeps the output projection float"):
        quantise(small.head, tmp_path / "broken.tflite", "contradiction", recipe)


def test_an_unknown_recipe_is_refused_with_the_known_ones() -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.quantise import recipe_named

    with pytest.raises(LiteRtError, match="mixed"):
        recipe_named("int3")


def test_converter_lines_become_progress_and_are_passed_on() -> None:
    import io

    from mtplab.litert.export import ConverterLines

    seen: list[tuple[int, int, str]] = []
    onward = io.StringIO()
    lines = ConverterLines(lambda *args: seen.append(args), 5, onward)
    lines.write("(00:00) [START] LiteRT-Torch Convert\n(00:00) [START] LiteRT-Torch Convert > Torch")
    lines.write(" Export: draft\n(00:01) [START] LiteRT-Torch Convert > Torch Export: draft > Inner\n")
    lines.write("(00:02) [ DONE] LiteRT-Torch Convert > Torch Export: draft (+00:02)\n")
    assert seen == [(0, 5, "Torch Export: draft"), (1, 5, "Torch Export: draft")]
    assert onward.getvalue().count("\n") == 4
