"""A bundle for LiteRT-LM: cut out of the deployed graphs, the head as its drafter, and run by litert-lm itself."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtplab.tokenrunner.arrivals import Behind, Piece, arrived_tokens, rounds_behind

pytestmark = pytest.mark.pipeline
LIMIT = 24
needs_litert_lm = pytest.mark.skipif(
    importlib.util.find_spec("litert_lm") is None, reason="litert-lm is not installed (the `runtime` extra)"
)


def _reduced(small: Any, kind: str) -> Any:
    """A head with random weights that drafts half of the vocabulary."""
    import torch

    from mtplab.model.heads import build_head

    torch.manual_seed(5)
    return build_head(kind, small.torch_backbone, 3, draft_ids=range(0, 160, 2)).eval().requires_grad_(False)


def _standing(attend: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    """All queries of a round at p+1, as LiteRT-LM's contract has it."""
    return lambda query, _: attend(query, 1)


@pytest.mark.parametrize("kind", ["token_conditioned", "zero_copy"])
def test_one_step_after_the_other_drafts_what_the_head_drafts_at_once(small: Any, kind: str) -> None:
    import torch

    from mtplab.model.backbone import empty_cache
    from mtplab.model.single_step import SingleStep

    backbone, head = small.torch_backbone, _reduced(small, kind)
    tokens = torch.arange(1, 12)[None]
    at = torch.arange(11, dtype=torch.int32)
    with torch.no_grad():
        out = backbone(tokens.int(), at, **empty_cache(backbone.config))
        hidden, token = out["hidden"][:, -1:], out["logits"][0, -1].argmax()
        caches = {name: out[name] for name in head.cache_inputs()} if kind == "zero_copy" else {}
        attend = None
        if caches:
            moving = head.attend_cache(*caches.values(), torch.tensor([11], dtype=torch.int32))
            attend = _standing(moving)
        wanted = head.chained(hidden, token.view(1, 1).int(), attend)["logits"][0]
        step, state = SingleStep(head, backbone), hidden
        for k in range(3):
            fed = torch.cat([backbone.embedding(token.view(1, 1)), state], dim=-1)
            made = step(fed, torch.tensor([10], dtype=torch.int32), **caches)
            np.testing.assert_allclose(made["logits"][0, 0], wanted[k], rtol=1e-3, atol=1e-3)
            token, state = made["logits"].argmax(), made["projected_activations"]


@pytest.mark.parametrize("kind", ["recurrent_residual", "parallel"])
def test_a_head_that_is_fed_no_token_is_refused_with_a_sentence(small: Any, kind: str) -> None:
    from mtplab.model.errors import ModelError
    from mtplab.model.single_step import SingleStep

    with pytest.raises(ModelError, match=f"a {kind} head takes no token, so it cannot be bundled"):
        SingleStep(_reduced(small, kind), small.torch_backbone)


def test_base_and_embedder_hold_the_weights_of_the_deployed_graph_and_prefill_only_its_caches(
    small: Any, tmp_path: Path
) -> None:
    from mtplab.litert.audit import audit
    from mtplab.litert.bundle import cut_base, cut_embedder
    from mtplab.litert.carve import Graph
    from mtplab.litert.runtime import open_graph

    deployed = Graph(small.backbone)
    base = cut_base(deployed, 3, tmp_path / "base.tflite")
    embedder = cut_embedder(deployed, tmp_path / "embedder.tflite")
    known = {weight.sha256 for weight in audit(small.backbone).weights}
    assert {weight.sha256 for weight in audit(base).weights} <= known
    cut = Graph(base)
    assert cut.signatures == ("prefill_16", "decode", "verify")
    assert set(cut.outputs("prefill_16")) == {f"kv_cache_{kind}_{layer}" for kind in "kv" for layer in range(2)}
    assert {"logits", "activations"} < set(cut.outputs("verify"))
    assert cut.shape("verify", cut.inputs("verify")["embeddings"]) == (1, 4, 64)
    model, _ = open_graph(embedder, 1)
    given = model.create_input_buffer_by_name("embed", "tokens")
    made = model.create_output_buffer_by_name("embed", "embeddings")
    given.write(np.array([[7]], np.int32))
    model.run_by_name("embed", {"tokens": given}, {"embeddings": made})
    np.testing.assert_array_equal(made.read(64, np.float32), small.torch_backbone.embedding.weight[7].numpy())


def test_the_output_projection_of_a_reduced_draft_vocabulary_is_known_as_one(lm_bundle: Any) -> None:
    from mtplab.litert.audit import audit

    (projection,) = audit(lm_bundle.drafter).of("output_projection")
    assert projection.shape == (80, 64)


def test_a_draft_length_that_was_not_exported_is_refused(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.bundle import cut_base
    from mtplab.litert.carve import Graph
    from mtplab.litert.errors import LiteRtError

    with pytest.raises(LiteRtError, match="exported for γ = 3; export it with that γ"):
        cut_base(Graph(small.backbone), 5, tmp_path / "base.tflite")


def test_what_a_piece_of_the_graph_would_still_need_is_named(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.carve import Graph, Piece
    from mtplab.litert.errors import LiteRtError

    graph = Graph(small.backbone)
    piece = Piece("decode", "half", {"tokens": graph.inputs("decode")["tokens"]}, graph.outputs("decode"))
    with pytest.raises(LiteRtError, match=r"half would still need .*kv_cache_k_0.* as input"):
        graph.write([piece], tmp_path / "half.tflite")


def test_an_operation_that_runs_another_subgraph_is_not_torn_from_it(small: Any, tmp_path: Path) -> None:
    from ai_edge_litert import schema_py_generated as schema

    from mtplab.litert.carve import Graph, Piece
    from mtplab.litert.errors import LiteRtError

    graph = Graph(small.backbone)
    graph._subgraph("decode").operators[-1].builtinOptions = schema.WhileOptionsT()
    piece = Piece("decode", "decode", graph.inputs("decode"), graph.outputs("decode"))
    with pytest.raises(LiteRtError, match="runs another subgraph"):
        graph.write([piece], tmp_path / "decode.tflite")


def test_a_chat_template_reads_content_in_parts_as_it_reads_a_string() -> None:
    from jinja2 import Environment

    from mtplab.litert.bundle import PLAIN_CONTENT

    own = "{% for message in messages %}{{ '<' + message['role'] + '>' + message['content'] + '\n' }}{% endfor %}!"
    parts = [{"type": "text", "text": "How "}, {"type": "text", "text": "so?"}]
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    assert Environment().from_string(PLAIN_CONTENT + own).render(messages=said) == (
        "<system>Be brief.\n<user>How so?\n!"
    )


def test_tokens_belong_to_the_piece_that_brought_their_last_character(small: Any) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(small.tokenizer))
    pieces = [Piece("ab", 10), Piece("", 20), Piece("c", 30)]
    assert [(one.id, one.piece) for one in arrived_tokens(tokenizer, pieces)] == [(65, 0), (66, 0), (67, 2)]


def test_rounds_are_told_by_pieces_only_where_all_tokens_are_accounted_for() -> None:
    assert rounds_behind([1, 4, 3, 1], 3, 9, 9) == Behind(3, (0, 3, 2))
    assert rounds_behind([1, 4, 2], 3, 7, 48) == Behind(3, (0, 3))  # a stop token hid how the last round went
    assert rounds_behind([1, 4, 3, 1], 3, 10, 9) == Behind(3, ())  # the tokenizer would write one token less
    assert rounds_behind([1, 4, 3, 1], 3, None, 9) is None
    assert rounds_behind([1, 5, 1], 3, 7, 7) is None
    assert rounds_behind([1, 4, 2], 3, 7, 7) is None


@needs_litert_lm
def test_litert_lm_calls_the_bundle_capable_of_speculation_and_decodes_it_as_we_do(
    small: Any, lm_bundle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import litert_lm
    import torch
    from tokenizers import Tokenizer

    from mtplab.model.evaluate import greedy_texts, rounds_of
    from mtplab.model.prompts import Prompt
    from mtplab.pipeline.lm_runs import Asked, lm_counts, run_litert_lm

    assert litert_lm.ModelInfo(str(lm_bundle.path)).llm.has_speculative_decoding_support()
    asked = Asked(tokenizer=small.tokenizer, prompts=small.prompts, max_tokens=LIMIT, threads=1)
    off = run_litert_lm(lm_bundle.path, asked, gamma=None, log=tmp_path / "off.txt")
    on = run_litert_lm(lm_bundle.path, asked, gamma=3, log=tmp_path / "on.txt")
    assert off.failure is None and on.failure is None

    head = lm_bundle.torch_head
    moving = head.attend_sequence
    monkeypatch.setattr(head, "attend_sequence", lambda *given: _standing(moving(*given)))
    rows = [json.loads(line) for line in small.prompts.read_text().splitlines()]
    prompts = [Prompt(id=row["id"], text=row["text"]) for row in rows]
    with torch.no_grad():
        texts = greedy_texts(small.torch_backbone, Tokenizer.from_file(str(small.tokenizer)), prompts, LIMIT, 3)
    for text, plain, drafted in zip(texts, off.protocol.measured(), on.protocol.measured(), strict=True):
        own = text.tokens[text.prompt_length :].tolist()
        shown = [token.id for token in plain.tokens]
        assert plain.stamps == "arrival" and plain.runtime is not None and plain.runtime.ttft_derived_ms
        assert lm_bundle.stop not in own
        assert shown == own[: len(shown)] and len(shown) == LIMIT
        assert [token.id for token in drafted.tokens][:LIMIT] == shown
        accepted = [r.accepted for r in drafted.rounds]
        expected = [r.accepted for r in rounds_of(small.torch_backbone, head, text)]
        assert accepted[: len(expected)] == expected
    counts = lm_counts(on, 3)
    assert counts.reason is None
    assert counts.accepted == sum(r.accepted for prompt in on.protocol.prompts for r in prompt.rounds)
