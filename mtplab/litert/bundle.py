"""Pack deployed graphs as a `.litertlm` file that LiteRT-LM runs, with the head as its MTP drafter.

Base and embedder are cut out of the finished, quantised backbone graph: the bundle holds the very weights that were
audited and measured. Only the drafter is another graph (`drafter.py`). Contract: reference in
`model/single_step.py`; γ is a constant of the bundle (positions of `verify` less one).
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mtplab.litert.carve import Graph, Piece
from mtplab.litert.errors import LiteRtError

SECTIONS = ("PREFILL_DECODE", "EMBEDDER", "MTP_DRAFTER")
# LiteRT-LM hands a message's content over as a list of parts, and a text model's own template expects one string.
PLAIN_CONTENT = (
    "{%- set plain = namespace(messages=[]) -%}{%- for message in messages -%}{%- set one = namespace(text='') -%}"
    "{%- if message.content is string -%}{%- set one.text = message.content -%}{%- else -%}"
    "{%- for part in message.content -%}{%- if part.type == 'text' -%}{%- set one.text = one.text ~ part.text -%}"
    "{%- endif -%}{%- endfor -%}{%- endif -%}"
    "{%- set plain.messages = plain.messages + [{'role': message.role, 'content': one.text}] -%}{%- endfor -%}"
    "{%- set messages = plain.messages -%}"
)
_VERIFY = re.compile(r"verify(_\d+)?")


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """What the runtime needs to speak: where outputs end, and how a conversation is written."""

    stop_tokens: Sequence[int]
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = {}
    """Names that the template asks for (bos_token, eos_token)."""


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A finished bundle: bytes of each section's graph, and the numbers that its graphs fix."""

    path: Path
    bytes: int
    sections: dict[str, int]
    gamma: int
    context: int
    prefill_sizes: tuple[int, ...]


def cut_base(backbone: Graph, gamma: int, path: Path) -> Path:
    """prefill_N, decode and verify (γ+1 positions) with embeddings in; prefill gives nothing but its caches."""
    pieces = []
    for source in _chosen(backbone, gamma):
        inputs, outputs = backbone.inputs(source), backbone.outputs(source)
        caches = {name: tensor for name, tensor in outputs.items() if name.startswith("kv_cache_")}
        given = {name: tensor for name, tensor in inputs.items() if name != "tokens"}
        chosen = {} if source.startswith("prefill_") else {"logits": "logits", "activations": "hidden"}
        pieces.append(
            Piece(
                source=source,
                name="verify" if _VERIFY.fullmatch(source) else source,
                inputs={"embeddings": _embedded(backbone, source), **given},
                outputs={**{name: outputs[own] for name, own in chosen.items()}, **caches},
            )
        )
    return backbone.write(pieces, path)


def cut_embedder(backbone: Graph, path: Path) -> Path:
    """tokens[1,1] to embeddings[1,1,D], by the backbone's own table."""
    tokens = backbone.inputs("decode")["tokens"]
    piece = Piece("decode", "embed", {"tokens": tokens}, {"embeddings": _embedded(backbone, "decode")})
    return backbone.write([piece], path)


def write_bundle(backbone: Path, drafter: Path, tokenizer: Path, text: Text, gamma: int, path: Path) -> Bundle:
    """Write `path` from the deployed `backbone.tflite`, a drafter of the LiteRT-LM contract and a tokenizer.json.

    Raises `LiteRtError` where the graphs do not fit each other, or litert-lm-builder is missing.
    """
    graph = Graph(backbone)
    context = _check_drafter(Graph(drafter), graph)
    with tempfile.TemporaryDirectory(prefix="mtplab-bundle-") as folder:
        work = Path(folder)
        graphs = {
            "PREFILL_DECODE": cut_base(graph, gamma, work / "base.tflite"),
            "EMBEDDER": cut_embedder(graph, work / "embedder.tflite"),
            "MTP_DRAFTER": drafter,
        }
        _pack(graphs, tokenizer, text, context, work, path)
        sizes = {section: file.stat().st_size for section, file in graphs.items()}
    prefills = sorted(int(name.rpartition("_")[2]) for name in graph.signatures if name.startswith("prefill_"))
    return Bundle(
        path=path,
        bytes=path.stat().st_size,
        sections=sizes,
        gamma=gamma,
        context=context,
        prefill_sizes=tuple(prefills),
    )


def _chosen(backbone: Graph, gamma: int) -> list[str]:
    """The signatures that go into a bundle: of a ladder of verify_N the one with γ+1 positions."""
    verifies = {
        backbone.shape(name, backbone.inputs(name)["tokens"])[1]: name
        for name in backbone.signatures
        if _VERIFY.fullmatch(name)
    }
    if gamma + 1 not in verifies:
        exported = ", ".join(str(size - 1) for size in sorted(verifies)) or "none"
        raise LiteRtError(
            f"A bundle for γ = {gamma} needs a verify signature of {gamma + 1} positions, and the backbone was "
            f"exported for γ = {exported}; export it with that γ."
        )
    return [name for name in backbone.signatures if name not in verifies.values() or name == verifies[gamma + 1]]


def _embedded(backbone: Graph, signature: str) -> int:
    """The tensor that holds the embedded tokens of a signature."""
    tokens, hidden = backbone.inputs(signature)["tokens"], backbone.outputs(signature)["hidden"]
    found = backbone.fork(signature, tokens)
    if found == tokens or backbone.shape(signature, found) != backbone.shape(signature, hidden):
        raise LiteRtError(
            f"The embedded tokens of {signature} in {backbone.path.name} cannot be told from the rest of the graph, "
            "so no embedder can be cut out of it; export the backbone with mtplab."
        )
    return found


def _check_drafter(drafter: Graph, backbone: Graph) -> int:
    """Refuse a drafter of another width or context; returns the context."""
    (signature,) = drafter.signatures
    inputs, decode = drafter.inputs(signature), backbone.inputs("decode")
    width = backbone.shape("decode", backbone.outputs("decode")["hidden"])[-1]
    given = drafter.shape(signature, inputs["activations"])
    if given != (1, 1, 2 * width):
        raise LiteRtError(
            f"The drafter takes activations of {given[-1]} values and this backbone gives 2 × {width}; "
            "bundle a head of this backbone."
        )
    caches = {name: drafter.shape(signature, at) for name, at in inputs.items() if name.startswith("kv_cache_")}
    for name, shape in caches.items():
        if name not in decode or backbone.shape("decode", decode[name]) != shape:
            raise LiteRtError(
                f"The drafter reads {name} {shape}, which this backbone does not keep; bundle its own head."
            )
    first = next(name for name in decode if name.startswith("kv_cache_"))
    return backbone.shape("decode", decode[first])[2]


def _pack(graphs: dict[str, Path], tokenizer: Path, text: Text, context: int, work: Path, path: Path) -> None:
    try:
        from litert_lm_builder import litertlm_builder as lm
    except ImportError as error:
        raise LiteRtError(
            "The package litert-lm-builder is missing, so no .litertlm file can be written; "
            "install it: pip install 'mtplab[runtime]'."
        ) from error
    from mtplab import __version__

    builder = lm.LitertLmFileBuilder()
    builder.add_system_metadata(lm.Metadata(key="producer", value=f"mtplab {__version__}", dtype=lm.DType.STRING))
    (work / "metadata.pb").write_bytes(_metadata(text, context, start_tokens(tokenizer)))
    builder.add_llm_metadata(str(work / "metadata.pb"))
    # The builder looks at the file's name, and a file in the cache is named by its content.
    builder.add_hf_tokenizer(str(shutil.copyfile(tokenizer, work / "tokenizer.json")))
    for section, graph in graphs.items():
        builder.add_tflite_model(str(graph), getattr(lm.TfLiteModelType, section))
    # Under another name first: a bundle that was not finished must not look like one.
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        builder.build(file)
    partial.replace(path)


def start_tokens(tokenizer: Path) -> list[int]:
    """What the tokenizer puts before every text; LiteRT-LM asks it for the bare text and adds them by metadata."""
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(tokenizer))
    sample = "a"
    whole, bare = encoder.encode(sample).ids, encoder.encode(sample, add_special_tokens=False).ids
    if whole[len(whole) - len(bare) :] != bare:
        raise LiteRtError(
            f"The tokenizer {tokenizer.name} adds tokens behind a text, which LiteRT-LM never does, so its prompts "
            "would be others; remove them from its post-processor."
        )
    return whole[: len(whole) - len(bare)]


def _names(special_tokens: Mapping[str, str]) -> str:
    """What our own rendering gives a template by name; LiteRT-LM knows none of it."""
    return "".join(f"{{%- set {name} = {json.dumps(value)} -%}}" for name, value in special_tokens.items())


def _metadata(text: Text, context: int, start: Sequence[int]) -> bytes:
    """LlmMetadata of a model that is of none of the families LiteRT-LM knows by name."""
    from litert_lm_builder.runtime.proto import llm_metadata_pb2

    metadata: Any = llm_metadata_pb2.LlmMetadata()
    if start:  # the runtime aborts on a start token without ids
        metadata.start_token.token_ids.ids.extend(start)
    for token in text.stop_tokens:
        metadata.stop_tokens.add().token_ids.ids.append(token)
    metadata.max_num_tokens = context
    metadata.llm_model_type.generic_model.SetInParent()
    metadata.supports_thinking = metadata.supports_function_calling = False
    if text.chat_template is not None:
        metadata.jinja_prompt_template = _names(text.special_tokens) + PLAIN_CONTENT + text.chat_template
    else:
        metadata.prompt_templates.user.SetInParent()
    return bytes(metadata.SerializeToString())
