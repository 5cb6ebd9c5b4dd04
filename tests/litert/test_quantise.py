"""A recipe is what the file holds afterwards, not what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mtplab.litert.recipes import recipe_named

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

    result = quantise(small.backbone, tmp_path / "int8.tflite", recipe_named("dynamic_int8"))
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

    result = quantise(getattr(small, graph), tmp_path / "mixed.tflite", recipe_named("mixed"))
    assert result.after.dtypes_by_role()["body"] == ["INT8"]
    assert result.after.dtypes_by_role()["output_projection"] == ["FLOAT32"]
    kept = [change for change in result.changes if change.role == "output_projection"]
    assert kept and all(change.after == "FLOAT32" for change in kept)


def test_the_float_recipe_leaves_the_file_as_it_is(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.quantise import quantise

    result = quantise(small.head, tmp_path / "float.tflite", recipe_named("float"))
    assert result.touched == 0
    assert (tmp_path / "float.tflite").read_bytes() == small.head.read_bytes()


def test_weight_only_is_seen_through_its_dequantize(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.quantise import quantise

    result = quantise(small.head, tmp_path / "weights.tflite", recipe_named("weight_only_int8"))
    body = [change for change in result.changes if change.role == "body"]
    assert body and all(change.after == "INT8" for change in body)


def test_a_rule_by_module_name_touches_that_module_only(small: Any, names: dict[str, str], tmp_path: Path) -> None:
    from mtplab.litert.quantise import quantise
    from mtplab.litert.recipes import Recipe, Rule

    rule = Rule(match=r"^blocks\.1\.down_proj\.weight$", bits=8, compute="dynamic")
    recipe = Recipe(name="one layer", title="", rules=(rule,))
    result = quantise(small.backbone, tmp_path / "one.tflite", recipe, names)
    changed = {change.module for change in result.changes if change.before != change.after}
    assert changed == {"blocks.1.down_proj.weight"}


def test_a_rule_that_matches_nothing_is_an_error(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.quantise import quantise
    from mtplab.litert.recipes import Recipe, Rule

    recipe = Recipe(name="typo", title="", rules=(Rule(match="no_such_layer", bits=8, compute="dynamic"),))
    with pytest.raises(LiteRtError, match="finds no weight"):
        quantise(small.backbone, tmp_path / "never.tflite", recipe)
    assert not (tmp_path / "never.tflite").exists()


def test_a_request_that_the_quantizer_ignores_is_an_error(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from mtplab.litert import quantise as module
    from mtplab.litert.errors import LiteRtError

    monkeypatch.setattr(module, "_quantise", lambda source, target, *asked: shutil.copyfile(source, target))
    with pytest.raises(LiteRtError, match=r"of \d+ uses .* is FLOAT32 and not INT8 per channel"):
        module.quantise(small.head, tmp_path / "ignored.tflite", recipe_named("dynamic_int8"))


def test_a_recipe_that_quantises_what_it_promised_to_keep_is_an_error(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.quantise import quantise
    from mtplab.litert.recipes import Recipe, Rule

    rules = (Rule(on="output_projection", bits=8, compute="dynamic"),)
    recipe = Recipe(name="contradiction", title="", rules=rules, keep=("output_projection",))
    with pytest.raises(LiteRtError, match="keeps the output projection float"):
        quantise(small.head, tmp_path / "broken.tflite", recipe)


def test_an_unknown_recipe_is_refused_with_the_known_ones() -> None:
    from mtplab.litert.errors import LiteRtError

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


def rules_of(*rules: Any) -> Any:
    from mtplab.litert.recipes import Recipe

    return Recipe(name="test", title="", rules=rules)


def test_later_rules_win_and_may_lift_layers_by_module_name(
    small: Any, names: dict[str, str], tmp_path: Path
) -> None:
    from mtplab.litert.quantise import quantise
    from mtplab.litert.recipes import Rule

    recipe = rules_of(
        Rule(on="body", bits=4, compute="dynamic", granularity="block32", algorithm="octav"),
        Rule(match=r"^blocks\.0\.down_proj", bits=8, compute="dynamic", granularity="tensor"),
        Rule(match=r"^blocks\.1\.down_proj", bits=32, compute="float"),
        Rule(match=r"^blocks\.1\.up_proj", bits=4, compute="weight_only", algorithm="mse"),
    )
    changes = {c.module: c for c in quantise(small.backbone, tmp_path / "q.tflite", recipe, names).changes}
    seen = {
        layer: (changes[f"blocks.{layer}.weight"].after, changes[f"blocks.{layer}.weight"].granularity)
        for layer in ("0.gate_proj", "0.down_proj", "1.down_proj", "1.up_proj")
    }
    assert seen == {
        "0.gate_proj": ("INT4", "block[32]"),
        "0.down_proj": ("INT8", "tensor"),
        "1.down_proj": ("FLOAT32", "none"),
        "1.up_proj": ("INT4", "channel[0]"),
    }
    assert changes["blocks.1.up_proj.weight"].compute == "weight_only"
    assert changes["blocks.0.up_proj.weight"].compute == "dynamic"


def test_fp16_halves_every_weight_and_keeps_floats_at_the_door(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.quantise import quantise

    result = quantise(small.backbone, tmp_path / "h.tflite", recipe_named("fp16"))
    weights = [w for w in result.after.weights if w.role != "other"]
    assert {w.dtype for w in weights} == {"FLOAT16"}
    assert sum(w.bytes for w in weights) * 2 == sum(w.bytes for w in result.before.weights if w.role != "other")


def test_a_tied_table_is_stored_once_however_many_signatures_read_it(small: Any, tmp_path: Path) -> None:
    """The quantizer writes it anew for every signature where lookup and projection differ."""
    from mtplab.litert.quantise import quantise

    result = quantise(small.backbone, tmp_path / "mixed.tflite", recipe_named("mixed_int4_block32"))
    tables = [w for w in result.after.weights if w.role in ("embedding", "output_projection")]
    assert [w.dtype for w in tables] == ["INT8"]
    split = rules_of(
        *recipe_named("mixed_int4").rules,
        *(rule for rule in recipe_named("dynamic_int8").rules if rule.on == "output_projection"),
    )
    result = quantise(small.backbone, tmp_path / "split.tflite", split)
    tables = [w for w in result.after.weights if w.role in ("embedding", "output_projection")]
    assert sorted((w.role, w.dtype) for w in tables) == [("embedding", "FLOAT32"), ("output_projection", "INT8")]
    assert result.after.file_bytes < result.before.file_bytes


def test_a_file_with_shared_tables_still_runs(small: Any, tmp_path: Path) -> None:
    import numpy as np

    from mtplab.litert.quantise import quantise
    from mtplab.litert.runtime import LiteRtBackbone

    quantise(small.backbone, tmp_path / "q.tflite", recipe_named("mixed_int4_block32"))
    got, _ = LiteRtBackbone(tmp_path / "q.tflite", 1).prefill([3, 5, 9, 20])
    wanted, _ = LiteRtBackbone(small.backbone, 1).prefill([3, 5, 9, 20])
    assert np.corrcoef(got, wanted)[0, 1] > 0.8


def test_a_rule_that_matches_nothing_says_what_is_there(small: Any, names: dict[str, str], tmp_path: Path) -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.quantise import quantise
    from mtplab.litert.recipes import Rule

    with pytest.raises(LiteRtError, match=r"matched nothing; the modules here are blocks\.\d\.attention\.q_proj"):
        quantise(
            small.backbone, tmp_path / "q", rules_of(Rule(match="atention.q_proj$", bits=8, compute="dynamic")), names
        )
    with pytest.raises(LiteRtError, match=r"the roles here are body, output_projection"):
        quantise(small.plain_head, tmp_path / "q", rules_of(Rule(on="embedding", bits=8, compute="dynamic")))


def test_an_embedding_is_refused_what_a_lookup_cannot_do(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.quantise import quantise
    from mtplab.litert.recipes import Rule

    with pytest.raises(LiteRtError, match="a lookup takes"):
        quantise(small.backbone, tmp_path / "q", rules_of(Rule(on="embedding", bits=8, compute="weight_only")))


def statistics_of(graph: Path, signatures: tuple[str, ...]) -> dict[str, Any]:
    """What the quantizer's own calibration gives, through JSON, as a calibration stage hands it over."""
    import json

    import numpy as np
    from ai_edge_quantizer.qtyping import TFLOperationName
    from ai_edge_quantizer.quantizer import Quantizer

    from mtplab.litert.runtime import LiteRtBackbone

    runtime = LiteRtBackbone(graph, 1)
    data = {}
    for name in signatures:
        size = runtime.input_shape(name, "tokens")[1]
        tokens, at = np.arange(size, dtype=np.int32)[None] % 95, np.arange(size, dtype=np.int32)
        data[name] = [{"tokens": tokens, "input_pos": at, **runtime.caches()}]
    quantizer = Quantizer(str(graph))
    quantizer.add_static_config(".*", TFLOperationName.FULLY_CONNECTED, 8, 8)
    found = quantizer.calibrate(data, num_threads=1)
    return dict(json.loads(json.dumps({k: {n: v.tolist() for n, v in one.items()} for k, one in found.items()})))


@pytest.mark.parametrize(("recipe", "compute"), [("static_int8", "static_int8"), ("static_int16", "static_int16")])
def test_a_static_recipe_needs_statistics_of_every_signature(
    small: Any, tmp_path: Path, recipe: str, compute: str
) -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.quantise import quantise
    from mtplab.litert.runtime import LiteRtBackbone

    target = tmp_path / "s.tflite"
    with pytest.raises(LiteRtError, match="needs calibration statistics and there are none"):
        quantise(small.backbone, target, recipe_named(recipe))
    with pytest.raises(LiteRtError, match=r"lack decode, verify .*calibrate every signature"):
        quantise(small.backbone, target, recipe_named(recipe), None, statistics_of(small.backbone, ("prefill_16",)))
    whole = statistics_of(small.backbone, ("prefill_16", "decode", "verify"))
    result = quantise(small.backbone, target, recipe_named(recipe), None, whole)
    assert {change.compute for change in result.changes if change.role == "body"} == {compute}
    logits, hidden = LiteRtBackbone(target, 1).prefill([3, 5, 9, 20])
    assert logits.dtype == hidden.dtype == "float32"
