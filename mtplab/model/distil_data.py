"""Text of the frozen backbone with its states, kept in shards on disk: made once, resumed after an interruption."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save_file

from mtplab.model.checkpoint import Say
from mtplab.model.deployed import Row
from mtplab.model.errors import ModelError
from mtplab.model.prompts import Prompt
from mtplab.model.weights import read_stored

# What turns a batch of token lists into rows: the deployed backbone, continuing or only reading them
Run = Callable[[list[list[int]]], list[Row]]


class Tokens(msgspec.Struct, frozen=True):
    """A prompt as the backbone reads it."""

    ids: list[int]
    prompt_class: str


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One stored text: a `Row` with its class; states are float16 on disk and float32 here."""

    prompt_class: str
    row: Row


def encode(prompts: Sequence[Prompt], tokenizer: object, chat: object, longest: int) -> list[Tokens]:
    """Prompts inside the chat template (`raw` ones as they are), those of more than `longest` tokens left out."""
    assert callable(chat)
    found = []
    for prompt in prompts:
        text = prompt.text if prompt.raw else chat(prompt.text, prompt.system)
        ids = tokenizer.encode(text).ids  # type: ignore[attr-defined]
        if len(ids) <= longest:
            found.append(Tokens(ids, prompt.prompt_class))
    return found


def batches_of(tokens: Sequence[Tokens], size: int) -> list[list[Tokens]]:
    """Batches of texts that begin alike and have similar lengths, so that little is padded; kinds take turns."""
    opening = Counter(one.ids[0] for one in tokens).most_common(1)
    alike = [one for one in tokens if one.ids[0] == opening[0][0]]
    queues = []
    for group in (alike, [one for one in tokens if one.ids[0] != opening[0][0]]):
        # Within stretches of four batches, so that an interrupted run has seen every length.
        stretches = [group[at : at + 4 * size] for at in range(0, len(group), 4 * size)]
        ordered = [one for stretch in stretches for one in sorted(stretch, key=lambda one: len(one.ids))]
        queues.append([ordered[at : at + size] for at in range(0, len(ordered), size)])
    turns = range(max(map(len, queues), default=0))
    return [queue[turn] for turn in turns for queue in queues if turn < len(queue)]


def _hash(identity: object) -> str:
    return hashlib.sha256(msgspec.json.encode(identity, order="deterministic")).hexdigest()


class Shards:
    """The folder that holds generated text of one backbone in one arithmetic.

    `prompts` names what the text continues; without it the prompts do not matter (text made elsewhere).
    """

    def __init__(self, folder: Path, backbone: object, prompts: object | None = None) -> None:
        self.folder, self.identity = folder, {"backbone": _hash(backbone)}
        if prompts is not None:
            self.identity["prompts"] = _hash(prompts)

    def paths(self) -> list[Path]:
        """Finished shards in order."""
        return sorted(self.folder.glob("shard-*.safetensors"))

    def make(self, batches: Sequence[Sequence[Tokens]], run: Run, say: Say) -> None:
        """Run the batches whose shards are missing; an interrupted call goes on with the next one."""
        for number, batch in enumerate(batches):
            path = self._path(number)
            if path.exists():
                continue
            rows = run([one.ids for one in batch])
            samples = [Sample(prompt_class=one.prompt_class, row=row) for one, row in zip(batch, rows, strict=True)]
            self._write(path, samples)
            made = sum(len(row.tokens) - row.prompt_length for row in rows)
            line = {"text": self.folder.name, "shard": number + 1, "of": len(batches), "tokens": made}
            say(msgspec.json.encode(line).decode())

    def complete(self, batches: Sequence[Sequence[Tokens]]) -> bool:
        """Whether every batch has its shard."""
        return all(self._path(number).exists() for number in range(len(batches)))

    def _path(self, number: int) -> Path:
        return self.folder / f"shard-{number:04d}.safetensors"

    def _write(self, path: Path, samples: list[Sample]) -> None:
        rows = [sample.row for sample in samples]
        tensors = {
            "tokens": torch.cat([row.tokens for row in rows]).int(),
            "choices": torch.cat([row.choices for row in rows]).int(),
            "hidden": torch.cat([row.hidden for row in rows]).half(),
            "k": torch.cat([row.k.transpose(0, 1) for row in rows]).half().contiguous(),
            "v": torch.cat([row.v.transpose(0, 1) for row in rows]).half().contiguous(),
            "lengths": torch.tensor([len(row.tokens) for row in rows]),
            "prompt_lengths": torch.tensor([row.prompt_length for row in rows]),
        }
        classes = msgspec.json.encode([sample.prompt_class for sample in samples]).decode()
        partial = path.with_suffix(".part")
        self.folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, partial, metadata={**self.identity, "classes": classes})
        partial.replace(path)

    def samples(self) -> Iterator[Sample]:
        """Every stored text; raises `ModelError` where a shard belongs to another backbone or list of prompts."""
        for path in self.paths():
            stored, metadata = read_stored(path)
            other = [name for name, sha256 in self.identity.items() if metadata.get(name) != sha256]
            if other:
                raise ModelError(
                    f"{path.name} in {self.folder.name} was generated with another choice of {other[0]}; "
                    "give another folder, or empty this one."
                )
            classes = msgspec.json.decode(metadata["classes"], type=list[str])
            lengths = stored["lengths"].tolist()
            parts = {name: stored[name].split(lengths) for name in ("tokens", "choices", "hidden", "k", "v")}
            for at, name in enumerate(classes):
                yield Sample(
                    prompt_class=name,
                    row=Row(
                        tokens=parts["tokens"][at].long(),
                        choices=parts["choices"][at].long(),
                        hidden=parts["hidden"][at],
                        k=parts["k"][at].transpose(0, 1),
                        v=parts["v"][at].transpose(0, 1),
                        prompt_length=int(stored["prompt_lengths"][at]),
                    ),
                )


class DraftVocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens a reduced head may draft, ascending, and how much generated text they cover."""

    ids: list[int]
    coverage: float
    counted_tokens: int


def draft_vocabulary(samples: Sequence[Sample], size: int, vocab: int) -> DraftVocabulary:
    """The `size` tokens most frequent in the generated text; ties and the rest by id, where frequent tokens stand."""
    if not 0 < size < vocab:
        raise ModelError(f"A draft vocabulary of {size} tokens is none of {vocab}; choose 1 to {vocab - 1}.")
    counts: Counter[int] = Counter()
    for sample in samples:
        counts.update(sample.row.choices[sample.row.prompt_length - 1 :].tolist())
    total = sum(counts.values())
    if not total:
        raise ModelError("No text was generated, so no token is known to be frequent; generate text first.")
    ranked = sorted(range(vocab), key=lambda token: (-counts[token], token))[:size]
    covered = sum(counts[token] for token in ranked)
    return DraftVocabulary(ids=sorted(ranked), coverage=round(covered / total, 4), counted_tokens=total)


def coverage(samples: Sequence[Sample], ids: Sequence[int]) -> float:
    """Share of the generated tokens of other text that the vocabulary `ids` holds."""
    chosen = torch.cat([sample.row.choices[sample.row.prompt_length - 1 :] for sample in samples])
    return round(torch.isin(chosen, torch.tensor(list(ids))).float().mean().item(), 4)
