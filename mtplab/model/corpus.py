"""Training text that every machine has: the Python standard library's own source and documentation.

Which modules are held out depends on the hash of the file name alone, so the split is the same on every
machine and for every Python version.
"""

from __future__ import annotations

import ast
import hashlib
import platform
import sysconfig
from pathlib import Path
from typing import Any

import msgspec
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0
HELD_OUT_ONE_IN = 12

# Tests and character tables teach repetition; build folders and dumps belong to one machine.
_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "__pycache__", "encodings", "lib-dynload"}
_SKIPPED_PREFIXES = ("_sysconfigdata", "python-config")


class Document(msgspec.Struct, frozen=True):
    """One file of the standard library; `name` is its path inside the library."""

    name: str
    text: str
    held_out: bool


class CorpusFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the corpus was, for the model card."""

    python: str
    files_train: int
    files_held_out: int
    bytes_train: int
    bytes_held_out: int
    held_out: list[str]
    sha256: str


def is_held_out(name: str) -> bool:
    """Whether the module `name` (its path inside the library) is kept out of all training."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % HELD_OUT_ONE_IN == 0


def stdlib_folder() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def library_documents(root: Path | None = None) -> list[Document]:
    """Every kept module of the standard library, sorted by name."""
    root = root or stdlib_folder()
    documents = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if _SKIPPED_FOLDERS.intersection(parts) or path.name.startswith(_SKIPPED_PREFIXES):
            continue
        name = "/".join(parts)
        text = path.read_text(encoding="utf-8", errors="replace")
        if name == "pydoc_data/topics.py":
            text = _topics_prose(text)
        if text.strip():
            documents.append(Document(name, text, is_held_out(name)))
    return documents


def _topics_prose(source: str) -> str:
    """The language reference as prose: the file keeps it as one dict of escaped strings."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(node.value)
            return "\n\n".join(topics[key] for key in sorted(topics))
    return ""


def corpus_facts(documents: list[Document]) -> CorpusFacts:
    digest = hashlib.sha256()
    for document in documents:
        digest.update(document.name.encode() + b"\0" + document.text.encode() + b"\0")
    train = [document for document in documents if not document.held_out]
    held_out = [document for document in documents if document.held_out]
    return CorpusFacts(
        python=platform.python_version(),
        files_train=len(train),
        files_held_out=len(held_out),
        bytes_train=sum(len(document.text.encode()) for document in train),
        bytes_held_out=sum(len(document.text.encode()) for document in held_out),
        held_out=[document.name for document in held_out],
        sha256=digest.hexdigest(),
    )


def train_tokenizer(documents: list[Document], vocab: int) -> Any:
    """Byte-level BPE on the training part; encoding begins every text with the end-of-text token.

    The leading token gives position 0 the same meaning in training and in use.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([d.text for d in documents if not d.held_out], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, END_OF_TEXT_ID)]
    )
    return tokenizer


def token_stream(tokenizer: Any, documents: list[Document], held_out: bool) -> torch.Tensor:
    """All tokens of one side of the split, files joined by the end-of-text token; int64[N]."""
    texts = [document.text for document in documents if document.held_out == held_out]
    ids = [token for encoding in tokenizer.encode_batch(texts) for token in encoding.ids]
    return torch.tensor(ids, dtype=torch.long)


def windows(stream: torch.Tensor, count: int, length: int, seed: int) -> torch.Tensor:
    """`count` random windows [count, length], each beginning with the end-of-text token as prompts do."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(stream) - length, (count,), generator=generator)
    rows = torch.stack([stream[start : start + length] for start in starts.tolist()])
    rows[:, 0] = END_OF_TEXT_ID
    return rows
