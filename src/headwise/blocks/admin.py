"""Admin: Post-LN whose residual paths are scaled, by one pass before training (Liu et al. 2020, "Understanding the
Difficulty of Training Transformers").

The more an output leans on its residual branches, the more it moves when their weights do. With a larger ω each branch
begins as a smaller share of the sum, as in Pre-LN, and ω is trained, so the share may grow.

DISCREPANCY: the paper's ω² is the sum of Var[f_j] over the parts before; the released code, which we follow, begins
that sum with the variance of the stack's input. It also profiles with dropout; we profile without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.blocks.attention.multihead import (
    Attention,
    CrossProjection,
    GroupedQueryProjection,
    SelfProjection,
)
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.norm import LayerNorm, RMSNorm
from headwise.blocks.residual import PostNorm, ResidualAdd, Wiring, WiringConfig
from headwise.blocks.stack import Decoder, Encoder
from headwise.blocks.stream import SIDE, Context, LayerPath, SideOutputs, Stream


class Admin(Wiring):
    """norm(ω x + f(x)), with a vector ω for each part in `scales`. They are 1 until `profile` sets them."""

    def __init__(
        self, parts: Sequence[nn.Module], norm: Callable[[], nn.Module], add: Callable[[], nn.Module] = ResidualAdd
    ):
        super().__init__(parts, norm, add)
        self.scales = nn.ParameterList(torch.ones_like(norm.get_parameter("weight")) for norm in self.norms)

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        pieces = zip(self.parts, self.norms, self.adds, self.scales, strict=True)
        for index, (part, norm, add, scale) in enumerate(pieces):
            here = ctx.at(index)
            branch = part(stream, here)
            ctx.side.add("residual", here.path, (scale, stream.x, branch))
            stream = stream.with_x(norm(add(scale * stream.x, branch)))
        return stream


class Profile(SideOutputs):
    """Hears of each residual sum before it is taken, and sets its scale: ω_1 = 1 and
    ω_(i+1) = sqrt(Var[ω_i x_(i-1)] + Var[f_i(x_(i-1))]), for each stack from its own input on."""

    def __init__(self) -> None:
        self.next: dict[LayerPath, Tensor] = {}

    def add(self, name: str, path: LayerPath, value: Any) -> None:
        if name == "residual":
            scale, x, branch = value
            stack = path[:-2]  # without layer and part
            scale.fill_(self.next.get(stack, 1.0))
            self.next[stack] = ((scale * x).var(correction=0) + branch.var(correction=0)).sqrt()


@torch.no_grad()
def profile(model: nn.Module, forward: Callable[[], object]) -> None:
    """Set the scales of a model's Admin layers by one call of `forward`, which passes a batch through it.

    A model without such layers is not called at all, nor is one whose scales are no longer 1: they have been learnt.
    """
    scales = [scale for layer in model.modules() if isinstance(layer, Admin) for scale in layer.scales]
    if not scales or any(bool((scale != 1).any()) for scale in scales):
        return
    training, token = model.training, SIDE.set(Profile())
    try:
        model.eval()
        forward()
    finally:
        SIDE.reset(token)
        model.train(training)


@torch.no_grad()
def fold(model: nn.Module) -> nn.Module:
    """An equal model without the scales that can go into other weights; layers that have none left become `PostNorm`.

    ω_i x_(i-1) is what the norm before gives with ω_i times its gain and shift. The part that reads it divides again,
    in the columns of its first linear map. A scale stays where no norm stands before (at the first part, after an
    embedding without one), where the part reads in another way, or where its layer stands in the stack twice.
    """
    model = deepcopy(model)
    for owner in [module for module in model.modules() if isinstance(module, Encoder | Decoder)]:
        layers = [layer for layer in owner.stack.layers if isinstance(layer, Admin)]
        if sorted(owner.stack.order) != list(range(len(layers))):
            continue
        before = owner.embed.norm if isinstance(owner.embed.widen, nn.Identity) else nn.Identity()
        for number in owner.stack.order:
            layer = layers[number]
            for part, norm, scale in zip(layer.parts, layer.norms, layer.scales, strict=True):
                push(scale, before, reader(part))
                before = norm
            owner.stack.layers[number] = plain(layer)
    return model


def push(scale: Tensor, norm: nn.Module, first: nn.Linear | None) -> None:
    """Move a scale into the norm before it and out of the map that reads it, if there are both."""
    if first is None or type(norm) not in (LayerNorm, RMSNorm) or bool((scale == 0).any()):
        return
    for weight in norm.parameters():
        weight.mul_(scale)
    first.weight.div_(scale)
    scale.fill_(1.0)


def reader(part: nn.Module) -> nn.Linear | None:
    """The one linear map through which a part reads the stream, if that is how it does."""
    source = part.qkv if type(part) is Attention else part
    first = getattr(source, READERS.get(type(source), ""), None)
    return first if type(first) is nn.Linear else None


def plain(layer: Admin) -> Wiring:
    """The layer as `PostNorm`, where that is the same."""
    if any(bool((scale != 1).any()) for scale in layer.scales):
        return layer
    norms, adds = iter(layer.norms), iter(layer.adds)
    return PostNorm(list(layer.parts), lambda: next(norms), lambda: next(adds)).train(layer.training)


# By exact type: a subclass may read in another way.
READERS: dict[type, str] = {
    FeedForward: "inner",
    SelfProjection: "project",
    GroupedQueryProjection: "project",
    CrossProjection: "query",
}


class AdminConfig(WiringConfig):
    """norm(ω x + f(x)), ω set by one pass before training"""

    kind: Literal["admin"] = "admin"

    def build(self) -> type[Wiring]:
        return Admin
