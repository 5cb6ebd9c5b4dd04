"""The four families of draft heads: recurrent residual, token-conditioned, parallel, and zero-copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn as nn
import torch.nn.functional as F

from mtplab.model.backbone import MASKED, Backbone, rope_tables, rotate
from mtplab.model.errors import ModelError
from mtplab.model.head_base import Attend, Head, HeadConfig
from mtplab.model.kinds import Kind


class RecurrentResidualHead(Head):
    """The tutorial's head: one norm and one residual projection, applied γ times; sees no token."""

    def __init__(self, config: HeadConfig, backbone: Backbone, draft_ids: torch.Tensor | None = None) -> None:
        super().__init__(config, backbone, draft_ids)
        # Hidden states are large; without a first norm the residual step could hardly move them.
        self.in_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.residual_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        nn.init.normal_(self.residual_proj.weight, std=0.01)

    def begin(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.in_norm(hidden)

    def step(
        self, state: torch.Tensor, embedded: torch.Tensor | None, k: int = 1, attend: Attend | None = None
    ) -> torch.Tensor:
        return state + self.residual_proj(self.norm(state))

    def forward(self, hidden: torch.Tensor) -> dict[str, torch.Tensor]:
        """hidden[1,1,D] to logits[1,γ,V]."""
        return self.emit([self.project_reduced(state) for state in self.states_given(hidden, None)])


class ParallelHead(Head):
    """Medusa-like: every draft has its own residual block on the same hidden state; sees no token.

    Cai et al. 2024 (arXiv 2401.10774), with the backbone's projection shared instead of one per draft.
    """

    def __init__(self, config: HeadConfig, backbone: Backbone, draft_ids: torch.Tensor | None = None) -> None:
        super().__init__(config, backbone, draft_ids)
        width = config.d_model
        self.in_norm = nn.RMSNorm(width, eps=config.norm_eps)
        self.drafts = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(config.gamma))
        for linear in self.drafts:
            nn.init.normal_(linear.weight, std=0.01)

    def begin(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.in_norm(hidden)

    def states_given(
        self, hidden: torch.Tensor, fed: torch.Tensor | None, attend: Attend | None = None
    ) -> list[torch.Tensor]:
        state = self.begin(hidden)
        return [self.step(state, None, k) for k in range(1, self.gamma + 1)]

    def step(
        self, state: torch.Tensor, embedded: torch.Tensor | None, k: int = 1, attend: Attend | None = None
    ) -> torch.Tensor:
        return state + F.silu(self.drafts[k - 1](state))

    @torch.no_grad()
    def chain(self, hidden: torch.Tensor, token: torch.Tensor, attend: Attend | None = None) -> torch.Tensor:
        states = self.states_given(hidden, None)
        return torch.stack([self.choose(self.project_reduced(state)).long() for state in states], dim=1)

    def forward(self, hidden: torch.Tensor) -> dict[str, torch.Tensor]:
        """hidden[1,1,D] to logits[1,γ,V]."""
        return self.emit([self.project_reduced(state) for state in self.states_given(hidden, None)])


class TokenConditionedHead(Head):
    """Joins the state with the embedding of the last token; drafts chain by argmax inside the graph.

    There is no outer residual around the step: with one, a head begins by repeating the consumed token
    and learns more slowly.
    """

    takes_token = True

    def __init__(self, config: HeadConfig, backbone: Backbone, draft_ids: torch.Tensor | None = None) -> None:
        super().__init__(config, backbone, draft_ids)
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

    def join(self, state: torch.Tensor, embedded: torch.Tensor | None) -> torch.Tensor:
        """State and token in one vector."""
        if embedded is None:
            raise ModelError("A token-conditioned head was called without a token; pass the token chosen at p+1.")
        return self.join_proj(torch.cat([self.token_norm(embedded), self.state_norm(state)], dim=-1))

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.ff_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))

    def step(
        self, state: torch.Tensor, embedded: torch.Tensor | None, k: int = 1, attend: Attend | None = None
    ) -> torch.Tensor:
        return self.feed_forward(self.join(state, embedded))

    def forward(self, hidden: torch.Tensor, token: torch.Tensor) -> dict[str, torch.Tensor]:
        """hidden[1,1,D] and token[1,1] int32 (the choice at p+1) to logits[1,γ,V]."""
        return self.chained(hidden, token, None)

    def chained(self, hidden: torch.Tensor, token: torch.Tensor, attend: Attend | None) -> dict[str, torch.Tensor]:
        """The γ drafts of one hidden state, each fed the one before."""
        state, drafts = self.begin(hidden), []
        for k in range(1, self.gamma + 1):
            state = self.step(state, self.embedding(token), k, attend)
            drafts.append(self.project_reduced(state))
            token = self.choose(drafts[-1])
        return self.emit(drafts)


class ZeroCopyHead(TokenConditionedHead):
    """Token-conditioned, and attending to the backbone's own cache of its last layer, which it never writes.

    A query of draft k stands at position p+k (the place of the token it was fed) and sees the slots 0..p,
    all that the backbone wrote before the round.
    """

    def __init__(self, config: HeadConfig, backbone: Backbone, draft_ids: torch.Tensor | None = None) -> None:
        super().__init__(config, backbone, draft_ids)
        shape, have = config.attention, backbone.config
        if shape is None or (shape.layer, shape.heads, shape.kv_heads, shape.head_dim) != (
            have.layers - 1,
            have.heads,
            have.kv_heads,
            have.head_dim,
        ):
            raise ModelError(
                f"A zero-copy head reads the cache of the backbone's last layer, but this one was made for {shape}; "
                "use the head trained on this backbone."
            )
        self.shape = shape
        width = shape.heads * shape.head_dim
        self.query_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.q_proj = nn.Linear(config.d_model, width, bias=False)
        self.o_proj = nn.Linear(width, config.d_model, bias=False)
        nn.init.normal_(self.o_proj.weight, std=0.005)
        last = backbone.blocks[-1]
        with torch.no_grad():
            # The keys were made for the backbone's own queries, so its query is the best beginning.
            self.q_proj.weight.copy_(last.attention.q_proj.weight)
            self.query_norm.weight.copy_(last.attention_norm.weight)
        cos, sin = rope_tables(have)
        self.cos: torch.Tensor
        self.sin: torch.Tensor
        self.slots: torch.Tensor
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.register_buffer("slots", torch.arange(have.context, dtype=torch.int32), persistent=False)

    def example_inputs(self) -> dict[str, torch.Tensor]:
        shape = (1, self.shape.kv_heads, len(self.slots), self.shape.head_dim)
        caches = {name: torch.zeros(shape) for name in self.cache_inputs()}
        return {**super().example_inputs(), "input_pos": torch.ones(1, dtype=torch.int32), **caches}

    def cache_inputs(self) -> tuple[str, str]:
        """Names of the backbone's caches that `forward` takes, as the backbone itself names them."""
        return f"kv_cache_k_{self.shape.layer}", f"kv_cache_v_{self.shape.layer}"

    def step(
        self, state: torch.Tensor, embedded: torch.Tensor | None, k: int = 1, attend: Attend | None = None
    ) -> torch.Tensor:
        if attend is None:
            raise ModelError("A zero-copy head was called without the backbone's cache; pass attend.")
        x = self.join(state, embedded)
        return self.feed_forward(x + self.o_proj(attend(self.q_proj(self.query_norm(x)), k)))

    def forward(  # type: ignore[override]
        self, hidden: torch.Tensor, token: torch.Tensor, input_pos: torch.Tensor, **kv: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """hidden[1,1,D], token[1,1] int32, input_pos[1] int32 (p+1, the first verified position) to logits[1,γ,V].

        `kv` are the two caches of `cache_inputs`, [1,KV,T,HD]; slots from p+1 on are ignored.
        """
        k_name, v_name = self.cache_inputs()
        return self.chained(hidden, token, self.attend_cache(kv[k_name], kv[v_name], input_pos))

    def attend_cache(self, k_cache: torch.Tensor, v_cache: torch.Tensor, input_pos: torch.Tensor) -> Attend:
        """For exported graphs: queries [1,S,D'] whose drafts begin at input_pos[S] (p+1 each) to whole caches."""
        shape, length = self.shape, input_pos.shape[0]
        groups = shape.heads // shape.kv_heads
        mask = torch.where(self.slots[None, :] < input_pos[:, None], 0.0, MASKED)

        def attend(query: torch.Tensor, k: int) -> torch.Tensor:
            at = (input_pos + (k - 1)).clamp(max=self.cos.shape[0] - 1).long()
            q = query.view(1, length, shape.heads, shape.head_dim).transpose(1, 2)
            q = rotate(q, self.cos[at], self.sin[at]).reshape(1, shape.kv_heads, groups * length, shape.head_dim)
            scores = torch.matmul(q, k_cache.transpose(2, 3)) * shape.head_dim**-0.5
            scores = scores.view(1, shape.kv_heads, groups, length, -1) + mask
            weights = F.softmax(scores, dim=-1).view(1, shape.kv_heads, groups * length, -1)
            found = torch.matmul(weights, v_cache).view(1, shape.heads, length, shape.head_dim)
            return found.transpose(1, 2).reshape(1, length, shape.heads * shape.head_dim)

        return attend

    def attend_sequence(self, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor | None = None) -> Attend:
        """For whole texts: k, v [B,KV,n,HD] as in the cache; queries [B,m,D'] from `positions` [B,m] (or all n)."""
        shape = self.shape
        if positions is None:
            positions = torch.arange(k.shape[2])[None]
        seen = (torch.arange(k.shape[2]) <= positions[..., None])[:, None]
        latest = self.cos.shape[0] - 1

        def attend(query: torch.Tensor, draft: int) -> torch.Tensor:
            at = (positions + draft).clamp(max=latest)
            q = query.view(k.shape[0], positions.shape[1], shape.heads, shape.head_dim).transpose(1, 2)
            q = rotate(q, self.cos[at][:, None], self.sin[at][:, None])
            found = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
            return found.transpose(1, 2).reshape(query.shape)

        return attend


FAMILIES: dict[Kind, type[Head]] = {
    "recurrent_residual": RecurrentResidualHead,
    "token_conditioned": TokenConditionedHead,
    "parallel": ParallelHead,
    "zero_copy": ZeroCopyHead,
}


def attend_for(
    head: Head, kv: Sequence[torch.Tensor] | None, positions: torch.Tensor | None = None
) -> Attend | None:
    """How `head` looks at whole texts with last-layer caches (k, v), each [B,KV,n,HD]; None where it does not.

    Without `positions` [B,m] there is one query for every position.
    """
    if not isinstance(head, ZeroCopyHead):
        return None
    if kv is None:
        raise ModelError("A zero-copy head needs the backbone's last-layer cache of the text; pass it.")
    k, v = kv
    return head.attend_sequence(k, v, positions)
