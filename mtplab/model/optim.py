"""Muon for weight matrices and Adam for the rest, with a state that is nothing but named tensors.

Muon (Jordan et al. 2024) orthogonalises the momentum of each matrix by a Newton–Schulz iteration; on small
transformers it needs markedly fewer steps than Adam, which matters on two CPU cores.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

_NS_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_NS_STEPS = 5


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """Nearest semi-orthogonal matrices, roughly, of a stack [N, rows, columns]."""
    a, b, c = _NS_COEFFICIENTS
    transposed = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if transposed else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_NS_STEPS):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(1, 2) if transposed else x


class MuonAdam:
    """One optimiser over named parameters: matrices by Muon, embeddings and vectors by Adam."""

    def __init__(
        self,
        parameters: Iterable[tuple[str, torch.nn.Parameter]],
        *,
        muon_rate: float,
        adam_rate: float,
        weight_decay: float = 0.0,
    ) -> None:
        self.muon_rate, self.adam_rate, self.weight_decay = muon_rate, adam_rate, weight_decay
        self.steps = 0
        self.state: dict[str, torch.Tensor] = {}
        self._adam: dict[str, torch.nn.Parameter] = {}
        self._stacks: dict[torch.Size, list[tuple[str, torch.nn.Parameter]]] = {}
        for name, value in parameters:
            if value.dim() == 2 and "embedding" not in name:
                self._stacks.setdefault(value.shape, []).append((name, value))
                self.state[f"momentum.{name}"] = torch.zeros_like(value)
            else:
                self._adam[name] = value
                self.state[f"first.{name}"] = torch.zeros_like(value)
                self.state[f"second.{name}"] = torch.zeros_like(value)

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Apply the gradients with both rates times `scale`, then clear them."""
        self.steps += 1
        for shape, members in self._stacks.items():
            self._muon(shape, members, self.muon_rate * scale)
        for name, value in self._adam.items():
            self._adam_step(name, value, self.adam_rate * scale)

    def _muon(self, shape: torch.Size, members: list[tuple[str, torch.nn.Parameter]], rate: float) -> None:
        updates = []
        for name, value in members:
            assert value.grad is not None
            momentum = self.state[f"momentum.{name}"]
            momentum.lerp_(value.grad, 0.05)
            updates.append(torch.lerp(value.grad, momentum, 0.95))
            value.grad = None
        directions = orthogonalise(torch.stack(updates))
        rows, columns = shape
        for (_, value), direction in zip(members, directions, strict=True):
            value.mul_(1 - rate * self.weight_decay)
            value.add_(direction, alpha=-rate * max(1.0, rows / columns) ** 0.5)

    def _adam_step(self, name: str, value: torch.nn.Parameter, rate: float) -> None:
        assert value.grad is not None
        first, second = self.state[f"first.{name}"], self.state[f"second.{name}"]
        first.lerp_(value.grad, 0.1)
        second.lerp_(value.grad.square(), 0.05)
        unbiased = second / (1 - 0.95**self.steps)
        value.sub_(first / (1 - 0.9**self.steps) / (unbiased.sqrt() + 1e-8), alpha=rate)
        value.grad = None
