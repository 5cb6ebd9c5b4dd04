"""Names of the families of draft heads; needs no torch, so that a command line can offer them."""

from __future__ import annotations

from typing import Literal

Kind = Literal["recurrent_residual", "token_conditioned", "parallel", "zero_copy"]
KINDS: tuple[Kind, ...] = ("recurrent_residual", "token_conditioned", "parallel", "zero_copy")
TINY_KINDS: tuple[Kind, ...] = ("recurrent_residual", "token_conditioned")
"""The families whose heads are shipped with the tiny model."""
