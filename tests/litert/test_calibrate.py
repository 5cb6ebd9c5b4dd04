"""Statistics: every signature of both graphs, the quantiser's own form, resumed to the last bit, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_quantizer")

from mtplab.litert import calibrate, shared_ranges
from mtplab.litert.calibrate import PLAIN_STEPS, Collected, collect
from mtplab.litert.errors import LiteRtError
from mtplab.litert.statistics import (
    load_statistics,
    packed,
    read_statistics,
    require_every_signature,
    signatures_of,
    write_json,
)

PROMPTS = [[(3 * n + k) % 95 for k in range(length)] for n, length in enumerate((1, 5, 16, 17, 40, 94))]


def quiet(done: int, total: int, note: str) -> None:
    """Progress that nobody watches."""


@pytest.fixture(scope="module")
def graphs(small: Any) -> dict[str, Path]:
    return {"backbone": small.backbone, "head": small.head}


@pytest.fixture(scope="module")
def collected(graphs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Collected]:
    folder = tmp_path_factory.mktemp("statistics")
    return folder, collect(graphs, PROMPTS, "set", folder, quiet)


def test_every_prompt_goes_through_every_signature_in_its_exported_shape(collected: tuple[Path, Collected]) -> None:
    samples = collected[1].samples
    # One, one, one, two (16 + a plain step), three and six calls; the prompt of one token is a plain step beside it.
    assert samples["backbone"] == {"prefill_16": 1 + 1 + 1 + 1 + 3 + 6, "decode": 2 + PLAIN_STEPS * 6, "verify": 6}
    assert samples["head"] == dict.fromkeys(("draft", "choices"), 6 * (1 + PLAIN_STEPS))


def test_the_quantiser_reads_the_file_as_its_own_and_makes_a_static_graph(
    graphs: dict[str, Path], collected: tuple[Path, Collected], tmp_path: Path
) -> None:
    from ai_edge_quantizer import recipe
    from ai_edge_quantizer.quantizer import Quantizer
    from ai_edge_quantizer.utils.calibration_utils import load_calibration_results

    for name, graph in graphs.items():
        path = collected[0] / f"{name}_statistics.json"
        ranges, metadata = load_calibration_results(str(path))
        assert metadata["num_samples_calibrated"] == sum(collected[1].samples[name].values())
        own = load_statistics(path, graph)
        assert own.keys() == ranges.keys()
        quantizer = Quantizer(str(graph), recipe.static_wi8_ai8())
        result = quantizer.quantize(own, enable_progress_report=False, enable_progress_bar=False)
        assert len(result.quantized_model) < graph.stat().st_size


def test_decode_and_verify_share_the_range_of_what_a_weight_reads_and_prefill_has_its_own(
    graphs: dict[str, Path],
) -> None:
    places: dict[str, set[str]] = {}
    for name, one in signatures_of(graphs["backbone"]).items():
        places |= {tensor: {name} for tensor in one.activations}
    groups = shared_ranges.groups_of(graphs["backbone"])
    spans = [set().union(*(places[tensor] for tensor in group if tensor in places)) for group in groups]
    assert {"decode", "verify"} in spans and {"prefill_16"} in spans
    assert not any("prefill_16" in span and len(span) > 1 for span in spans)
    group = max((group for group, span in zip(groups, spans, strict=True) if "verify" in span), key=len)
    apart = {
        name: {"min": np.array([-float(n)]), "max": np.array([n + 1.0])} for n, name in enumerate(sorted(group), 1)
    }
    together = shared_ranges.shared_ranges(graphs["backbone"], apart)
    assert {float(one["min"][0]) for one in together.values()} == {-float(len(group))}
    assert {float(one["max"][0]) for one in together.values()} == {len(group) + 1.0}


def test_a_static_backbone_verifies_exactly_what_it_would_have_written(
    graphs: dict[str, Path], collected: tuple[Path, Collected], tmp_path: Path
) -> None:
    from mtplab.litert.quantise import quantise
    from mtplab.litert.recipes import recipe_named
    from mtplab.litert.runtime import LiteRtBackbone

    ranges = load_statistics(collected[0] / "backbone_statistics.json", graphs["backbone"])
    quantise(graphs["backbone"], tmp_path / "static.tflite", recipe_named("static_int8"), statistics=ranges)
    backbone = LiteRtBackbone(tmp_path / "static.tflite")
    agreed = 0
    for prompt in PROMPTS[1:5]:
        backbone.reset()
        backbone.prefill(prompt)
        stepwise = [backbone.decode(token, len(prompt) + k)[0] for k, token in enumerate(prompt[:4])]
        backbone.prefill(prompt)
        at_once = backbone.verify(prompt[:4], len(prompt))[0]
        agreed += sum(int(a.argmax() == b.argmax()) for a, b in zip(stepwise, at_once, strict=True))
    assert agreed == 16


def test_ranges_hold_what_the_graph_really_computes(graphs: dict[str, Path], tmp_path: Path) -> None:
    from mtplab.litert.runtime import LiteRtBackbone

    collect(graphs, PROMPTS[-1:], "set", tmp_path, quiet, widening="min_max")
    ranges, _ = read_statistics(tmp_path / "backbone_statistics.json")
    logits, hidden = LiteRtBackbone(graphs["backbone"]).score(PROMPTS[-1][:16])
    name = next(name for name in ranges if name.startswith("prefill_16_logits"))
    assert ranges[name]["min"][0] <= logits.min() + 1e-3 and ranges[name]["max"][0] >= logits.max() - 1e-3
    name = next(name for name in ranges if name.startswith("prefill_16_hidden"))
    assert ranges[name]["max"][0] >= hidden.max() - 1e-3


def test_interrupted_work_goes_on_and_ends_with_the_same_bits(
    graphs: dict[str, Path], collected: tuple[Path, Collected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "_SAVE_EVERY_S", 0.0)
    resume = tmp_path / "work.json"

    def cut(done: int, total: int, note: str) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(graphs, PROMPTS, "set", tmp_path, cut, resume=resume)
    ended = collect(graphs, PROMPTS, "set", tmp_path, quiet, resume=resume)
    assert ended.resumed_after == 4 and ended.samples == collected[1].samples
    assert not resume.exists()
    for name in graphs:
        file = f"{name}_statistics.json"
        assert (tmp_path / file).read_bytes() == (collected[0] / file).read_bytes()


@pytest.mark.parametrize("damage", ["another set", "torn", "another shape"])
def test_work_on_something_else_is_not_gone_on_with(
    graphs: dict[str, Path], collected: tuple[Path, Collected], tmp_path: Path, damage: str
) -> None:
    resume = tmp_path / "work.json"
    value = {name: json.loads((collected[0] / f"{name}_statistics.json").read_text()) for name in graphs}
    if damage == "another shape":
        value["backbone"]["metadata"]["mtplab"]["samples"]["verify_9"] = 3
    text = json.dumps(value)
    resume.write_text(text[:900] if damage == "torn" else text)
    named = "another" if damage == "another set" else "set"
    assert collect(graphs, PROMPTS, named, tmp_path, quiet, resume=resume).resumed_after == 0


def test_a_signature_without_data_is_an_error_that_names_it(
    graphs: dict[str, Path], collected: tuple[Path, Collected], tmp_path: Path
) -> None:
    ranges, origin = read_statistics(collected[0] / "backbone_statistics.json")
    signatures = signatures_of(graphs["backbone"])
    only = {**dict.fromkeys(signatures, 0), "decode": 24}
    with pytest.raises(LiteRtError, match=r"signature prefill_16 of backbone has no calibration data \(only decode"):
        require_every_signature("backbone", signatures, ranges, only)
    lost = signatures["verify"].activations[0]
    del ranges[lost]
    path = tmp_path / "statistics.json"
    write_json(path, packed(ranges, origin))
    with pytest.raises(LiteRtError, match=r"1 of \d+ activations of the signature verify .* have no range"):
        load_statistics(path, graphs["backbone"])


def test_statistics_of_another_graph_and_files_that_are_none_are_refused(
    graphs: dict[str, Path], collected: tuple[Path, Collected], tmp_path: Path
) -> None:
    with pytest.raises(LiteRtError, match="belong to another graph"):
        load_statistics(collected[0] / "head_statistics.json", graphs["backbone"])
    for text in ("", "{}", '{"metadata": {"mtplab": {}}, "model_qsvs": {}}', "[" * 3000):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(LiteRtError, match="holds no calibration statistics"):
            read_statistics(tmp_path / "x.json")


def test_weights_that_are_no_numbers_end_the_calibration_with_a_sentence(small: Any, tmp_path: Path) -> None:
    # float32 NaN in place of the head's first large constant
    from mtplab.litert.audit import audit

    weight = audit(small.head).of("body")[0]
    data = bytearray(small.head.read_bytes())
    values = np.frombuffer(bytes(data), np.uint8)
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model(str(small.head))
    tensor = next(t for graph in model.subgraphs for t in graph.tensors if t.name.decode() == weight.tensor)
    content = np.asarray(model.buffers[tensor.buffer].data, np.uint8).tobytes()
    at = bytes(values).find(content)
    assert at > 0
    data[at : at + 4] = np.float32(np.nan).tobytes()
    broken = tmp_path / "head.tflite"
    broken.write_bytes(bytes(data))
    with pytest.raises(LiteRtError, match="became NaN or infinite while calibrating"):
        collect({"backbone": small.backbone, "head": broken}, PROMPTS[:2], "set", tmp_path, quiet)


def test_a_prompt_longer_than_the_context_is_refused(graphs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(LiteRtError, match="does not fit the exported context of 100"):
        collect(graphs, [[1] * 120], "set", tmp_path, quiet)


@pytest.mark.parametrize("head", ["plain_head", "zero_copy_head"])
def test_heads_of_other_families_get_what_their_signatures_take(small: Any, tmp_path: Path, head: str) -> None:
    path = getattr(small, head)
    found = collect({"backbone": small.backbone, "head": path}, PROMPTS[:2], "set", tmp_path, quiet)
    assert found.samples["head"] == {"draft": 2 * (1 + PLAIN_STEPS)}
    assert load_statistics(tmp_path / "head_statistics.json", path)
