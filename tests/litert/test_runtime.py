"""The runtime gives what torch gives, whichever signature and cache mode is used."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.pipeline


def tokens(n: int, seed: int = 0, vocab: int = 160) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, vocab, n)]


def torch_says(small: Any, prompt: list[int]) -> tuple[np.ndarray, np.ndarray]:
    import torch

    with torch.no_grad():
        logits, hidden = small.torch_backbone.forward_sequence(torch.tensor([prompt]))
    return logits[0].numpy(), hidden[0].numpy()


@pytest.fixture(scope="module")
def runtime(small: Any) -> Any:
    from mtplab.litert.runtime import LiteRtBackbone

    return LiteRtBackbone(small.backbone)


class Oracle:
    """A drafter that knows the answer and is wrong on purpose at chosen places."""

    def __init__(self, answer: list[int], wrong_at: set[int], vocab: int, gamma: int = 3) -> None:
        self.answer, self.wrong_at, self.vocab, self.gamma = answer, wrong_at, vocab, gamma
        self.at = 0  # index of the answer's token that is chosen and not yet consumed

    def choices(self, hidden: np.ndarray, token: int, gamma: int, pos: int) -> list[int] | None:
        return None

    def draft(self, hidden: np.ndarray, token: int, gamma: int, pos: int) -> np.ndarray:
        assert gamma == self.gamma
        assert self.answer[self.at] == token, "speculation left the path of plain decoding"
        logits = np.zeros((self.gamma, self.vocab), np.float32)
        accepted = self.gamma
        for k in range(self.gamma):
            index = self.at + 1 + k
            right = self.answer[index] if index < len(self.answer) else 0
            wrong = index in self.wrong_at
            if wrong and accepted == self.gamma:
                accepted = k
            logits[k, (right + 1) % self.vocab if wrong else right] = 1
        self.at = min(self.at + accepted + 1, len(self.answer) - 1)
        return logits


def ids(records: Any) -> list[int]:
    from mtplab.speculation.decode import TokenRecord

    return [record.id for record in records if isinstance(record, TokenRecord)]


@pytest.mark.parametrize("length", [1, 5, 16, 17, 40, 81, 90, 97, 98, 100])
def test_a_prompt_of_any_length_gives_the_logits_and_hidden_state_of_torch(
    small: Any, runtime: Any, length: int
) -> None:
    prompt = tokens(length)
    logits, hidden = runtime.prefill(prompt)
    torch_logits, torch_hidden = torch_says(small, prompt)
    np.testing.assert_allclose(logits, torch_logits[-1], atol=2e-4, rtol=1e-4)
    np.testing.assert_allclose(hidden, torch_hidden[-1], atol=2e-4, rtol=1e-4)


def test_decoding_after_a_padded_chunk_gives_the_logits_of_torch(small: Any, runtime: Any) -> None:
    sequence = tokens(30, seed=1)
    runtime.prefill(sequence[:19])
    for pos in range(19, 30):
        logits, hidden = runtime.decode(sequence[pos], pos)
        torch_logits, torch_hidden = torch_says(small, sequence[: pos + 1])
        np.testing.assert_allclose(logits, torch_logits[-1], atol=2e-4, rtol=1e-4)
        np.testing.assert_allclose(hidden, torch_hidden[-1], atol=2e-4, rtol=1e-4)


def test_verify_gives_what_decoding_one_by_one_gives(runtime: Any) -> None:
    sequence = tokens(24, seed=2)
    runtime.prefill(sequence[:20])
    verified, states = runtime.verify(sequence[20:24], 20)
    runtime.prefill(sequence[:20])
    for k in range(4):
        logits, hidden = runtime.decode(sequence[20 + k], 20 + k)
        np.testing.assert_allclose(verified[k], logits, atol=1e-4, rtol=1e-4)
        np.testing.assert_allclose(states[k], hidden, atol=1e-4, rtol=1e-4)


def test_the_previous_prompt_leaves_no_trace_even_without_reset(runtime: Any) -> None:
    prompt = tokens(21, seed=3)
    runtime.reset()
    fresh, _ = runtime.prefill(prompt)
    fresh_next, _ = runtime.decode(5, 21)
    runtime.prefill(tokens(100, seed=4))
    used, _ = runtime.prefill(prompt)
    used_next, _ = runtime.decode(5, 21)
    assert np.array_equal(fresh, used)
    assert np.array_equal(fresh_next, used_next)


def test_in_place_and_two_buffers_agree_bit_by_bit(small: Any) -> None:
    from mtplab.litert.runtime import LiteRtBackbone
    from mtplab.speculation.decode import decode_plain

    in_place = LiteRtBackbone(small.backbone, cache_mode="in_place")
    two = LiteRtBackbone(small.backbone, cache_mode="two_buffers")
    prompt = tokens(37, seed=5)
    assert all(np.array_equal(a, b) for a, b in zip(in_place.prefill(prompt), two.prefill(prompt), strict=True))
    assert ids(decode_plain(in_place, prompt, limit=30)) == ids(decode_plain(two, prompt, limit=30))
    logits, _ = in_place.verify([1, 2, 3, 4], 50)
    other, _ = two.verify([1, 2, 3, 4], 50)
    assert np.array_equal(logits, other)


def test_a_runtime_whose_in_place_run_differs_falls_back_to_two_buffers(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtplab.litert import runtime as module

    honest = module.Signature.run

    def spoiled(self: Any, inputs: Any, cache_in: dict[str, Any], cache_out: dict[str, Any]) -> None:
        honest(self, inputs, cache_in, cache_out)
        if cache_in and cache_in is cache_out and self.name == "decode":
            name = next(iter(cache_out))
            shape = self.input_shapes[name]
            cache_out[name].write(np.ones(shape, np.float32))

    monkeypatch.setattr(module.Signature, "run", spoiled)
    assert module.LiteRtBackbone(small.backbone).cache_mode == "two_buffers"


def test_speculation_through_the_graphs_repeats_plain_decoding_whatever_is_accepted(small: Any, runtime: Any) -> None:
    from mtplab.speculation.decode import RoundRecord, decode_plain, decode_speculative

    prompt = tokens(18, seed=6)
    answer = ids(decode_plain(runtime, prompt, limit=60))
    oracle = Oracle(answer, wrong_at={2, 7, 8, 9, 20, 33, 47}, vocab=runtime.vocab)
    records = list(decode_speculative(runtime, oracle, prompt, limit=60))
    accepted = {record.accepted for record in records if isinstance(record, RoundRecord)}
    assert accepted == {0, 1, 2, 3}, "the drafter should make rounds of every kind"
    assert ids(records) == answer


@pytest.mark.parametrize("kind", ["head", "plain_head", "zero_copy_head"])
def test_speculation_with_an_exported_head_repeats_plain_decoding(small: Any, runtime: Any, kind: str) -> None:
    from mtplab.litert.runtime import LiteRtHead
    from mtplab.speculation.decode import decode_plain, decode_speculative

    head = LiteRtHead(getattr(small, kind), backbone=runtime)
    assert head.takes_token == (kind != "plain_head")
    for seed, length in ((7, 3), (8, 50), (9, 90)):
        prompt = tokens(length, seed)
        plain = ids(decode_plain(runtime, prompt, limit=40))
        assert ids(decode_speculative(runtime, head, prompt, limit=40)) == plain


def test_the_exported_head_chains_as_the_torch_head_does(small: Any) -> None:
    import torch

    from mtplab.litert.runtime import LiteRtHead

    head = LiteRtHead(small.head)
    rng = np.random.default_rng(10)
    for _ in range(20):
        hidden = rng.standard_normal(head.d_model).astype(np.float32)
        token = int(rng.integers(0, head.vocab))
        with torch.no_grad():
            wanted = small.torch_head(torch.tensor(hidden)[None, None], torch.tensor([[token]], dtype=torch.int32))[
                "logits"
            ][0].numpy()
        np.testing.assert_allclose(head.draft(hidden, token), wanted, atol=2e-4, rtol=1e-4)


def test_a_zero_copy_head_reads_the_cache_where_it_lies_and_says_what_torch_says(small: Any) -> None:
    import torch

    from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead

    for mode in ("in_place", "two_buffers"):
        runtime = LiteRtBackbone(small.backbone, cache_mode=mode)  # type: ignore[arg-type]
        head = LiteRtHead(small.zero_copy_head, backbone=runtime)
        assert (head.takes_cache, head.cache_mode) == (True, "shared")
        sequence, drafted = tokens(40, seed=11), []
        _, hidden = runtime.prefill(sequence[:30])
        for pos in range(30, 40):
            with torch.no_grad():
                states, k, v = small.torch_backbone.sequence_with_cache(torch.tensor([sequence[:pos]]))
                attend = small.torch_zero_copy_head.attend_sequence(k, v, torch.tensor([[pos - 1]]))
                token = torch.tensor([[sequence[pos]]])
                wanted = small.torch_zero_copy_head.chained(states[:, -1:], token, attend)["logits"][0].numpy()
            drafted.append(head.draft(hidden, sequence[pos], 3, pos))
            np.testing.assert_allclose(drafted[-1], wanted, atol=2e-3, rtol=1e-3)
            head.cache_mode = "copied"
            assert np.array_equal(head.draft(hidden, sequence[pos], 3, pos), drafted[-1])
            head.cache_mode = "shared"
            _, hidden = runtime.decode(sequence[pos], pos)
        elsewhere = head.draft(hidden, sequence[39], 3, 12)
        assert not np.allclose(elsewhere, head.draft(hidden, sequence[39], 3, 40)), "the position must matter"


def test_a_zero_copy_head_without_its_backbone_is_refused_with_a_sentence(small: Any, runtime: Any) -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.runtime import LiteRtHead

    with pytest.raises(LiteRtError, match="loaded without it"):
        LiteRtHead(small.zero_copy_head)
    with pytest.raises(LiteRtError, match="pass the position"):
        LiteRtHead(small.zero_copy_head, backbone=runtime).draft(np.zeros(64, np.float32), 1)


def test_positions_beyond_the_context_are_refused_with_a_sentence(runtime: Any) -> None:
    from mtplab.litert.errors import LiteRtError

    with pytest.raises(LiteRtError, match="context of 100"):
        runtime.prefill(tokens(101))
    with pytest.raises(LiteRtError, match="beyond the context"):
        runtime.verify([1, 2, 3, 4], 97)
    with pytest.raises(LiteRtError, match="verifies 4 tokens"):
        runtime.verify([1, 2], 3)


def test_files_that_are_no_graph_are_refused_with_a_sentence(small: Any, tmp_path: Any) -> None:
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead

    with pytest.raises(LiteRtError, match="cannot be read"):
        LiteRtBackbone(tmp_path / "absent.tflite")
    (tmp_path / "text.tflite").write_text("not a graph at all")
    with pytest.raises(LiteRtError, match="no LiteRT graph"):
        LiteRtBackbone(tmp_path / "text.tflite")
    with pytest.raises(LiteRtError, match="needs prefill_N"):
        LiteRtBackbone(small.head)
    with pytest.raises(LiteRtError, match="named draft"):
        LiteRtHead(small.backbone)


def test_the_runtime_loads_neither_torch_nor_jax() -> None:
    code = (
        "import sys; from mtplab.litert import runtime; import ai_edge_litert.compiled_model; "
        "print([m for m in ('torch', 'jax', 'litert_torch', 'ai_edge_quantizer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
