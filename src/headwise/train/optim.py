"""Optimisers, parameter groups, and the update with gradient clipping that all of them share."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from headwise.config.base import Config, Fraction, NonNegativeFloat, PositiveFloat
from headwise.errors import UserError

NO_SCALES: Mapping[str, float] = MappingProxyType({})  # all parameters have the full learning rate
JSON = ":json"  # suffix of state entries that are not tensors


def build_adam(
    model: nn.Module,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float = 0.0,
    decay_embeddings: bool = False,
    lr_scales: Mapping[str, float] = NO_SCALES,
) -> Optimizer:
    """Fused Adam with decoupled weight decay (Loshchilov & Hutter 2019) of matrices; none of biases and norms."""
    return AdamW(
        group_parameters(model, weight_decay, decay_embeddings, lr_scales), lr=0.0, betas=betas, eps=eps, fused=True
    )


def build_adafactor(
    model: nn.Module,
    eps: tuple[float, float] = (1e-30, 1e-3),
    clip_threshold: float = 1.0,
    decay_rate: float = -0.8,
    beta1: float = 0.0,
    scale_parameter: bool = True,
    weight_decay: float = 0.0,
    decay_embeddings: bool = False,
    lr_scales: Mapping[str, float] = NO_SCALES,
) -> Optimizer:
    """Adafactor with decoupled weight decay of matrices; none of biases and norms."""
    groups = group_parameters(model, weight_decay, decay_embeddings, lr_scales)
    return Adafactor(groups, eps, clip_threshold, decay_rate, beta1, scale_parameter)


class Adafactor(Optimizer):
    """Adafactor (Shazeer & Stern 2018, algorithms 4 and 5): Adam with factored second moments.

    The second moments of a matrix are factored into the mean squares R of its rows and C of its columns (of the last
    two dimensions of a larger tensor); those of a vector are stored in full. With t the number of updates of weight X:

        beta2 = 1 - t^decay_rate,  V = R C / mean(R),  U = G / sqrt(V),  U <- U / max(1, RMS(U) / clip_threshold)
        X <- X - lr U,  lr = rate · max(eps[1], RMS(X)) with `scale_parameter`, else rate

    `relative_step` in schedules.py is the paper's learning rate. DISCREPANCY: as in the released code, `beta1` averages
    updates that include the learning rate, and weight decay, which the paper does not have, subtracts
    lr · weight_decay · X. torch.optim.Adafactor differs: it limits the rate to t^-0.5, does not scale the decay and has
    no beta1.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        eps: tuple[float, float],
        clip_threshold: float,
        decay_rate: float,
        beta1: float,
        scale_parameter: bool,
    ):
        settings = {"eps": eps, "clip_threshold": clip_threshold, "decay_rate": decay_rate, "beta1": beta1}
        super().__init__(groups, {"lr": 0.0, "weight_decay": 0.0, "scale_parameter": scale_parameter, **settings})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update_weight(weight, weight.grad, group)

    def _update_weight(self, weight: Tensor, gradient: Tensor, group: Mapping[str, Any]) -> None:
        state = self.state[weight] or self._init_state(weight, group)
        state["step"] += 1
        keep = 1 - state["step"] ** group["decay_rate"]
        squares = gradient.square().add_(group["eps"][0])
        if weight.ndim >= 2:
            rows = state["exp_avg_sq_row"].lerp_(squares.mean(-1), 1 - keep)  # (..., n, m) -> (..., n)
            columns = state["exp_avg_sq_col"].lerp_(squares.mean(-2), 1 - keep)  # (..., n, m) -> (..., m)
            factors = (rows / rows.mean(-1, keepdim=True)).rsqrt_().unsqueeze(-1), columns.rsqrt().unsqueeze(-2)
            update = torch.mul(*factors, out=squares).mul_(gradient)
        else:
            update = state["exp_avg_sq"].lerp_(squares, 1 - keep).rsqrt().mul_(gradient)
        rate = group["lr"]
        if group["scale_parameter"]:
            rate = rate * _rms(weight).clamp(min=group["eps"][1])
        update.mul_(rate / (_rms(update) / group["clip_threshold"]).clamp(min=1.0))
        if group["beta1"]:
            update = state["exp_avg"].lerp_(update, 1 - group["beta1"])
        if group["weight_decay"]:
            weight.mul_(1 - rate * group["weight_decay"])
        weight.sub_(update)

    def _init_state(self, weight: Tensor, group: Mapping[str, Any]) -> dict[str, Any]:
        state = self.state[weight]
        state["step"] = 0
        if weight.ndim >= 2:
            state["exp_avg_sq_row"] = weight.new_zeros(weight.shape[:-1])
            state["exp_avg_sq_col"] = weight.new_zeros(weight.shape[:-2] + weight.shape[-1:])
        else:
            state["exp_avg_sq"] = torch.zeros_like(weight)
        if group["beta1"]:
            state["exp_avg"] = torch.zeros_like(weight)
        return state


def _rms(tensor: Tensor) -> Tensor:
    """The root mean square, as a tensor: reading its value would synchronise with the device."""
    return tensor.norm() / tensor.numel() ** 0.5


def group_parameters(
    model: nn.Module, weight_decay: float, decay_embeddings: bool, lr_scales: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Parameter groups by weight decay (matrices only; embeddings with `decay_embeddings`) and learning-rate scale."""
    embeddings = {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and not decay_embeddings
    }
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    decayed = {name for name, weight in trained.items() if weight.ndim >= 2 and id(weight) not in embeddings}
    scales = {name: lr_scales.get(name, 1.0) for name in trained}
    groups = ((weight_decay, decayed), (0.0, trained.keys() - decayed))
    return [
        {
            "params": [weight for name, weight in trained.items() if name in names and scales[name] == scale],
            "weight_decay": decay,
            "lr_scale": scale,
        }
        for decay, names in groups
        for scale in dict.fromkeys(scales[name] for name in trained if name in names)
    ]


def clip_and_step(optimizer: Optimizer, count: Tensor, rate: float, clip: float) -> Tensor:
    """Gradient clipping to norm `clip` (0: none) and one optimiser step at learning rate `rate`; returns the norm.

    The gradient is the mean over tokens: the sum in `.grad` divided by `count`. A non-finite gradient changes neither
    weights nor optimiser state. Optimisers with `grad_scale` and `found_inf`, as torch's fused ones, average, clip
    and skip on the device, without another pass over the gradients and without a wait. For others the gradients are
    scaled in place, and one value is read: whether the norm is finite.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True) / count
    excess = (norm / clip).clamp(min=1.0) if clip else torch.ones_like(norm)
    scale = (count * excess).float()
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("lr_scale", 1.0)
    if getattr(optimizer, "_step_supports_amp_scaling", False):  # torch's attribute, which GradScaler reads too
        optimizer.grad_scale, optimizer.found_inf = scale, (~norm.isfinite()).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif gradients and norm.isfinite():
        torch._foreach_div_(gradients, scale)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def dump_state(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's state as tensors named `parameter/entry`, independent of parameter groups.

    Values that are not tensors (numbers, None) are stored as the bytes of their JSON.
    """
    names = {id(weight): name for name, weight in model.named_parameters()}
    tensors = {}
    for weight, state in optimizer.state.items():
        for entry, value in state.items():
            key = f"{names[id(weight)]}/{entry}"
            if isinstance(value, Tensor):
                tensors[key] = value
            else:
                tensors[key + JSON] = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)
    return tensors


def load_state(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state that `dump_state` returned."""
    states: dict[str, dict[str, Any]] = defaultdict(dict)
    for key, tensor in tensors.items():
        name, entry = key.rsplit("/", 1)
        if entry.endswith(JSON):
            states[name][entry.removesuffix(JSON)] = json.loads(bytes(tensor.tolist()))
        else:
            states[name][entry] = tensor
    names = {id(weight): name for name, weight in model.named_parameters()}
    order = [names[id(weight)] for group in optimizer.param_groups for weight in group["params"]]
    state_dict = optimizer.state_dict()
    state_dict["state"] = {number: states[name] for number, name in enumerate(order) if name in states}
    optimizer.load_state_dict(state_dict)


class OptimizerConfig(Config):
    """An optimiser: `build(model, lr_scales)`, with factors of the learning rate by parameter name."""

    kind: str

    def build(self, model: nn.Module, lr_scales: Mapping[str, float] = NO_SCALES) -> Optimizer:
        raise UserError(f"{self.kind}: {type(self).__name__} has no build method; write one that returns the optimiser")


class AdamConfig(OptimizerConfig):
    """Adam with the constants of "Attention is all you need", section 5.3."""

    kind: Literal["adam"] = "adam"
    betas: tuple[Fraction, Fraction] = (0.9, 0.98)
    eps: PositiveFloat = 1e-9

    def build(self, model: nn.Module, lr_scales: Mapping[str, float] = NO_SCALES) -> Optimizer:
        return build_adam(model, self.betas, self.eps, lr_scales=lr_scales)


class AdamWConfig(OptimizerConfig):
    """Adam with decoupled weight decay; biases and norms are never decayed."""

    kind: Literal["adamw"] = "adamw"
    betas: tuple[Fraction, Fraction] = (0.9, 0.98)
    eps: PositiveFloat = 1e-9
    weight_decay: NonNegativeFloat = 0.01
    decay_embeddings: bool = False

    def build(self, model: nn.Module, lr_scales: Mapping[str, float] = NO_SCALES) -> Optimizer:
        return build_adam(model, self.betas, self.eps, self.weight_decay, self.decay_embeddings, lr_scales)


class AdafactorConfig(OptimizerConfig):
    """Adafactor (Shazeer & Stern 2018): factored second moments, n + m numbers for a matrix of n x m weights.

    The learning rate is the schedule's (`relative_step` is the paper's), times the root mean square of each weight
    with `scale_parameter`. The update of each weight is clipped to a root mean square of `clip_threshold`.
    """

    kind: Literal["adafactor"] = "adafactor"
    eps: tuple[Annotated[float, Field(ge=1e-30)], PositiveFloat] = (
        1e-30,
        1e-3,
    )  # of squared gradients, of weights
    clip_threshold: PositiveFloat = 1.0
    decay_rate: Annotated[float, Field(lt=0)] = -0.8
    beta1: Fraction = 0.0  # 0: no first moment
    scale_parameter: bool = True
    weight_decay: NonNegativeFloat = 0.0
    decay_embeddings: bool = False

    def build(self, model: nn.Module, lr_scales: Mapping[str, float] = NO_SCALES) -> Optimizer:
        return build_adafactor(model, **self.model_dump(exclude={"kind"}), lr_scales=lr_scales)
