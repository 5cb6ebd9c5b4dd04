"""What every draft head shares: its configuration, the projection onto the vocabulary, and the chain of γ steps.

Positions follow the contract of the house: given `hidden[p]` (and, if token-conditioned, the already
chosen token p+1), draft k = 1..γ predicts token p+1+k. The output projection and the token embedding
are the backbone's own and are never stored with a head; an exported head carries its copy of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec
import torch
import torch.nn as nn
import torch.nn.functional as F

from mtplab.model.backbone import MASKED, Backbone
from mtplab.model.errors import ModelError
from mtplab.model.kinds import Kind

# queries[…,D'] of draft k (1..γ) to what they find in the backbone's cache, […,D']
Attend = Callable[[torch.Tensor, int], torch.Tensor]


class AttentionShape(msgspec.Struct, frozen=True, kw_only=True):
    """The backbone's cache that a zero-copy head reads: its layer and its heads."""

    layer: int
    heads: int
    kv_heads: int
    head_dim: int


class HeadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a draft head; `gamma` is a constant of the head and of every export made from it."""

    kind: Kind
    gamma: int
    d_model: int
    vocab: int
    ff: int = 128
    norm_eps: float = 1e-5
    draft_vocab: int | None = None
    """How many tokens the head can draft; None is the whole vocabulary."""
    attention: AttentionShape | None = None

    def __post_init__(self) -> None:
        if self.gamma < 1:
            raise ModelError(f"A draft head with γ = {self.gamma} drafts nothing; choose a γ of 1 or more.")
        if self.draft_vocab is not None and not 0 < self.draft_vocab <= self.vocab:
            raise ModelError(
                f"A draft vocabulary of {self.draft_vocab} tokens is none of a vocabulary of {self.vocab}; "
                f"choose 1 to {self.vocab}."
            )


class Head(nn.Module, ABC):
    """Common part of all families: shared projection, one step, and the chain of γ steps."""

    takes_token = False
    only_ids = False
    """Whether `forward` gives ids[1,γ] int32 alone: see `choosing`."""

    def __init__(self, config: HeadConfig, backbone: Backbone, draft_ids: torch.Tensor | None = None) -> None:
        """`draft_ids` int64[draft_vocab], ascending, are the tokens of a reduced draft vocabulary."""
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
        self.lm_head = nn.Linear(config.d_model, config.draft_vocab or config.vocab, bias=False)
        self.embedding.weight = backbone.embedding.weight
        self._reduce(config, backbone, draft_ids)
        self.out_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        with torch.no_grad():
            self.out_norm.weight.copy_(backbone.final_norm.weight)

    def _reduce(self, config: HeadConfig, backbone: Backbone, draft_ids: torch.Tensor | None) -> None:
        if (draft_ids is None) != (config.draft_vocab is None):
            raise ModelError(
                "A head with a reduced draft vocabulary needs the list of its tokens, and only such a head has one; "
                "save it again with save_head."
            )
        self.draft_ids: torch.Tensor | None
        self.places: torch.Tensor
        if draft_ids is None:
            self.draft_ids = None
            self.lm_head.weight = backbone.lm_head.weight
            return
        draft_ids = draft_ids.long()
        ascending = bool((draft_ids[1:] > draft_ids[:-1]).all())
        if len(draft_ids) != config.draft_vocab or not ascending or not 0 <= int(draft_ids[0]) <= int(
            draft_ids[-1]
        ) < config.vocab:
            raise ModelError(
                "The draft vocabulary of this head is no ascending list of tokens of the backbone; "
                "use the head trained on this backbone."
            )
        with torch.no_grad():
            self.lm_head.weight = nn.Parameter(backbone.lm_head.weight[draft_ids].clone())
        # Where each token of the whole vocabulary stands among the drafted ones; the last place means "never".
        places = torch.full((config.vocab,), len(draft_ids), dtype=torch.int32)
        places[draft_ids] = torch.arange(len(draft_ids), dtype=torch.int32)
        self.register_buffer("draft_ids", draft_ids.to(torch.int32))
        self.register_buffer("places", places, persistent=False)

    def example_inputs(self) -> dict[str, torch.Tensor]:
        """Inputs of `forward` by name, in the static shapes of an export: a hidden state, token 1, empty caches."""
        inputs = {"hidden": torch.linspace(-1.7, 1.7, self.config.d_model).view(1, 1, -1)}
        if self.takes_token:
            inputs["token"] = torch.ones((1, 1), dtype=torch.int32)
        return inputs

    def begin(self, hidden: torch.Tensor) -> torch.Tensor:
        """The state before the first draft."""
        return hidden

    @abstractmethod
    def step(
        self, state: torch.Tensor, embedded: torch.Tensor | None, k: int = 1, attend: Attend | None = None
    ) -> torch.Tensor:
        """The state of draft k, from state[…,D] before it and the embedding of the token before it."""

    def project_reduced(self, state: torch.Tensor) -> torch.Tensor:
        """Logits[…] of the tokens that this head can draft (`draft_ids`, or all), of a state[…,D]."""
        return self.lm_head(self.out_norm(state))

    def expand(self, reduced: torch.Tensor) -> torch.Tensor:
        """Logits[…,V] over the whole vocabulary: one GATHER; tokens that are never drafted stand at MASKED."""
        if self.draft_ids is None:
            return reduced
        padded = F.pad(reduced, (0, 1), value=MASKED)
        return torch.index_select(padded, -1, self.places)

    def project(self, state: torch.Tensor) -> torch.Tensor:
        """Draft logits[…,V] of a state[…,D]."""
        return self.expand(self.project_reduced(state))

    def emit(self, reduced: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """What `forward` gives of the reduced logits of γ drafts: logits[1,γ,V], or only the ids of their choice."""
        if self.only_ids:
            return {"ids": torch.cat([self.choose(one) for one in reduced], dim=1)}
        return {"logits": torch.cat([self.expand(one) for one in reduced], dim=1)}

    def choose(self, reduced: torch.Tensor) -> torch.Tensor:
        """Token ids, int32, of the largest of reduced[…]."""
        best = torch.argmax(reduced, dim=-1)
        return best.to(torch.int32) if self.draft_ids is None else self.draft_ids[best]

    def states_given(
        self, hidden: torch.Tensor, fed: torch.Tensor | None, attend: Attend | None = None
    ) -> list[torch.Tensor]:
        """States of the γ drafts with the fed tokens given (teacher forcing): hidden[…,D], fed[…,γ].

        `fed[…,k-1]` is the token p+k that precedes draft k. Heads without tokens ignore it.
        """
        state, states = self.begin(hidden), []
        for k in range(1, self.gamma + 1):
            embedded = self.embedding(fed[..., k - 1]) if fed is not None and self.takes_token else None
            state = self.step(state, embedded, k, attend)
            states.append(state)
        return states

    def drafts_given(
        self, hidden: torch.Tensor, fed: torch.Tensor | None, attend: Attend | None = None
    ) -> list[torch.Tensor]:
        """Logits[…,V] of the γ drafts of `states_given`."""
        return [self.project(state) for state in self.states_given(hidden, fed, attend)]

    @torch.no_grad()
    def chain(self, hidden: torch.Tensor, token: torch.Tensor, attend: Attend | None = None) -> torch.Tensor:
        """Drafts [N,γ] int64 from hidden[N,D] and the token after each, token[N]; each feeds the next."""
        state, fed, drafts = self.begin(hidden), token, []
        for k in range(1, self.gamma + 1):
            state = self.step(state, self.embedding(fed) if self.takes_token else None, k, attend)
            fed = self.choose(self.project_reduced(state)).long()
            drafts.append(fed)
        return torch.stack(drafts, dim=1)

    def own_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Parameters that the backbone does not already hold."""
        shared = {"embedding.weight", "lm_head.weight"}
        return [(name, value) for name, value in self.named_parameters(remove_duplicate=False) if name not in shared]
