"""Gated convolutions with multi-step attention, the layers of ConvS2S (Gehring et al. 2017, "Convolutional Sequence to
Sequence Learning").

    v(x) = A * sigmoid(B), [A; B] = conv(x)           gated convolution
    d = (W_d h + g) s                                 query: state h of a decoder layer, embedding g of its target token
    a = softmax_j(d z_j), c = m sqrt(1/m) sum_j a_j (z_j + e_j) s
    layer(x) = (v(x) + x) s                           in the encoder
    layer(x) = ((W_c c + h) s + x) s, h = v(x)        in the decoder

z are the encoder's outputs, e the embeddings of the source, m its number of tokens. s = sqrt(1/2) keeps the variance of
sums. All layers have weight normalisation. The reference implementation is fairseq's `fconv`, by the authors.

Letters: B sources, K beams, R = B * K rows, T length, S length of the source, C width of a layer, E that of embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import Dot
from headwise.blocks.mixers.convolution_branches import TokenConvolution
from headwise.blocks.mixers.rnn_attention import SourceAttention
from headwise.blocks.record import Collector
from headwise.blocks.residual import make_dropout
from headwise.blocks.stack import Embedding, Encoder, Stack
from headwise.blocks.stream import Context, LayerStep, Part, Properties, Stream
from headwise.blocks.token_convolution import check_kernel, get_convolution_properties
from headwise.blocks.weight_norm import WeightNormLinear

HALF = 0.5**0.5  # a sum of two vectors, times this, has their variance
VALUES = "values"  # the memory with the encoder's outputs plus the embeddings of the source
TARGET = "target"  # the embeddings of the target tokens, which every layer's queries read


class GatedConvolution(Part):
    """Gated convolution: y = A * sigmoid(B), [A; B] = conv(x), a convolution and a gated linear unit: (B, T, C) ->
    (B, T, C'). Its weights are N(0, 4p / inputs), where p is the share of inputs that dropout keeps.

    >>> import torch
    >>> GatedConvolution(64, 32, kernel=3)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 32])
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, causal: bool = False, dropout: float = 0.0):
        super().__init__()
        check_kernel(kernel, causal, "kernel")
        self.output_width = outputs
        self.drop = make_dropout(dropout)
        linear = WeightNormLinear(kernel * inputs, 2 * outputs, variance=4 * (1 - dropout))
        self.convolution = TokenConvolution(inputs, 2 * outputs, kernel, causal=causal, linear=linear)

    @property
    def properties(self) -> Properties:
        return get_convolution_properties(self.convolution.causal)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return F.glu(self.convolution(stream.with_x(self.drop(stream.x)), ctx), dim=-1)


class MultiStepAttention(Part):
    """Multi-step attention of one decoder layer: y = (W_c c + h) s. The state h and the embedding of the target token
    are the query, the encoder's outputs the keys, and these plus the embeddings of the source the values."""

    def __init__(self, width: int, embedding_width: int):
        super().__init__()
        self.query = WeightNormLinear(width, embedding_width)
        self.glimpse = SourceAttention(Dot(), values=VALUES)
        self.out = WeightNormLinear(embedding_width, width)

    @property
    def properties(self) -> Properties:
        return Properties(causal=True, steppable=True, joins=True)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        h = stream.x
        query = (self.query(h) + ctx.memory[TARGET].x) * HALF  # (R, T, C) -> (R, T, E)
        inputs = self.glimpse.build_inputs(query, self.glimpse.project_keys(ctx), stream.pos, ctx)
        ctx.record.observe(ctx.path, inputs)
        c = self.glimpse.compute_context(inputs, ctx) * count_tokens(ctx.memory[VALUES]).sqrt()  # m sqrt(1/m)
        c = c.reshape(*h.shape[:2], -1)  # (B, 1, K*T, E) -> (R, T, E)
        return (self.out(c) + h) * HALF


def count_tokens(stream: Stream) -> Tensor:
    """The number of real tokens of each row, (B, 1, 1, 1), in the dtype of the vectors."""
    if stream.keep is None:
        return stream.x.new_full((stream.x.shape[0], 1, 1, 1), stream.x.shape[1])
    return stream.keep.sum(1).to(stream.x.dtype).view(-1, 1, 1, 1)


class GatedConvolutionLayer(nn.Module, LayerStep):
    """A layer of ConvS2S: (f(x) + W x) s. f is a gated convolution and, in a decoder, multi-step attention; W is there
    if the widths of inputs and outputs differ."""

    def __init__(self, inputs: int, outputs: int, parts: Sequence[Part]):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.residual = WeightNormLinear(inputs, outputs) if inputs != outputs else nn.Identity()

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        branch = stream
        for index, part in enumerate(self.parts):
            branch = stream.with_x(part(branch, ctx.at(index)))
        return stream.with_x((branch.x + self.residual(stream.x)) * HALF)


class GatedConvolutionStack(Stack):
    """A stack of gated convolutions, whose layers may have different widths: `first` projects the embeddings to the
    width of the first layer, `final` the outputs of the last. Layers can read the embeddings as a memory."""

    def __init__(self, first: nn.Module, layers: Sequence[nn.Module], final: nn.Module):
        super().__init__(layers, final)
        self.first = first

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        ctx = replace(ctx, memory={**ctx.memory, TARGET: stream})
        return super().forward(stream.with_x(self.first(stream.x)), ctx)


class GatedConvolutionEncoder(Encoder):
    """The encoder of ConvS2S: its memory has keys z, its outputs, and values (z + e) s, with the embeddings e.

    In training, gradients of z are divided by 2 `attentions`, since each of so many attentions reads it as keys and as
    values; those of e are not (section 3.5; the 2 is fairseq's).
    """

    def __init__(self, embed: Embedding, stack: Stack, attentions: int):
        super().__init__(embed, stack)
        self.attentions = attentions

    def read(self, ids: Tensor) -> dict[str, Stream]:
        ctx = Context()
        side = Collector("embedding", onward=ctx.side)
        outputs = self(ids, replace(ctx, side=side))
        if self.training:
            outputs = outputs.with_x(scale_gradient(outputs.x, 1 / (2 * self.attentions)))
        (embeddings,) = side.list_values("embedding")
        return {"encoder": outputs, VALUES: outputs.with_x((outputs.x + embeddings.x) * HALF)}


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """x itself, whose gradient is multiplied by `factor`."""
    constant = x.detach()
    return constant + (x - constant) * factor
