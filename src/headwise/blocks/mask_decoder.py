"""Enhanced mask decoder of DeBERTa (He et al. 2021, section 3.2): absolute positions enter just before the prediction
of masked tokens."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from headwise.blocks.attention.score_mods import ApproximateMap, AttentionInputs
from headwise.blocks.stack import Stack, require_plain
from headwise.blocks.stream import Context, LayerPath, Recorder, Stream


class CrossHalvesRecorder(Recorder):
    """Records the attention from the queries of the first half to the keys of the second."""

    def __init__(self, inner: Recorder):
        self.inner = inner

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        if isinstance(inputs, ApproximateMap):
            return  # a ready map cannot be split into halves
        half = inputs.layout.queries // 2
        assert inputs.layout.query_pos is not None and inputs.layout.keep is not None
        pos, keep = inputs.layout.query_pos[..., :half], inputs.layout.keep[:, half:]
        layout = replace(inputs.layout, queries=half, keys=half, query_pos=pos, key_pos=pos, keep=keep)
        q, k, v = inputs.q[:, :, :half], inputs.k[:, :, half:], inputs.v[:, :, half:]
        self.inner.observe(path, replace(inputs, q=q, k=k, v=v, layout=layout, shared={}))


class MaskDecoder(Stack):
    """Enhanced mask decoder: the last layer runs `rounds` times. Its queries are first the outputs of the layer below
    plus absolute positions, then its own outputs; keys and values are the outputs of the layer below each time.

    The paper does not specify the decoder; this follows the released code. The parameters are those of the stack, and a
    table of positions.
    """

    def __init__(self, stack: Stack, positions: nn.Module, rounds: int = 2):
        require_plain(stack, "mask_decoder")
        super().__init__(list(stack.layers), stack.final, stack.layer_numbers)
        self.positions, self.rounds = positions, rounds

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        *numbers, last = self.layer_numbers
        for index, number in enumerate(numbers):
            stream = self.layers[number](stream, ctx.at(index))
        length, last_ctx = stream.x.shape[1], replace(ctx.at(len(numbers)), record=CrossHalvesRecorder(ctx.record))
        query = self.positions(stream.x, stream.pos, 0)
        keep = stream.keep if stream.keep is not None else torch.ones_like(query[..., 0], dtype=torch.bool)
        # Self-attention over [queries; keys] in one row, with the first half masked as keys.
        visible = torch.cat((torch.zeros_like(keep), keep), 1)  # (B, 2T)
        both = replace(stream, pos=torch.cat((stream.pos, stream.pos), -1), keep=visible)
        for _ in range(self.rounds):
            x = torch.cat((query, stream.x), 1)  # (B, 2T, C)
            query = self.layers[last](both.with_x(x), last_ctx).x[:, :length]
        return stream.with_x(self.final(query))
