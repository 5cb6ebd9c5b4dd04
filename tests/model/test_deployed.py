"""Batched text of the deployed backbone is the text of the backbone itself, with the very states of its cache."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from mtplab.model.backbone import Backbone, BackboneConfig, empty_cache  # noqa: E402
from mtplab.model.deployed import DeployedBackbone, int8_rows, int8_weight  # noqa: E402
from mtplab.model.errors import ModelError  # noqa: E402
from mtplab.model.generate import greedy  # noqa: E402

pytestmark = pytest.mark.pipeline
PROMPTS = [[5, 9, 4], [7, 1, 2, 33, 8, 60, 3], [12]]


def test_prompts_of_different_lengths_in_one_batch_continue_as_each_would_alone(backbone: Backbone) -> None:
    rows = DeployedBackbone(backbone, "float").texts(PROMPTS, 12, None)
    for prompt, row in zip(PROMPTS, rows, strict=True):
        assert row.tokens.tolist() == greedy(backbone, torch.tensor([prompt]), 12)[0].tolist()
        assert row.prompt_length == len(prompt)
        assert row.choices[row.prompt_length - 1 : -1].tolist() == row.tokens[row.prompt_length :].tolist()


@torch.no_grad()
def test_its_states_are_those_that_the_backbone_has_and_writes(backbone: Backbone) -> None:
    row = DeployedBackbone(backbone, "float").texts(PROMPTS, 12, None)[1]
    count = len(row.tokens)
    out = backbone(row.tokens[None].int(), torch.arange(count, dtype=torch.int32), **empty_cache(backbone.config))
    torch.testing.assert_close(row.hidden, out["hidden"][0], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(row.k, out["kv_cache_k_1"][0, :, :count], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(row.v, out["kv_cache_v_1"][0, :, :count], atol=1e-3, rtol=1e-3)


def test_a_text_stops_with_the_end_token_and_others_go_on(backbone: Backbone) -> None:
    free = DeployedBackbone(backbone, "float").texts(PROMPTS, 12, None)
    end = int(free[0].tokens[5])
    rows = DeployedBackbone(backbone, "float").texts(PROMPTS, 12, end)
    first = free[0].tokens.tolist().index(end, 3) + 1
    assert rows[0].tokens.tolist() == free[0].tokens[:first].tolist()
    assert max(len(row.tokens) - row.prompt_length for row in rows) > first - 3


def test_rounding_is_that_of_dynamic_int8() -> None:
    weight = torch.tensor([[0.5, -1.27, 0.004], [0.0, 0.0, 0.0]])
    assert int8_weight(weight).tolist()[0] == pytest.approx([0.5, -1.27, 0.0], abs=1e-6)
    assert int8_weight(weight)[1].tolist() == [0.0, 0.0, 0.0]
    row = int8_rows(torch.tensor([[-1.0, 0.0, 0.3, 4.1]]))
    step = 5.1 / 255
    assert row[0, 1] == 0, "zero stays exactly zero"
    assert (row - torch.tensor([[-1.0, 0.0, 0.3, 4.1]])).abs().max() <= step / 2 + 1e-6
    assert torch.allclose((row / step).round(), row / step, atol=1e-3)


def test_quantised_states_are_near_the_float_ones_but_not_the_same(backbone: Backbone) -> None:
    exact = DeployedBackbone(backbone, "float").texts(PROMPTS[:1], 1, None)[0]
    rounded = DeployedBackbone(backbone, "int8").texts(PROMPTS[:1], 1, None)[0]
    difference = (exact.hidden[:3] - rounded.hidden[:3]).norm() / exact.hidden[:3].norm()
    assert 0 < difference < 0.2


def test_a_text_that_does_not_fit_the_context_is_refused(backbone: Backbone) -> None:
    with pytest.raises(ModelError, match="do not fit the context of 32"):
        DeployedBackbone(backbone).texts([[1, 2]], 31, None)


@pytest.mark.parametrize(
    "variant",
    [
        {"qkv_bias": True, "tied": False},
        {"qk_norm": True, "activation": "gelu_tanh", "embedding_scale": 5.5},
    ],
)
def test_the_variants_of_qwen_and_gemma_are_the_same_arithmetic_too(variant: dict[str, object]) -> None:
    torch.manual_seed(3)
    shape = {"vocab": 48, "d_model": 24, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 6, "ff": 40}
    backbone = Backbone(BackboneConfig(**shape, context=24, **variant)).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for value in backbone.parameters():
            value.add_(torch.randn_like(value) * 0.3)
    row = DeployedBackbone(backbone, "float").texts([[3, 4]], 8, None)[0]
    assert row.tokens.tolist() == greedy(backbone, torch.tensor([[3, 4]]), 8)[0].tolist()
