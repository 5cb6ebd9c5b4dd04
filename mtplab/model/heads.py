"""Draft heads: two families that turn one hidden state into the logits of γ future tokens.

Positions follow the contract of the house: given `hidden[p]` (and, if token-conditioned, the already
chosen token p+1), draft k = 1..γ predicts token p+1+k. The output projection and the token embedding
are the backbone's own and are never stored with a head; an exported head carries its copy of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

from mtplab.model.backbone import Backbone
from mtplab.model.errors import ModelError
from mtplab.model.weights import assign, read_tensors

Kind = Literal["recurrent_residual", "token_conditioned"]
KINDS: tuple[Kind, ...] = ("recurrent_residual", "token_conditioned")

# Above this share of the backbone's parameters a head is warned about: decode is bound by memory bandwidth.
LARGE_HEAD_SHARE = 0.05


class HeadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a draft head; `gamma` is a constant of the head and of every export made from it."""

    kind: Kind
    gamma: int
    d_model: int
    vocab: int
    ff: int = 128
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        if self.gamma < 1:
            raise ModelError(f"A draft head with γ = {self.gamma} drafts nothing; choose a γ of 1 or more.")


class HeadCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a head adds to a backbone. Bytes count the stored element size given, not cache misses."""

    own_parameters: int
    shared_parameters: int
    backbone_parameters: int
    own_share: float
    bytes_read_per_round: int
    bytes_per_parameter: float
    warning: str | None


class Head(nn.Module):
    """Common part of both families: shared projection, one step, and the chain of γ steps."""

    def __init__(self, config: HeadConfig, backbone: Backbone) -> None:
        super().__init__()
        if (config.d_model, config.vocab) != (backbone.config.d_model, backbone.config.vocab):
            raise ModelError(
                f"A head for d_model {config.d_model} and vocabulary {config.vocab} does not fit a backbone "
                f"with {backbone.config.d_model} and {backbone.config.vocab}; "
                "use the head trained on this backbone."
            )
        self.config = config
        self.gamma = config.gamma
        self.embedding = nn.Embedding(config.vocab, config.d_model)
        self.lm_head = nn.Linear(config.d_model, config.vocab, bias=False)
        self.embedding.weight = backbone.embedding.weight
        self.lm_head.weight = backbone.lm_head.weight
        self.out_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        with torch.no_grad():
            self.out_norm.weight.copy_(backbone.final_norm.weight)

    @property
    def takes_token(self) -> bool:
        """Whether `forward` wants the token chosen at p+1 beside the hidden state."""
        return self.config.kind == "token_conditioned"

    def begin(self, hidden: torch.Tensor) -> torch.Tensor:
        """The state before the first draft."""
        return hidden

    def step(self, state: torch.Tensor, embedded: torch.Tensor | None) -> torch.Tensor:
        """The state one draft position on, from state[…,D] and the embedding of the token before it."""
        raise NotImplementedError

    def project(self, state: torch.Tensor) -> torch.Tensor:
        """Draft logits[…,V] of a state[…,D]."""
        return self.lm_head(self.out_norm(state))

    def drafts_given(self, hidden: torch.Tensor, fed: torch.Tensor | None) -> list[torch.Tensor]:
        """Logits of the γ drafts with the fed tokens given (teacher forcing): hidden[…,D], fed[…,γ].

        `fed[…,k-1]` is the token p+k that precedes draft k. Heads without tokens ignore it.
        """
        state, logits = self.begin(hidden), []
        for k in range(self.gamma):
            embedded = self.embedding(fed[..., k]) if fed is not None and self.takes_token else None
            state = self.step(state, embedded)
            logits.append(self.project(state))
        return logits

    def own_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Parameters that the backbone does not already hold."""
        shared = {"embedding.weight", "lm_head.weight"}
        return [(name, value) for name, value in self.named_parameters(remove_duplicate=False) if name not in shared]


class RecurrentResidualHead(Head):
    """The tutorial's head: one norm and one residual projection, applied γ times; sees no token."""

    def __init__(self, config: HeadConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        # Hidden states are large; without a first norm the residual step could hardly move them.
        self.in_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.residual_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        nn.init.normal_(self.residual_proj.weight, std=0.01)

    def begin(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.in_norm(hidden)

    def step(self, state: torch.Tensor, embedded: torch.Tensor | None) -> torch.Tensor:
        return state + self.residual_proj(self.norm(state))

    def forward(self, hidden: torch.Tensor) -> dict[str, torch.Tensor]:
        """hidden[1,1,D] to logits[1,γ,V]."""
        return {"logits": torch.cat(self.drafts_given(hidden, None), dim=1)}


class TokenConditionedHead(Head):
    """Joins the state with the embedding of the last token; drafts chain by argmax inside the graph.

    There is no outer residual around the step: with one, a head begins by repeating the consumed token
    and learns more slowly.
    """

    def __init__(self, config: HeadConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        width = config.d_model
        self.token_norm = nn.RMSNorm(width, eps=config.norm_eps)
        self.state_norm = nn.RMSNorm(width, eps=config.norm_eps)
        self.join_proj = nn.Linear(2 * width, width, bias=False)
        self.ff_norm = nn.RMSNorm(width, eps=config.norm_eps)
        self.gate_proj = nn.Linear(width, config.ff, bias=False)
        self.up_proj = nn.Linear(width, config.ff, bias=False)
        self.down_proj = nn.Linear(config.ff, width, bias=False)
        nn.init.normal_(self.join_proj.weight, std=0.03)
        nn.init.normal_(self.down_proj.weight, std=0.01)

    def step(self, state: torch.Tensor, embedded: torch.Tensor | None) -> torch.Tensor:
        if embedded is None:
            raise ModelError("A token-conditioned head was called without a token; pass the token chosen at p+1.")
        x = self.join_proj(torch.cat([self.token_norm(embedded), self.state_norm(state)], dim=-1))
        y = self.ff_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))

    def forward(self, hidden: torch.Tensor, token: torch.Tensor) -> dict[str, torch.Tensor]:
        """hidden[1,1,D] and token[1,1] int32 (the choice at p+1) to logits[1,γ,V]."""
        state, drafts = self.begin(hidden), []
        for _ in range(self.gamma):
            state = self.step(state, self.embedding(token))
            logits = self.project(state)
            drafts.append(logits)
            token = torch.argmax(logits, dim=-1).to(torch.int32)
        return {"logits": torch.cat(drafts, dim=1)}


_FAMILIES: dict[Kind, type[RecurrentResidualHead] | type[TokenConditionedHead]] = {
    "recurrent_residual": RecurrentResidualHead,
    "token_conditioned": TokenConditionedHead,
}


def build_head(kind: Kind, backbone: Backbone, gamma: int = 3) -> Head:
    """A fresh head of the family, with random own weights, on `backbone`."""
    shape = backbone.config
    config = HeadConfig(kind=kind, gamma=gamma, d_model=shape.d_model, vocab=shape.vocab, norm_eps=shape.norm_eps)
    return _FAMILIES[kind](config, backbone)


def head_cost(head: Head, backbone: Backbone, bytes_per_parameter: float = 4.0) -> HeadCost:
    """Size of the head (R5). A round reads the own weights and the output projection once per step.

    Embedding look-ups read γ rows of d_model. Weights small enough to stay in a cache are read from there,
    so the bytes are an upper bound of memory traffic.
    """
    own = sum(value.numel() for _, value in head.own_parameters())
    width, vocab = head.config.d_model, head.config.vocab
    backbone_parameters = backbone.parameter_count()
    rows = width if head.takes_token else 0
    read = head.gamma * (own + width * vocab + rows)
    share = own / backbone_parameters
    warning = None
    if share > LARGE_HEAD_SHARE:
        warning = (
            f"The head's own parameters are {share:.1%} of the backbone's, above {LARGE_HEAD_SHARE:.0%}: "
            "decode is bound by memory bandwidth, so measure whether the drafts pay for it."
        )
    return HeadCost(
        own_parameters=own,
        shared_parameters=width * vocab,
        backbone_parameters=backbone_parameters,
        own_share=share,
        bytes_read_per_round=int(read * bytes_per_parameter),
        bytes_per_parameter=bytes_per_parameter,
        warning=warning,
    )


def save_head(head: Head, path: Path, dtype: torch.dtype = torch.float16) -> None:
    """Write the head's own tensors as safetensors with its configuration in the metadata."""
    tensors = {name: value.detach().to(dtype).contiguous() for name, value in head.own_parameters()}
    save_file(tensors, path, metadata={"mtplab_head": msgspec.json.encode(head.config).decode()})


def load_head(path: Path, backbone: Backbone) -> Head:
    """Read a head for `backbone`; only safetensors with mtplab's metadata are opened."""
    tensors, metadata = read_tensors(path)
    try:
        config = msgspec.json.decode(metadata.get("mtplab_head", ""), type=HeadConfig)
    except msgspec.DecodeError as error:
        raise ModelError(
            f"The head {path.name} does not say its family and γ ({error}); save it again with save_head."
        ) from error
    head = _FAMILIES[config.kind](config, backbone)
    assign(path.name, dict(head.own_parameters()), tensors)
    return head.eval()
