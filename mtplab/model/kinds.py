"""Names of the families of draft heads; needs no torch, so that a command line can offer them."""

from __future__ import annotations

from typing import Literal

Kind = Literal["recurrent_residual", "token_conditioned", "parallel", "zero_copy"]
KINDS: tuple[Kind, ...] = ("recurrent_residual", "token_conditioned", "parallel", "zero_copy")
TINY_KINDS: tuple[Kind, ...] = ("recurrent_residual", "token_conditioned")
"""The families whose heads are shipped with the tiny model."""

# What LiteRT-LM can run as a drafter.
BUNDLED_KINDS: tuple[Kind, ...] = ("token_conditioned", "zero_copy")


def no_drafter(kind: str) -> str:
    """Why a head of another family is refused, as one sentence."""
    return (
        f"LiteRT-LM feeds a drafter the token before and one state, and a {kind} head takes no token, so it cannot "
        f"be bundled; train a {' or '.join(BUNDLED_KINDS)} head."
    )
