"""A small untrained backbone that the tests of this room share."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mtplab.model.backbone import Backbone


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors gain nothing from threads, and on a busy machine they wait for each other."""
    if find_spec("torch") is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def backbone() -> Backbone:
    """Grouped queries, more layers than one, weights large enough that logits differ clearly."""
    torch = pytest.importorskip("torch")
    from mtplab.model.backbone import Backbone, BackboneConfig

    torch.manual_seed(5)
    config = BackboneConfig(vocab=64, d_model=32, layers=2, heads=4, kv_heads=2, head_dim=8, ff=64, context=32)
    model = Backbone(config).eval()
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() == 2:
                value.mul_(6)
    return model
