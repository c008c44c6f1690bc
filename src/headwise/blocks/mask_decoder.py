"""DeBERTa's enhanced mask decoder (He et al. 2021, 3.2): a hidden word's place is told just before it is guessed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from headwise.blocks.attention.score_mods import ApproximateMap, AttentionInputs
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context, LayerPath, Recorder, Stream


class Halves(Recorder):
    """Shows of a look the queries of the first half at the keys of the second."""

    def __init__(self, inner: Recorder):
        self.inner = inner

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        if isinstance(inputs, ApproximateMap):
            return  # a map as a whole has no halves of its own
        half = inputs.layout.queries // 2
        assert inputs.layout.query_pos is not None and inputs.layout.keep is not None
        pos, keep = inputs.layout.query_pos[..., :half], inputs.layout.keep[:, half:]
        layout = replace(inputs.layout, queries=half, keys=half, query_pos=pos, key_pos=pos, keep=keep)
        q, k, v = inputs.q[:, :, :half], inputs.k[:, :, half:], inputs.v[:, :, half:]
        self.inner.observe(path, replace(inputs, q=q, k=k, v=v, layout=layout, shared={}))


class MaskDecoder(Stack):
    """A stack whose last layer is asked `rounds` times by queries that know their absolute positions: first by what the
    layer below says, with positions added, then by the answer; keys and values are of the layer below each time.

    The paper leaves open how the decoder is made; this is what the code released with it does. The parameters are those
    of the stack it was made of, with a table of positions.
    """

    def __init__(self, stack: Stack, positions: nn.Module, rounds: int = 2):
        super().__init__(list(stack.layers), stack.final, stack.order)
        self.positions, self.rounds = positions, rounds

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        *order, last = self.order
        for index, number in enumerate(order):
            stream = self.layers[number](stream, ctx.at(index))
        length, here = stream.x.shape[1], replace(ctx.at(len(order)), record=Halves(ctx.record))
        query = self.positions(stream.x, stream.pos, 0)
        keep = stream.keep if stream.keep is not None else torch.ones_like(query[..., 0], dtype=torch.bool)
        # Queries and keys of different streams in the layer as it is: both in one row, of which no query is seen.
        seen = torch.cat((torch.zeros_like(keep), keep), 1)  # (B, 2T)
        both = replace(stream, pos=torch.cat((stream.pos, stream.pos), -1), keep=seen)
        for _ in range(self.rounds):
            x = torch.cat((query, stream.x), 1)  # (B, 2T, C)
            query = self.layers[last](both.with_x(x), here).x[:, :length]
        return stream.with_x(self.final(query))
