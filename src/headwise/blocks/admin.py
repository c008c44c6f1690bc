"""Admin, adaptive model initialisation: Post-LN with scaled residual connections, whose scales one forward pass before
training sets (Liu et al. 2020, "Understanding the Difficulty of Training Transformers").

The more an output depends on its residual branches, the more it changes when their weights do. A larger ω gives each
branch a smaller share of the sum at first, as in Pre-LN; ω is trained, so the share may grow.

DISCREPANCY: the paper's ω² is the sum of Var[f_j] over the parts before; the released code, which we follow, begins
that sum with the variance of the stack's input. It also profiles with dropout; we profile without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.blocks.norm import ScalableNorm
from headwise.blocks.residual import PostNorm, ResidualAdd, Wiring, WiringConfig
from headwise.blocks.stack import Decoder, Encoder
from headwise.blocks.stream import SIDE, Context, LayerPath, Part, SideOutputs, Stream


class Admin(Wiring):
    """Post-norm with scaled residual connections: norm(ω x + f(x)), with a vector ω for each part in `scales`. They are
    1 until `profile` sets them."""

    def __init__(
        self, parts: Sequence[nn.Module], norm: Callable[[], nn.Module], add: Callable[[], nn.Module] = ResidualAdd
    ):
        super().__init__(parts, norm, add)
        self.scales = nn.ParameterList(torch.ones_like(norm.get_parameter("weight")) for norm in self.norms)

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        modules = zip(self.parts, self.norms, self.adds, self.scales, strict=True)
        for index, (part, norm, add, scale) in enumerate(modules):
            part_ctx = ctx.at(index)
            branch = part(stream, part_ctx)
            ctx.side.add("residual", part_ctx.path, (scale, stream.x, branch))
            stream = stream.with_x(norm(add(scale * stream.x, branch)))
        return stream


class ScaleProfiler(SideOutputs):
    """Sets the scale of each residual connection just before the sum: ω_1 = 1 and
    ω_(i+1) = sqrt(Var[ω_i x_(i-1)] + Var[f_i(x_(i-1))]), in each stack from its input on."""

    def __init__(self) -> None:
        self.next_scales: dict[LayerPath, Tensor] = {}  # by path of the stack

    def add(self, name: str, path: LayerPath, value: Any) -> None:
        if name == "residual":
            scale, x, branch = value
            stack = path[:-2]  # without layer and part
            scale.fill_(self.next_scales.get(stack, 1.0))
            self.next_scales[stack] = ((scale * x).var(correction=0) + branch.var(correction=0)).sqrt()


@torch.no_grad()
def profile(model: nn.Module, forward: Callable[[], object]) -> None:
    """Set the scales of a model's Admin layers by one call of `forward`, which passes a batch through the model.

    `forward` is not called for a model without such layers, nor where scales are no longer 1: those are trained.
    """
    scales = [scale for layer in model.modules() if isinstance(layer, Admin) for scale in layer.scales]
    if not scales or any(bool((scale != 1).any()) for scale in scales):
        return
    training, token = model.training, SIDE.set(ScaleProfiler())
    try:
        model.eval()
        forward()
    finally:
        SIDE.reset(token)
        model.train(training)


@torch.no_grad()
def fold(model: nn.Module) -> nn.Module:
    """An equal model with scales folded into the weights beside them; layers that have none left become `PostNorm`.

    ω_i x_(i-1) is the output of the norm before, with ω_i times its gain and bias. The part that reads it divides by
    ω_i in the columns of its `input_linear`. A scale stays where there is no norm before (at the first part, after an
    embedding without one), where the part has no `input_linear`, or where its layer stands in the stack twice.
    """
    model = deepcopy(model)
    for side in [module for module in model.modules() if isinstance(module, Encoder | Decoder)]:
        layers = [layer for layer in side.stack.layers if isinstance(layer, Admin)]
        if sorted(side.stack.layer_numbers) != list(range(len(layers))):
            continue
        norm_before = side.embed.norm if isinstance(side.embed.projection, nn.Identity) else nn.Identity()
        for number in side.stack.layer_numbers:
            layer = layers[number]
            for part, norm, scale in zip(layer.parts, layer.norms, layer.scales, strict=True):
                linear = part.input_linear if isinstance(part, Part) else None
                move_scale(scale, norm_before, linear)
                norm_before = norm
            side.stack.layers[number] = to_post_norm(layer)
    return model


def move_scale(scale: Tensor, norm: nn.Module, linear: nn.Module | None) -> None:
    """Move a scale into the norm before it and out of the linear layer that reads it, where both can take it."""
    # A subclass of nn.Linear, such as an adapter, may use its weight in another way.
    if type(linear) is not nn.Linear or not isinstance(norm, ScalableNorm) or bool((scale == 0).any()):
        return
    norm.scale_output(scale)
    linear.weight.div_(scale)
    scale.fill_(1.0)


def to_post_norm(layer: Admin) -> Wiring:
    """The layer as `PostNorm` where all its scales are 1, else itself."""
    if any(bool((scale != 1).any()) for scale in layer.scales):
        return layer
    norms, adds = iter(layer.norms), iter(layer.adds)
    return PostNorm(list(layer.parts), lambda: next(norms), lambda: next(adds)).train(layer.training)


class AdminConfig(WiringConfig):
    """norm(ω x + f(x)), ω set by one forward pass before training"""

    kind: Literal["admin"] = "admin"

    def build(self) -> type[Wiring]:
        return Admin
