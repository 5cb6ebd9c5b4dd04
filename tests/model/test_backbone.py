"""The backbone says the same through its cache as without one."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mtplab.model.backbone import Backbone, BackboneConfig, cache_names, empty_cache  # noqa: E402
from mtplab.model.errors import ModelError  # noqa: E402

pytestmark = pytest.mark.pipeline


def positions(start: int, stop: int) -> Any:
    return torch.arange(start, stop, dtype=torch.int32)


def tokens(count: int, vocab: int = 64) -> Any:
    return torch.randint(0, vocab, (1, count), generator=torch.Generator().manual_seed(3)).int()


def cache_of(out: dict[str, Any], config: BackboneConfig) -> dict[str, Any]:
    return {name: out[name] for name in cache_names(config)}


@torch.no_grad()
def test_the_cached_forward_equals_the_forward_without_a_cache(backbone: Backbone) -> None:
    given = tokens(12)
    logits, hidden = backbone.forward_sequence(given.long())
    out = backbone(given, positions(0, 12), **empty_cache(backbone.config))
    torch.testing.assert_close(out["logits"], logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(out["hidden"], hidden, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_verifying_four_tokens_equals_four_single_decodes(backbone: Backbone) -> None:
    given = tokens(10)
    prefill = backbone(given[:, :6], positions(0, 6), **empty_cache(backbone.config))
    verified = backbone(given[:, 6:], positions(6, 10), **cache_of(prefill, backbone.config))
    cache, logits = cache_of(prefill, backbone.config), []
    for at in range(6, 10):
        out = backbone(given[:, at : at + 1], positions(at, at + 1), **cache)
        cache = cache_of(out, backbone.config)
        logits.append(out["logits"])
    torch.testing.assert_close(verified["logits"], torch.cat(logits, 1), atol=1e-4, rtol=1e-4)
    for name, value in cache.items():
        torch.testing.assert_close(verified[name], value, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_stale_cache_slots_beyond_the_position_do_not_matter(backbone: Backbone) -> None:
    given = tokens(5)
    clean = backbone(given, positions(0, 5), **empty_cache(backbone.config))
    dirty = {name: torch.full_like(value, 9.0) for name, value in empty_cache(backbone.config).items()}
    assert torch.equal(backbone(given, positions(0, 5), **dirty)["logits"], clean["logits"])


@torch.no_grad()
def test_a_later_token_never_changes_an_earlier_logit(backbone: Backbone) -> None:
    given = tokens(8)
    changed = given.clone()
    changed[0, 6] = (changed[0, 6] + 1) % 64
    one = backbone(given, positions(0, 8), **empty_cache(backbone.config))["logits"]
    other = backbone(changed, positions(0, 8), **empty_cache(backbone.config))["logits"]
    assert torch.equal(one[:, :6], other[:, :6])
    assert not torch.allclose(one[:, 6:], other[:, 6:])


@torch.no_grad()
def test_hidden_is_taken_before_the_final_norm(backbone: Backbone) -> None:
    logits, hidden = backbone.forward_sequence(tokens(4).long())
    assert torch.equal(backbone.lm_head(backbone.final_norm(hidden)), logits)


@torch.no_grad()
def test_an_injected_cache_update_is_the_one_that_runs(backbone: Backbone) -> None:
    seen = []

    def update(cache: Any, new: Any, input_pos: Any) -> Any:
        seen.append((tuple(cache.shape), tuple(new.shape), input_pos.tolist()))
        return cache.index_copy(2, input_pos.long(), new)

    backbone.cache_update = update
    backbone(tokens(2), positions(3, 5), **empty_cache(backbone.config))
    assert seen == [((1, 2, 32, 8), (1, 2, 2, 8), [3, 4])] * 4


def test_a_configuration_survives_json_and_a_broken_one_is_refused() -> None:
    config = BackboneConfig.small()
    assert BackboneConfig.from_json(config.to_json()) == config
    with pytest.raises(ModelError, match=r"config\.json"):
        BackboneConfig.from_json("{")
    with pytest.raises(ModelError, match="multiple of KV heads"):
        BackboneConfig(heads=3, kv_heads=2)
