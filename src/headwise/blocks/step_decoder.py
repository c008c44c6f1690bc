"""A decoder laid out for steps of one token: what the modules look up in every pass is looked up once.

Where the width is small, a step through the modules spends more time on contexts, looks and module calls than on
arithmetic. A `Plan` binds every part to its place in a cache and keeps one short function for each. It reads and
writes the very entries that the modules do, so the two may take turns; a part without a short form runs as it is.

Letters: B sources, K beams, R = B * K rows, C width, H heads, G heads of keys, D head_width, S length of the source,
T tokens so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.kernels import auto
from headwise.blocks.attention.multihead import (
    Attention,
    CrossProjection,
    GroupedQueryProjection,
    SelfProjection,
    fold_beams,
)
from headwise.blocks.attention.score_mods import Causal, Padding, Segments
from headwise.blocks.attention.scores import Dot, Scaled
from headwise.blocks.cache import DecodingCache
from headwise.blocks.dropout import Dropout
from headwise.blocks.embed import Embedding, NoTokenTypes
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.mixers.favor import Performer
from headwise.blocks.mixers.linear import LinearAttention
from headwise.blocks.mixers.recurrent import Recurrent
from headwise.blocks.norm import LayerNorm, RMSNorm
from headwise.blocks.part import Part
from headwise.blocks.positions.absolute import SinusoidalPositions
from headwise.blocks.residual import NoResidual, PostNorm, PreNorm, ResidualAdd, Wiring
from headwise.blocks.stream import Context, LayerPath, Stream

if TYPE_CHECKING:
    from headwise.blocks.stack import Decoder, Stack

Function = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, Stream], Tensor]  # (R, C), and the embedded tokens with their places -> (R, C)

GAPS: LayerPath = ("gaps",)  # where a cache has the number of padding tokens in each row, (R, 1), if there are any


class Plan:
    """`plan(tokens, length)`: the decoder's output (R, C) for one token (R,) in each row, after `length` others."""

    def __init__(self, decoder: Decoder, ctx: Context):
        assert isinstance(ctx.cache, DecodingCache)
        self.embed, self.cache = decoder.embed, ctx.cache
        self.vectors = vectors(decoder.embed)
        self.steps = list(stack_steps(decoder.stack, ctx.at("decoder")))
        self.final = brief(decoder.stack.final)
        self.shared = ctx.shared

    def __call__(self, tokens: Tensor, length: int) -> Tensor:
        self.shared.clear()  # layers of one step share masks, steps do not
        stream = self.embedded(tokens, length)
        x = stream.x.squeeze(1)  # (R, 1, C) -> (R, C)
        for step in self.steps:
            x = step(x, stream)
        return self.final(x)

    def embedded(self, tokens: Tensor, length: int) -> Stream:
        """A token of each row after `length` others; where some of these were padding, a row's positions go on without
        it, and attention is told to leave it out."""
        gaps = self.cache.states.get(GAPS)
        if gaps is None and (found := self.vectors(tokens, length)) is not None:
            return found
        ids = tokens.unsqueeze(1)  # (R,) -> (R, 1)
        if gaps is None:
            return self.embed(ids, start=length)
        return self.embed(ids, torch.ones_like(ids, dtype=torch.bool), pos=length - gaps)


def vectors(embed: Embedding) -> Callable[[Tensor, int], Stream | None]:
    """The short form of an embedding that is a table and sinusoids: tokens (R,) at a place -> (R, 1, C), or None where
    that is beyond the stored sinusoids."""
    rest = (embed.types, embed.norm, embed.widen, embed.drop)
    if type(embed.positions) is not SinusoidalPositions or not all(
        type(each) in (NoTokenTypes, Dropout, nn.Identity) for each in rest
    ):
        return lambda tokens, length: None
    weight, scale, waves = embed.table.weight, embed.scale, embed.positions.table
    places = torch.arange(len(waves), device=waves.device)

    def short(tokens: Tensor, length: int) -> Stream | None:
        if length >= places.shape[0]:
            return None
        x = torch.add(waves[length], F.embedding(tokens, weight), alpha=scale)
        return Stream(x.unsqueeze(1), places[length : length + 1])

    return short


def stack_steps(stack: Stack, ctx: Context) -> Iterator[Step]:
    for index, number in enumerate(stack.order):
        layer, here = stack.layers[number], ctx.at(index)
        wire = WIRINGS.get(type(layer))
        if wire and isinstance(layer, Wiring) and all(type(add) in ADDS for add in layer.adds):
            for inner, (part, norm) in enumerate(zip(layer.parts, layer.norms, strict=True)):
                short = PARTS.get(type(part), whole)
                yield wire(short(part, here.at(inner)), brief(norm))
        else:
            yield whole(layer, here)


def heeds_padding(stack: Stack) -> bool:
    """Whether what the parts remember of padded rows is what they remember of the rows without their padding."""
    parts = [part for layer in stack.layers for part in (layer.parts if isinstance(layer, Wiring) else [layer])]
    sights = [part.qkv for part in parts if isinstance(part, Attention)]
    known = all(isinstance(part, Part) and part.properties.length_free and type(part) in PADDED for part in parts)
    return known and all(
        type(qkv) in (SelfProjection, GroupedQueryProjection) for qkv in sights
    )  # one that forgets would count padding


def post(part: Step, norm: Function) -> Step:
    return lambda x, at: norm(x + part(x, at))


def pre(part: Step, norm: Function) -> Step:
    return lambda x, at: x + part(norm(x), at)


def chain(part: Step, norm: Function) -> Step:
    return part


def whole(module: nn.Module, ctx: Context) -> Step:
    """Any part or layer, as it is."""

    def step(x: Tensor, at: Stream) -> Tensor:
        out = module(at.with_x(x.unsqueeze(1)), ctx)  # (R, C) -> (R, 1, C)
        return (out.x if isinstance(out, Stream) else out).squeeze(1)

    return step


def recurrent(part: Recurrent, ctx: Context) -> Step:
    """As it is, but without a mask: what is new is no padding, and a cell takes it at once."""
    step = whole(part, ctx)
    return lambda x, at: step(x, at if at.keep is None else replace(at, keep=None))


def feedforward(part: FeedForward, ctx: Context) -> Step:
    inner, outer, activation = brief(part.inner), brief(part.outer), part.activation

    def gated(x: Tensor, at: Stream) -> Tensor:
        gate, value = inner(x).chunk(2, dim=-1)
        return outer(activation(gate) * value)

    return gated if part.gated else lambda x, at: outer(activation(inner(x)))


def attention(part: Attention, ctx: Context) -> Step:
    """The short form where the newest token sees all that is kept, perhaps turned, and the kernel is left to us."""
    short = SIGHTS.get(type(part.qkv))
    sees_all = all(type(mod) in (Causal, Padding, Segments) or mod.hooks == {"rotate"} for mod in part.all_score_mods)
    plain = part.kernel is auto and sees_all and type(part.score) in (Dot, Scaled)
    return short(part, part.qkv, ctx) if short and plain else whole(part, ctx)


def turning(part: Attention) -> list[Callable[[Tensor, Tensor], Tensor]]:
    return [mod.rotate for mod in part.all_score_mods if "rotate" in mod.hooks]


def itself(part: Attention, qkv: SelfProjection, ctx: Context) -> Step:
    project, out, scale = brief(qkv.project), brief(part.out), part.scale
    cache, path, kept, places = ctx.cache, ctx.path, (*ctx.path, "keep"), (*ctx.path, "pos")
    split = split_one(qkv) if type(qkv) is SelfProjection else lambda fused: qkv.split(fused.unsqueeze(1))
    turns = turning(part)
    positions = any(mod.needs_positions for mod in part.all_score_mods)

    def step(x: Tensor, at: Stream) -> Tensor:
        # (R, (H + 2G)D) -> (R, H, 1, D) and 2 x (R, G, 1, D), where G is H unless heads share keys
        q, k, v = split(project(x))
        for turn in turns:
            q, k = turn(q, at.pos), turn(k, at.pos)
        if positions:
            cache.extend(places, at.pos.dim() - 1, at.pos)
        k, v = cache.extend(path, 2, k, v)
        seen = None
        if at.keep is not None:
            seen = cache.extend(kept, 1, at.keep)[0][:, None, None]  # (R, T) -> (R, 1, 1, T)
        if k.shape[1] < q.shape[1]:  # heads that share keys are further queries of theirs
            q = q.reshape(q.shape[0], k.shape[1], -1, k.shape[3])  # (R, H, 1, D) -> (R, G, H/G, D)
        mixed = F.scaled_dot_product_attention(q, k, v, seen, scale=scale)
        return out(mixed.flatten(1))  # (R, G, H/G, D) -> (R, HD)

    return step


def split_one(qkv: SelfProjection) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """`qkv.split` of one token in each row, whose views need no turning."""
    shape = (-1, 3, qkv.heads, 1, qkv.head_width)
    return lambda fused: fused.view(shape).unbind(1)  # (R, 3HD) -> 3 x (R, H, 1, D)


def memory(part: Attention, qkv: CrossProjection, ctx: Context) -> Step:
    query, out, scale = brief(qkv.query), brief(part.out), part.scale
    heads, head_width, cache, path = qkv.heads, qkv.head_width, ctx.cache, ctx.path
    seen = ctx.memory[qkv.name]
    assert isinstance(cache, DecodingCache)
    cache.once(path, lambda: qkv.keys_values(seen, part.all_score_mods, part.score))
    turns = turning(part)
    hidden = ("hidden", qkv.name)  # one mask for all layers, additive as the kernel wants it
    cache.once(hidden, lambda: additive(seen))
    made = cache.made

    def by_head(q: Tensor, sources: int) -> Tensor:
        return q.view(sources, -1, heads, head_width).transpose(1, 2)  # (R, HD) -> (B, K, H, D) -> (B, H, K, D)

    def step(x: Tensor, at: Stream) -> Tensor:
        k, v = made[path]
        alone = k.shape[0] == x.shape[0]  # one row a source: there is nothing to turn
        q = query(x).view(-1, heads, 1, head_width) if alone else by_head(query(x), k.shape[0])
        for turn in turns:
            q = turn(q, fold_beams(at.pos, q.shape[2]))
        mixed = F.scaled_dot_product_attention(q, k, v, made[hidden], scale=scale)
        # (B, H, K, D) -> (B, K, H, D) -> (R, HD)
        return out(mixed.flatten(1) if alone else mixed.transpose(1, 2).reshape(x.shape[0], -1))

    return step


def additive(seen: Stream) -> Tensor | None:
    """The padding of a memory as scores to add, (B, 1, 1, S); None where there is no padding."""
    if seen.keep is None:
        return None
    return torch.zeros_like(seen.keep, dtype=seen.x.dtype).masked_fill_(~seen.keep, -torch.inf)[:, None, None]


def brief(module: nn.Module) -> Function:
    """A module as a function without the module's call around it."""
    short = FUNCTIONS.get(type(module))
    return short(module) if short else module


def linear(module: nn.Linear) -> Function:
    weight, bias = module.weight.t(), module.bias  # (in, out): torch would turn it in every call
    return (lambda x: torch.mm(x, weight)) if bias is None else (lambda x: torch.addmm(bias, x, weight))


def layer_norm(module: LayerNorm) -> Function:
    shape, gain, shift, eps = module.shape, module.weight, module.bias, module.eps
    return lambda x: torch.layer_norm(x, shape, gain, shift, eps)


def rms_norm(module: RMSNorm) -> Function:
    shape, gain, eps = module.shape, module.weight, module.eps
    return lambda x: torch.rms_norm(x, shape, gain, eps)


# By exact type: a subclass may do something else.
WIRINGS: dict[type, Callable[[Step, Function], Step]] = {PostNorm: post, PreNorm: pre, NoResidual: chain}
ADDS = (ResidualAdd, Dropout, nn.Identity)  # of which evaluation sees a sum or nothing
PARTS: dict[type, Callable[[Any, Context], Step]] = {
    Attention: attention,
    FeedForward: feedforward,
    Recurrent: recurrent,
}
PADDED = (*PARTS, LinearAttention, Performer)  # parts that remember nothing of padding
SIGHTS: dict[type, Callable[[Attention, Any, Context], Step]] = {
    SelfProjection: itself,
    GroupedQueryProjection: itself,
    CrossProjection: memory,
}
FUNCTIONS: dict[type, Callable[[Any], Function]] = {
    nn.Linear: linear,
    LayerNorm: layer_norm,
    RMSNorm: rms_norm,
    nn.Identity: lambda module: lambda x: x,
}
