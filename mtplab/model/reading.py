"""How a model reads a prompt and ends an answer: what every stage after freezing knows of it, without torch."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mtplab.model.chat import render_chat
from mtplab.model.prompts import Prompt


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Template, end tokens and sizes of a model; the freeze stage leaves it as model.json."""

    name: str
    vocab: int
    context: int
    end_tokens: list[int]
    chat_template: str | None = None
    special_tokens: dict[str, str] = {}

    @classmethod
    def load(cls, path: Path) -> Reading:
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def templates(self, prompt: Prompt) -> bool:
        """Whether the model's chat template goes around `prompt`; the tokenizer then adds no tokens of its own."""
        return self.chat_template is not None and not prompt.raw

    def text_of(self, prompt: Prompt) -> str:
        """All that the model is given for `prompt`; raw text stands as it is."""
        if self.chat_template is not None and not prompt.raw:
            return render_chat(self.chat_template, prompt.text, prompt.system, **self.special_tokens)
        return f"{prompt.system}\n\n{prompt.text}" if prompt.system and not prompt.raw else prompt.text
