"""Every family of heads, reduced or not, says the same as an exported graph as it says in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("litert_torch")

from mtplab.litert.export import export_backbone, export_head  # noqa: E402
from mtplab.model.backbone import Backbone, BackboneConfig  # noqa: E402
from mtplab.model.errors import ModelError  # noqa: E402
from mtplab.model.heads import at_gamma, build_head  # noqa: E402

pytestmark = pytest.mark.pipeline


def run(path: Path, inputs: dict[str, Any], signature: str = "draft", output: str = "logits") -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(model_path=str(path)).get_signature_runner(signature)
    return np.asarray(runner(**{name: value.numpy() for name, value in inputs.items()})[output])


def test_a_ladder_of_draft_lengths_stores_its_weights_once(tmp_path: Path) -> None:
    from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead

    torch.manual_seed(4)
    shape = {"vocab": 256, "d_model": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "ff": 128}
    backbone = Backbone(BackboneConfig(**shape, context=32)).eval()
    head = build_head("token_conditioned", backbone, gamma=2, ff=64).eval()
    export_head(head, tmp_path / "ladder.tflite", gammas=(1, 2, 3))
    weights = 4 * (shape["vocab"] * shape["d_model"] + sum(value.numel() for _, value in head.own_parameters()))
    assert (tmp_path / "ladder.tflite").stat().st_size < 1.8 * weights
    runtime = LiteRtHead(tmp_path / "ladder.tflite")
    assert runtime.gammas == (1, 2, 3)
    hidden = np.random.default_rng(5).standard_normal(64).astype(np.float32)
    with torch.no_grad():
        inputs = {"hidden": torch.tensor(hidden)[None, None], "token": torch.tensor([[9]], dtype=torch.int32)}
        wanted = at_gamma(head, 3)(**inputs)["logits"][0].numpy()
    for gamma in (1, 2, 3):
        np.testing.assert_allclose(runtime.draft(hidden, 9, gamma), wanted[:gamma], atol=1e-3, rtol=1e-3)
        assert runtime.choices(hidden, 9, gamma) == wanted[:gamma].argmax(-1).tolist()
    ranked = LiteRtHead(tmp_path / "ladder.tflite", ranked=True)
    assert runtime.chooses and not ranked.chooses and ranked.choices(hidden, 9, 1) is None

    export_backbone(backbone, tmp_path / "backbone.tflite", (1, 3), prefill_sizes=(8,))
    assert (tmp_path / "backbone.tflite").stat().st_size < 1.4 * 4 * backbone.parameter_count()
    runner = LiteRtBackbone(tmp_path / "backbone.tflite")
    assert runner.gammas == (1, 3)
    tokens = [3, 14, 15, 92, 65, 35]
    wanted = backbone.forward_sequence(torch.tensor([tokens]))[0][0].detach().numpy()
    runner.prefill(tokens[:4])
    np.testing.assert_allclose(runner.verify(tokens[4:], 4)[0], wanted[4:], atol=1e-3, rtol=1e-3)


def test_a_parallel_head_cannot_draft_more_than_it_has_blocks_for() -> None:
    backbone = Backbone(BackboneConfig(vocab=64, d_model=32, layers=1, heads=4, kv_heads=2, head_dim=8, ff=64))
    head = build_head("parallel", backbone, gamma=2)
    assert at_gamma(head, 1).gamma == 1 and head.gamma == 2
    with pytest.raises(ModelError, match="one block for each of its 2 drafts"):
        at_gamma(head, 3)


@pytest.mark.parametrize("kind", ["parallel", "zero_copy"])
@torch.no_grad()
def test_a_reduced_head_of_a_new_family_exports_as_it_is(kind: Any, tmp_path: Path) -> None:
    torch.manual_seed(3)
    shape = {"vocab": 64, "d_model": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "ff": 64}
    backbone = Backbone(BackboneConfig(**shape, context=16)).eval()
    head = build_head(kind, backbone, gamma=3, ff=24, draft_ids=range(1, 64, 3)).eval()
    for _, value in head.own_parameters():
        value.add_(torch.randn_like(value) * 0.2)
    export_head(head, tmp_path / "head.tflite")
    for seed in range(3):
        inputs = head.example_inputs()
        generator = torch.Generator().manual_seed(seed)
        for name, value in inputs.items():
            if value.is_floating_point():
                inputs[name] = torch.randn(value.shape, generator=generator)
        if "input_pos" in inputs:
            inputs["input_pos"] = torch.tensor([5 + seed], dtype=torch.int32)
            inputs["token"] = torch.tensor([[7 * seed]], dtype=torch.int32)
        wanted = head(**inputs)["logits"].numpy()
        got = run(tmp_path / "head.tflite", inputs)
        assert got.shape == (1, 3, 64)
        np.testing.assert_allclose(got, wanted, atol=2e-3, rtol=1e-3)
        assert got.argmax(-1).tolist() == wanted.argmax(-1).tolist()
        ids = run(tmp_path / "head.tflite", inputs, "choices", "ids")
        assert ids.dtype == np.int32 and ids.tolist() == wanted.argmax(-1).tolist()


def test_half_precision_weights_are_refused_before_anything_is_converted(tmp_path: Path) -> None:
    from mtplab.litert.errors import LiteRtError

    head = build_head("token_conditioned", Backbone(BackboneConfig(vocab=16, d_model=8, layers=1, ff=8)), 2)
    with pytest.raises(LiteRtError, match=r"half precision .*tfl\.pow and tfl\.rsqrt.* recipe fp16"):
        export_head(head.eval().half(), tmp_path / "never.tflite")


def test_a_norm_that_computes_in_half_precision_fails_with_the_cure(tmp_path: Path) -> None:
    """The tutorial's norm by hand; float32 weights, so that only the converter can find it."""
    import torch

    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.export import convert, unwatched

    class Norm(torch.nn.Module):
        def forward(self, hidden: torch.Tensor) -> dict[str, torch.Tensor]:
            x = hidden.half()
            return {"logits": (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)).float()}

    norm: Any = Norm().eval()
    with pytest.raises(LiteRtError, match=r"Norm could not be converted, because .* recipe fp16"):
        convert({"draft": (norm, {"hidden": torch.zeros(1, 1, 8)})}, tmp_path / "never.tflite", unwatched)
