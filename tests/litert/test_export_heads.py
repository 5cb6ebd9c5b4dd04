"""Every family of heads, reduced or not, says the same as an exported graph as it says in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("litert_torch")

from mtplab.litert.export import export_head  # noqa: E402
from mtplab.model.backbone import Backbone, BackboneConfig  # noqa: E402
from mtplab.model.heads import build_head  # noqa: E402

pytestmark = pytest.mark.pipeline


def run(path: Path, inputs: dict[str, Any]) -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(model_path=str(path)).get_signature_runner("draft")
    return np.asarray(runner(**{name: value.numpy() for name, value in inputs.items()})["logits"])


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


def test_half_precision_weights_are_refused_before_anything_is_converted(tmp_path: Path) -> None:
    from mtplab.litert.errors import LiteRtError

    head = build_head("token_conditioned", Backbone(BackboneConfig(vocab=16, d_model=8, layers=1, ff=8)), 2)
    with pytest.raises(LiteRtError, match=r"half precision .*tfl\.pow and tfl\.rsqrt.* recipe fp16"):
        export_head(head.eval().half(), tmp_path / "never.tflite")


def test_a_norm_that_computes_in_half_precision_fails_with_the_cure(tmp_path: Path) -> None:
    """The tutorial's norm by hand; float32 weights, so that only the converter can find it."""
    import torch

    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.export import export_head

    class Norm(torch.nn.Module):
        def example_inputs(self) -> dict[str, torch.Tensor]:
            return {"hidden": torch.zeros(1, 1, 8)}

        def forward(self, hidden: torch.Tensor) -> dict[str, torch.Tensor]:
            x = hidden.half()
            return {"logits": (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)).float()}

    norm: Any = Norm().eval()
    with pytest.raises(LiteRtError, match=r"Norm could not be converted, because .* recipe fp16"):
        export_head(norm, tmp_path / "never.tflite")
