"""The model's own chat template, applied wherever prompts are used; rendered in a sandbox, as it may be hostile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from mtplab.model.errors import ModelError

_MOST_CHARACTERS = 100_000


def render_chat(template: str, prompt: str, system: str | None = None, **names: Any) -> str:
    """The text that makes the model answer `prompt`; `names` are what templates ask for (bos_token, eos_token).

    Without `system` the template's own default system prompt, if it has one, stands.
    """
    opening = [{"role": "system", "content": system}] if system else []
    return render_messages(template, [*opening, {"role": "user", "content": prompt}], **names)


def render_messages(template: str, messages: Sequence[dict[str, str]], **names: Any) -> str:
    """The text of a whole conversation that makes the model answer its last message."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    try:
        text = environment.from_string(template).render(messages=messages, add_generation_prompt=True, **names)
    except (TemplateError, TypeError, ValueError, RecursionError, OverflowError, MemoryError) as error:
        raise ModelError(
            f"The chat template of the model cannot be applied ({type(error).__name__}: {str(error)[:200]}); "
            "correct chat_template in its tokenizer_config.json."
        ) from error
    if len(text) > _MOST_CHARACTERS + sum(len(one["content"]) for one in messages):
        raise ModelError("The chat template of the model makes an absurdly long text; correct it.")
    return text


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)
