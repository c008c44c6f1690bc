"""A decoder laid out for steps of one token: what the modules look up in every pass is looked up once.

Where the width is small, a step through the modules spends more time on contexts, looks and module calls than on
arithmetic. A `Plan` binds every part to its place in a cache and keeps one short function for each. It reads and
writes the very entries that the modules do, so the two may take turns; a part without a short form runs as it is.

Letters: B sources, K beams, R = B * K rows, C width, H heads, D head_width, S length of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention import Attention, Itself, Memory
from headwise.blocks.cache import DecodingCache
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.kernels import auto
from headwise.blocks.norm import LayerNorm, RMSNorm
from headwise.blocks.residual import Add, Post, Pre, Wiring
from headwise.blocks.scores import Dot, Scaled
from headwise.blocks.stream import Context, Stream
from headwise.blocks.terms import Causal, Padding, Segments

if TYPE_CHECKING:
    from headwise.blocks.stack import Decoder, Stack

Function = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, Tensor], Tensor]  # (R, C) and the position (1,) -> (R, C)


class Plan:
    """`plan(tokens, length)`: the decoder's output (R, C) for one token (R,) in each row, after `length` others."""

    def __init__(self, decoder: Decoder, ctx: Context):
        self.embed = decoder.embed
        self.steps = list(stack_steps(decoder.stack, ctx.at("decoder")))
        self.final = brief(decoder.stack.final)
        self.shared = ctx.shared

    def __call__(self, tokens: Tensor, length: int) -> Tensor:
        self.shared.clear()  # layers of one step share masks, steps do not
        stream = self.embed(tokens.unsqueeze(1), start=length)
        x, pos = stream.x.squeeze(1), stream.pos  # (R, 1, C) -> (R, C)
        for step in self.steps:
            x = step(x, pos)
        return self.final(x)


def stack_steps(stack: Stack, ctx: Context) -> Iterator[Step]:
    for place, number in enumerate(stack.order):
        layer, here = stack.layers[number], ctx.at(place)
        wire = WIRINGS.get(type(layer))
        if wire and isinstance(layer, Wiring) and all(type(add) is Add for add in layer.adds):
            for inner, (part, norm) in enumerate(zip(layer.parts, layer.norms, strict=True)):
                short = PARTS.get(type(part), whole)
                yield wire(short(part, here.at(inner)), brief(norm))
        else:
            yield whole(layer, here)


def post(part: Step, norm: Function) -> Step:
    return lambda x, pos: norm(x + part(x, pos))


def pre(part: Step, norm: Function) -> Step:
    return lambda x, pos: x + part(norm(x), pos)


def whole(module: nn.Module, ctx: Context) -> Step:
    """Any part or layer, as it is."""

    def step(x: Tensor, pos: Tensor) -> Tensor:
        out = module(Stream(x.unsqueeze(1), pos), ctx)  # (R, C) -> (R, 1, C)
        return (out.x if isinstance(out, Stream) else out).squeeze(1)

    return step


def feedforward(part: FeedForward, ctx: Context) -> Step:
    inner, outer, activation = brief(part.inner), brief(part.outer), part.activation

    def gated(x: Tensor, pos: Tensor) -> Tensor:
        gate, value = inner(x).chunk(2, dim=-1)
        return outer(activation(gate) * value)

    return gated if part.gated else lambda x, pos: outer(activation(inner(x)))


def attention(part: Attention, ctx: Context) -> Step:
    """The short form where the newest token sees all that is kept, as it is, and the kernel is left to us."""
    short = SIGHTS.get(type(part.see))
    sees_all = all(type(term) in (Causal, Padding, Segments) for term in part.all_terms)
    plain = part.kernel is auto and sees_all and type(part.score) in (Dot, Scaled)
    return short(part, part.see, ctx) if short and plain else whole(part, ctx)


def itself(part: Attention, see: Itself, ctx: Context) -> Step:
    project, out, scale = brief(see.project), brief(part.out), part.scale
    heads, head_width, cache, place = see.heads, see.head_width, ctx.cache, ctx.place

    def step(x: Tensor, pos: Tensor) -> Tensor:
        q, k, v = project(x).view(-1, 3, heads, 1, head_width).unbind(1)  # (R, 3HD) -> 3 x (R, H, 1, D)
        k, v = cache.extend(place, 2, k, v)
        mixed = F.scaled_dot_product_attention(q, k, v, scale=scale)
        return out(mixed.reshape(len(x), -1))  # (R, H, 1, D) -> (R, HD)

    return step


def memory(part: Attention, see: Memory, ctx: Context) -> Step:
    query, out, scale = brief(see.query), brief(part.out), part.scale
    heads, head_width, cache, place = see.heads, see.head_width, ctx.cache, ctx.place
    seen = ctx.memory[see.name]
    assert isinstance(cache, DecodingCache)
    cache.once(place, lambda: see.keys_values(seen, part.all_terms, part.score))
    hidden = ("hidden", see.name)  # one mask for all layers, additive as the kernel wants it
    cache.once(hidden, lambda: additive(seen))
    made = cache.made

    def step(x: Tensor, pos: Tensor) -> Tensor:
        k, v = made[place]
        q = query(x).view(len(k), -1, heads, head_width).transpose(1, 2)  # (R, HD) -> (B, K, H, D) -> (B, H, K, D)
        mixed = F.scaled_dot_product_attention(q, k, v, made[hidden], scale=scale)
        return out(mixed.transpose(1, 2).reshape(len(x), -1))  # (B, H, K, D) -> (B, K, H, D) -> (R, HD)

    return step


def additive(seen: Stream) -> Tensor | None:
    """The padding of a memory as scores to add, (B, 1, 1, S); None where there is no padding."""
    # Looked at on CPUs alone: elsewhere the look would cost more than the mask.
    if seen.keep is None or (seen.keep.device.type == "cpu" and bool(seen.keep.all())):
        return None
    return torch.zeros_like(seen.keep, dtype=seen.x.dtype).masked_fill_(~seen.keep, -torch.inf)[:, None, None]


def brief(module: nn.Module) -> Function:
    """A module as a function without the module's call around it."""
    short = FUNCTIONS.get(type(module))
    return short(module) if short else module


def linear(module: nn.Linear) -> Function:
    weight, bias = module.weight, module.bias
    return lambda x: F.linear(x, weight, bias)


def layer_norm(module: LayerNorm) -> Function:
    shape, gain, shift, eps = module.shape, module.gain, module.shift, module.eps
    return lambda x: torch.layer_norm(x, shape, gain, shift, eps)


def rms_norm(module: RMSNorm) -> Function:
    shape, gain, eps = module.shape, module.gain, module.eps
    return lambda x: torch.rms_norm(x, shape, gain, eps)


# By exact type: a subclass may do something else.
WIRINGS: dict[type, Callable[[Step, Function], Step]] = {Post: post, Pre: pre}
PARTS: dict[type, Callable[[Any, Context], Step]] = {Attention: attention, FeedForward: feedforward}
SIGHTS: dict[type, Callable[[Attention, Any, Context], Step]] = {Itself: itself, Memory: memory}
FUNCTIONS: dict[type, Callable[[Any], Function]] = {
    nn.Linear: linear,
    LayerNorm: layer_norm,
    RMSNorm: rms_norm,
    nn.Identity: lambda module: lambda x: x,
}
