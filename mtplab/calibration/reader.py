"""How the model reads a prompt: its own chat template, then its own tokenizer, and whether they are its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mtplab.calibration.errors import CalibrationError
from mtplab.calibration.sources import Record
from mtplab.model.chat import render_messages

Progress = Callable[[int, int, str], None]

_BATCH = 256
_MOST_UNKNOWN = 0.01
"""Share of unknown tokens in real text above which the tokenizer is taken for another model's."""


class Reader:
    """Prompts of one model as text and as tokens."""

    def __init__(
        self,
        model: str,
        tokenizer_path: Path,
        vocab: int,
        template: str | None = None,
        special_tokens: dict[str, str] | None = None,
    ) -> None:
        """`vocab` is the size of the model's own output; raises `CalibrationError` where the tokenizer exceeds it."""
        from tokenizers import Tokenizer

        data = tokenizer_path.read_bytes()
        self.model, self.vocab, self.template = model, vocab, template
        self.special_tokens = special_tokens or {}
        self.tokenizer_sha256 = hashlib.sha256(data).hexdigest()
        self.template_sha256 = None if template is None else hashlib.sha256(template.encode()).hexdigest()
        try:
            self._tokenizer: Any = Tokenizer.from_str(data.decode())
        except Exception as error:  # the library raises bare Exception for every bad file
            raise CalibrationError(
                f"The tokenizer {tokenizer_path.name} cannot be used ({str(error)[:200]}); give a tokenizer.json."
            ) from error
        known = self._tokenizer.get_vocab_size()
        if known > vocab:
            raise CalibrationError(
                f"The tokenizer knows {known} tokens and the model {model} only {vocab}, so it is another model's; "
                "give the tokenizer.json that belongs to the model."
            )
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        self._unknown = None if unknown is None else self._tokenizer.token_to_id(unknown)

    def render(self, record: Record, system: str | None) -> str:
        """All that the model is given for `record`; raw text stands as it is."""
        if record.raw:
            return record.said
        messages = [{"role": "system", "content": system}] if system else []
        messages += [{"role": turn.role, "content": turn.content} for turn in record.turns]
        if self.template is None:
            return "\n\n".join(message["content"] for message in messages)
        text = render_messages(self.template, messages, **self.special_tokens)
        if system and system.strip() not in text:
            raise CalibrationError(
                f"The chat template of {self.model} leaves the system prompt out or changes it, so the set would not "
                "be what production sends; put it into the prompts themselves and declare --no-system."
            )
        return text

    def encode(self, texts: Sequence[str], progress: Progress, note: str) -> list[list[int]]:
        """Token ids of every text; raises `CalibrationError` where the tokenizer does not know the script."""
        found: list[list[int]] = []
        for at in range(0, len(texts), _BATCH):
            progress(at, len(texts), note)
            found += [one.ids for one in self._tokenizer.encode_batch(list(texts[at : at + _BATCH]))]
        total = sum(map(len, found))
        strange = sum(ids.count(self._unknown) for ids in found) if self._unknown is not None else 0
        if total and strange / total > _MOST_UNKNOWN:
            raise CalibrationError(
                f"{strange / total:.0%} of the tokens are unknown to the tokenizer of {self.model}, so it is another "
                "model's or does not know this script; give the tokenizer.json that belongs to the model."
            )
        return found
