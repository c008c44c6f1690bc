"""Residual networks that begin as the identity: ReZero (Bachlechner et al. 2020, "ReZero is All You Need: Fast
Convergence at Large Depth") and Fixup (Zhang et al. 2019, "Fixup Initialization: Residual Learning Without
Normalization").

The forms of a Transformer are those of Narang et al. 2021, section 3.1, and of its released settings.

DISCREPANCY: there, Fixup has a further scalar shift between the two matrices of the feed-forward network, which the
biases of ours include, a scale after the encoder's last layer, which the keys and values of cross-attention can take
up, and truncated normal weights of the same variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from headwise.blocks.attention.multihead import Attention
from headwise.blocks.decode_step import Function, FunctionStep
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.mixers.qkv_mixer import QKVMixer
from headwise.blocks.residual import ResidualAdd, Wiring, WiringConfig
from headwise.blocks.stack import Stack


class ScaledAdd(nn.Module, FunctionStep):
    """A residual add with a learned scalar: x + scale f(x)."""

    def __init__(self, add: nn.Module, initial: float):
        super().__init__()
        self.add = add
        self.scale = nn.Parameter(torch.tensor(initial))

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return self.add(x, self.scale * branch)


class Shift(nn.Module, FunctionStep):
    """x + b with one learned number b for all channels, which begins as 0."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor(0.0))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class ReZero(Wiring):
    """ReZero: x + α f(x) with a learned number α for each part, which begins as 0; without norms."""

    def __init__(
        self, parts: Sequence[nn.Module], norm: Callable[[], nn.Module], add: Callable[[], nn.Module] = ResidualAdd
    ):
        super().__init__(parts, nn.Identity, lambda: ScaledAdd(add(), 0.0))


class ReZeroNorm(Wiring):
    """ReZero with norms: x + α f(norm(x)), α = 0 at first, and one norm after the last layer."""

    has_final_norm = True

    def __init__(
        self, parts: Sequence[nn.Module], norm: Callable[[], nn.Module], add: Callable[[], nn.Module] = ResidualAdd
    ):
        super().__init__(parts, norm, lambda: ScaledAdd(add(), 0.0))

    def normalize_input(self, x: Tensor, norm: Function) -> Tensor:
        return norm(x)


class Fixup(Wiring):
    """Fixup: x + s f(x + b) with learned numbers s = 1 and b = 0 for each part, without norms; a last shift b after the
    last layer. `init_fixup` initialises the matrices, so that every layer is the identity at first."""

    @classmethod
    def build_final_norm(cls, norm: Callable[[], nn.Module]) -> nn.Module | None:
        return Shift()

    def __init__(
        self, parts: Sequence[nn.Module], norm: Callable[[], nn.Module], add: Callable[[], nn.Module] = ResidualAdd
    ):
        super().__init__(parts, Shift, lambda: ScaledAdd(add(), 1.0))

    def normalize_input(self, x: Tensor, norm: Function) -> Tensor:
        return norm(x)


@torch.no_grad()
def init_fixup(model: nn.Module) -> None:
    """Fixup initialisation of all layers of that wiring: the last matrix of each branch is 0; those before it have
    variance 2 / fan-in (He et al. 2015), times L^(-1/2) in feed-forward networks and L^(-1/6) for queries, keys and
    values, where L is the number of branches of the model: L^(-1/(2m-2)) for m matrices in a branch.

    A part whose matrices have other roles keeps its own initialisation, and its scale is 0 instead.
    """
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    # layers that share weights count as often as they run
    layers = [stack.layers[number] for stack in stacks for number in stack.layer_numbers]
    branches = sum(len(layer.parts) for layer in layers if isinstance(layer, Fixup))
    for layer in model.modules():
        if isinstance(layer, Fixup):
            for part, add in zip(layer.parts, layer.adds, strict=True):
                init_branch(part, add, branches)


def init_branch(part: nn.Module, add: nn.Module, branches: int) -> None:
    """Initialise one part of a model with so many branches for Fixup, or set the scale of its branch to 0."""
    outer = getattr(part, "outer" if isinstance(part, FeedForward) else "out", None)
    if not isinstance(part, FeedForward | Attention | QKVMixer) or not isinstance(outer, nn.Linear):
        nn.init.zeros_(add.get_parameter("scale"))
        return
    nn.init.zeros_(outer.weight)
    if outer.bias is not None:
        nn.init.zeros_(outer.bias)
    factor = branches ** (-1 / 2 if isinstance(part, FeedForward) else -1 / 6)
    inner = part.inner if isinstance(part, FeedForward) else part.qkv
    for linear in (module for module in inner.modules() if isinstance(module, nn.Linear)):
        nn.init.normal_(linear.weight, std=(2 / linear.in_features) ** 0.5 * factor)


class ReZeroConfig(WiringConfig):
    """x + α f(x), α = 0 at first; with `norm`, x + α f(norm(x))"""

    kind: Literal["rezero"] = "rezero"
    norm: bool = False  # the model's norm before each part, and after the last layer

    def build(self) -> type[Wiring]:
        return ReZeroNorm if self.norm else ReZero


class FixupConfig(WiringConfig):
    """x + s f(x + b), s = 1, b = 0 and the last matrix of f 0 at first"""

    kind: Literal["fixup"] = "fixup"

    def build(self) -> type[Wiring]:
        return Fixup

    def init_weights(self, model: nn.Module) -> None:
        init_fixup(model)
