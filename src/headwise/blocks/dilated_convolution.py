"""Dilated convolutions of ByteNet (Kalchbrenner et al. 2016, "Neural Machine Translation in Linear Time"), and its
dynamic unfolding.

A residual block narrows 2d channels to d, convolves tokens that are `dilation` apart, and widens them again:

    x + W_2 relu(norm(conv(relu(norm(W_1 relu(norm(x)))))))        with ReLUs (translation)
    x + W_2 mu(norm(W_1 relu(norm(x))))                            with a multiplicative unit (language models)
    mu(h) = g_1 * tanh(g_2 * h + g_3 * u), g_i = sigmoid(conv_i(h)), u = tanh(conv_4(h))

The first norm and the residual are those of the wiring "pre".

Letters: B sources, R rows, T length, S length of the encoder's outputs, C width, H channels inside a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.mixers.convolution_branches import TokenConvolution
from headwise.blocks.norm import LayerNorm
from headwise.blocks.stack import Embedding, Encoder, Stack
from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.blocks.token_convolution import check_kernel, get_convolution_properties

ROUNDING = 1e-4  # tokens by which a bound may exceed a whole number before it is rounded up: 1.1 * 10 is 11


class DilatedConvolution(Part):
    """Dilated convolution in a bottleneck, the residual block of ByteNet with ReLUs: W_2 relu(norm(conv(relu(norm(W_1
    relu(x)))))).

    >>> import torch
    >>> DilatedConvolution(64, 32, kernel=3, dilation=4)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(self, width: int, hidden: int, kernel: int = 3, dilation: int = 1, causal: bool = False):
        super().__init__()
        check_kernel(kernel, causal, "kernel")
        self.inner = nn.Linear(width, hidden)
        self.norm = LayerNorm(hidden)
        self.build_convolution(hidden, kernel, dilation, causal)
        self.out = nn.Linear(hidden, width)

    def build_convolution(self, hidden: int, kernel: int, dilation: int, causal: bool) -> None:
        """Create the convolution."""
        self.convolution = TokenConvolution(hidden, hidden, kernel, causal=causal, dilation=dilation)
        self.out_norm = LayerNorm(hidden)

    @property
    def properties(self) -> Properties:
        return get_convolution_properties(self.convolution.causal)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        h = self.norm(self.inner(stream.x.relu()))  # (B, T, C) -> (B, T, H)
        return self.out(self.convolve(stream.with_x(h), ctx))

    def convolve(self, stream: Stream, ctx: Context) -> Tensor:
        """The convolution with its activations, (B, T, H) -> (B, T, H)."""
        return self.out_norm(self.convolution(stream.with_x(stream.x.relu()), ctx)).relu()


class MultiplicativeUnit(DilatedConvolution):
    """The multiplicative unit in a bottleneck, the other residual block of ByteNet: W_2 mu(norm(W_1 relu(x))), mu(h) =
    g_1 * tanh(g_2 * h + g_3 * u) with gates and u of a dilated convolution (Kalchbrenner et al. 2016, "Video Pixel
    Networks")."""

    def build_convolution(self, hidden: int, kernel: int, dilation: int, causal: bool) -> None:
        self.convolution = TokenConvolution(hidden, 4 * hidden, kernel, causal=causal, dilation=dilation)

    def convolve(self, stream: Stream, ctx: Context) -> Tensor:
        *gates, update = self.convolution(stream, ctx).chunk(4, dim=-1)  # (B, T, 4H) -> 4 x (B, T, H)
        first, second, third = (gate.sigmoid() for gate in gates)
        return first * (second * stream.x + third * update.tanh()).tanh()


class UnfoldingEncoder(Encoder):
    """The encoder of a decoder with dynamic unfolding: outputs for ceil(ratio * |s|) + extra positions, an upper bound
    of the target's length. Positions after the source have zeros for embeddings; outputs after the bound are zeros."""

    def __init__(self, embed: Embedding, stack: Stack, ratio: float = 1.2, extra: int = 0):
        super().__init__(embed, stack)
        self.ratio, self.extra = ratio, extra

    def forward(self, ids: Tensor, ctx: Context) -> Stream:
        length = ids.shape[1]
        ids = F.pad(ids, (0, ceil(self.ratio * length - ROUNDING) + self.extra - length), value=self.pad)
        real = (ids != self.pad).unsqueeze(-1)  # (B, S, 1)
        bounds = (real.sum(1) * self.ratio - ROUNDING).ceil() + self.extra  # (B, 1)
        stream, stack_ctx = self.embed(ids), ctx.at("encoder", ctx.outputs_needed)
        stream = replace(stream, x=stream.x.masked_fill(~real, 0.0), keep=stream.pos < bounds)
        ctx.side.add("embedding", stack_ctx.path, stream)
        outputs = self.stack(stream, stack_ctx)
        return outputs.with_x(outputs.x.masked_fill(~(stream.pos < bounds).unsqueeze(-1), 0.0))


class UnfoldingStack(Stack):
    """A decoder stack with dynamic unfolding: the inputs of its first layer are the embedding of the target token at t
    plus the encoder's output at t, or nothing after the last of these."""

    def __init__(self, layers: Sequence[nn.Module], final: nn.Module):
        super().__init__(layers, final)

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        return super().forward(stream.with_x(stream.x + take_outputs(ctx.memory["encoder"], stream)), ctx)


def take_outputs(memory: Stream, stream: Stream) -> Tensor:
    """The encoder's outputs (B, S, C) at the positions of a decoder's stream, (R, T, C); zeros after the last one."""
    rows, length, _ = stream.x.shape
    pos = stream.pos.expand(rows, length)  # (T,) or (R, T) -> (R, T)
    last = memory.x.shape[1] - 1
    if not (rows and length and memory.x.shape[1]):
        return stream.x.new_zeros(rows, length, memory.x.shape[2])
    index = pos.clamp(max=last).reshape(len(memory.x), -1, 1)  # (R, T) -> (B, K*T, 1)
    outputs = memory.x.take_along_dim(index, 1).view(rows, length, -1)
    return outputs.masked_fill((pos > last).unsqueeze(-1), 0.0)
