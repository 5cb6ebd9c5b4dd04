"""Freezing in three layers: parameters, graph and policy (R2–R4); no later figure stands without its record."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import torch
import torch.nn as nn

from mtplab.model.backbone import Backbone, empty_cache
from mtplab.model.errors import ModelError
from mtplab.model.heads import Head
from mtplab.session.identity import Policy

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class TensorSpec(msgspec.Struct, frozen=True):
    """Shape and element type of one input or output of a graph."""

    shape: list[int]
    dtype: str


class GraphFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs and outputs of one inference-only graph, as seen in a forward."""

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]


class FreezeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was frozen and how that was proven. `sha256` identifies the whole."""

    backbone_sha256: str
    head_sha256: str
    head_kind: str
    gamma: int
    backbone_parameters: int
    head_own_parameters: int
    dropout_modules: int
    moving_statistics: int
    proofs: list[str]
    graphs: dict[str, GraphFacts]
    policy: dict[str, Any]
    policy_sha256: str
    torch_version: str
    sha256: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able form."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def freeze(backbone: Backbone, head: Head, policy: Policy) -> FreezeRecord:
    """Freeze both modules in place and return the proof; raise `ModelError` when anything still moves.

    Parameters: no gradient, eval mode, two forwards bit-equal, no random number drawn, no stored tensor changed.
    Graph: γ is the head's constant and equals the policy's fixed draft length; shapes are those of a forward.
    Policy: recorded whole and hashed.
    """
    if policy.gamma is not None and policy.gamma != head.gamma:
        raise ModelError(
            f"The policy drafts {policy.gamma} tokens but the head is built for γ = {head.gamma}, a constant of its "
            f"graph; set draft_length to fixed:{head.gamma} or choose a head with γ = {policy.gamma}."
        )
    for module in (backbone, head):
        module.requires_grad_(False)
        module.eval()
    dropouts = _require_inert_dropout("backbone", backbone) + _require_inert_dropout("head", head)
    graphs = {
        "verify": _prove_still("backbone", backbone, _verify_inputs(backbone, head.gamma)),
        "draft": _prove_still("head", head, head.example_inputs()),
    }
    record = FreezeRecord(
        backbone_sha256=state_sha256(backbone),
        head_sha256=state_sha256(head),
        head_kind=head.config.kind,
        gamma=head.gamma,
        backbone_parameters=backbone.parameter_count(),
        head_own_parameters=sum(value.numel() for _, value in head.own_parameters()),
        dropout_modules=dropouts,
        moving_statistics=_statistics(backbone) + _statistics(head),
        proofs=[
            "no parameter requires a gradient",
            "every module is in eval mode",
            "two forwards are bit-equal",
            "no random number was drawn",
            "no parameter or buffer changed",
        ],
        graphs=graphs,
        policy=msgspec.to_builtins(policy),
        policy_sha256=policy.sha256(),
        torch_version=str(torch.__version__),
    )
    encoded = msgspec.json.encode(record, order="deterministic")
    return msgspec.structs.replace(record, sha256=hashlib.sha256(encoded).hexdigest())


def state_sha256(module: nn.Module) -> str:
    """Hash over the names, shapes and bytes of every parameter and persistent or other buffer."""
    digest = hashlib.sha256()
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers()]
    for name, value in sorted(tensors, key=lambda pair: pair[0]):
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _require_inert_dropout(role: str, module: nn.Module) -> int:
    """Number of Dropout modules; raises when one of them, or any other module, still trains."""
    count = 0
    for name, part in module.named_modules():
        count += isinstance(part, _DROPOUTS)
        if part.training:
            kind = "Dropout" if isinstance(part, _DROPOUTS) else type(part).__name__
            raise ModelError(
                f"The {kind} {name or 'itself'!s} of the {role} stays in training mode after eval(), so its output "
                "would change from run to run; remove it or let it follow eval()."
            )
    return count


def _statistics(module: nn.Module) -> int:
    """Number of modules that keep running statistics."""
    return sum(getattr(part, "running_mean", None) is not None for part in module.modules())


def _prove_still(role: str, module: nn.Module, inputs: dict[str, torch.Tensor]) -> GraphFacts:
    """Run twice; raise unless outputs are bit-equal, no random number was drawn and no tensor moved."""
    state, random_state = state_sha256(module), torch.get_rng_state()
    with torch.no_grad():
        first = module(**inputs)
        second = module(**inputs)
    if state_sha256(module) != state:
        raise ModelError(
            f"A parameter or statistic of the {role} moved during a forward in eval mode, so figures would depend on "
            "what ran before; fix the norm statistics (for example track_running_stats with eval mode)."
        )
    if not torch.equal(torch.get_rng_state(), random_state):
        raise ModelError(
            f"The {role} drew random numbers in eval mode, as an active Dropout does; remove the randomness."
        )
    moved = [name for name in first if not torch.equal(first[name], second[name])]
    if moved:
        raise ModelError(
            f"Two forwards of the {role} on the same input differ in {moved[0]}, so nothing measured with it can be "
            "compared; look for an active Dropout or other state."
        )
    return GraphFacts(inputs=_specs(inputs), outputs=_specs(first))


def _specs(tensors: dict[str, torch.Tensor]) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(list(value.shape), str(value.dtype).removeprefix("torch."))
        for name, value in tensors.items()
    }


def _verify_inputs(backbone: Backbone, gamma: int) -> dict[str, torch.Tensor]:
    """A round's verification of γ+1 tokens from position 0, over fixed token ids."""
    positions = torch.arange(gamma + 1, dtype=torch.int32)
    tokens = (positions * 7 + 1).remainder(backbone.config.vocab)[None]
    return {"tokens": tokens, "input_pos": positions, **empty_cache(backbone.config)}

