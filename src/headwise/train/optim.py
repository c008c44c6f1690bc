"""Fused Adam, its parameter groups, and one update that never reads the device."""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer


def adam(
    model: nn.Module,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float = 0.0,
    decay_embeddings: bool = False,
) -> Optimizer:
    """Adam, with decoupled decay (Loshchilov & Hutter 2019) of matrices; biases and norms have none."""
    embeddings = {
        id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding) and not decay_embeddings
    }
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    decayed = [weight for weight in trained if weight.ndim >= 2 and id(weight) not in embeddings]
    chosen = {id(weight) for weight in decayed}
    others = [weight for weight in trained if id(weight) not in chosen]
    groups = [
        {"params": [weight for weight in weights if pace(weight) == share], "weight_decay": decay, "pace": share}
        for weights, decay in ((decayed, weight_decay), (others, 0.0))
        for share in dict.fromkeys(map(pace, weights))
    ]
    return AdamW(groups, lr=0.0, betas=betas, eps=eps, fused=True)


def pace(weight: Tensor) -> float:
    """How fast a weight learns, as a share of the rate; fine-tuning lets lower layers learn more slowly."""
    return getattr(weight, "pace", 1.0)


def update(optimizer: Optimizer, count: Tensor, rate: float, clip: float) -> Tensor:
    """One step along the summed gradient divided by `count`, clipped to norm `clip`; returns the norm.

    Fused optimisers divide the gradient by `grad_scale` and leave everything as it was when
    `found_inf` is set, both on the device: averaging, clipping and the refusal of a gradient
    that is not finite cost no pass over the weights and no wait for the device.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True) / count
    excess = (norm / clip).clamp(min=1.0) if clip else torch.ones_like(norm)
    optimizer.grad_scale = (count * excess).float()  # type: ignore[attr-defined]
    optimizer.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("pace", 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def dump(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's tensors under `parameter/what`, independent of how the groups are cut."""
    names = {id(weight): name for name, weight in model.named_parameters()}
    return {
        f"{names[id(weight)]}/{what}": tensor
        for weight, state in optimizer.state.items()
        for what, tensor in state.items()
    }


def load(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put dumped tensors back."""
    states: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in tensors.items():
        name, what = key.rsplit("/", 1)
        states[name][what] = tensor
    names = {id(weight): name for name, weight in model.named_parameters()}
    order = [names[id(weight)] for group in optimizer.param_groups for weight in group["params"]]
    packed = optimizer.state_dict()
    packed["state"] = {number: states[name] for number, name in enumerate(order) if name in states}
    optimizer.load_state_dict(packed)
