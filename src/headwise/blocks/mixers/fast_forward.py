"""LSTM layers with fast-forward connections, as encoder and decoder: Zhou et al. (2016), "Deep Recurrent Models with
Fast-Forward Connections for Neural Machine Translation".

The inputs of a layer's gates, f, are also inputs of the layer above, so that a path without recurrence and without
nonlinearity leads through all layers:

    f^1_t = W^1 x_t,  f^k_t = W^k [half(f^{k-1}_t); dropout(h^{k-1}_t)],  h^k_t = LSTM^k(f^k_t, h^k_{t-1})

Letters: B rows, T length, H hidden; f has 4H channels, those of the gates i, f, g, o, and half(f) the first 2H of them.

DISCREPANCY: LSTMs have no peephole connections, and two biases; the order of the gates is torch's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.bridge import load_state
from headwise.blocks.mixers.recurrent import Lstm, reverse_tokens
from headwise.blocks.mixers.rnn_attention import AttentionDecoder, SourceAttention, StackedCells, attend_before_steps
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, Part, Properties, Stream


def compute_gate_inputs(lstm: Lstm, x: Tensor, channels: int) -> Tensor:
    """The first channels of f = W x: (B, T, C) -> (B, T, channels)."""
    weight: Tensor = lstm.net.all_weights[0][0]
    return F.linear(x, weight[:channels])


def build_fast_forward(inputs: int, hidden: int, depth: int) -> list[Lstm]:
    """LSTMs with fast-forward connections: the lowest has `inputs` channels, the others [half(f); h]."""
    return [Lstm(3 * hidden if layer else inputs, hidden) for layer in range(depth)]


class FastForwardColumn(nn.Module):
    """Stacked LSTM layers with fast-forward connections that read in alternate directions, the lowest from the end if
    `reverse` (eqs. 6-7)."""

    def __init__(self, layers: Sequence[Lstm], reverse: bool, dropout: float = 0.0):
        super().__init__()
        self.layers, self.reverse, self.drop = nn.ModuleList(layers), reverse, make_dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """h (B, T, H) and f (B, T, 4H) of the highest layer, and the state (B, S) in which it ends."""
        below: Lstm | None = None
        h = state = x
        for number, lstm in enumerate(self.layers):
            assert isinstance(lstm, Lstm)
            if below is not None:
                x = torch.cat((compute_gate_inputs(below, x, 2 * below.hidden), self.drop(h)), dim=-1)
            backward = self.reverse ^ (number % 2 == 1)
            zeros = x.new_zeros(x.shape[0], lstm.state_width)
            h, state = lstm(reverse_tokens(x, lengths) if backward else x, zeros, lengths)
            h = reverse_tokens(h, lengths) if backward else h
            below = lstm
        assert below is not None
        return h, compute_gate_inputs(below, x, 4 * below.hidden), state


class InterleavedEncoder(Part):
    """The interleaved bidirectional encoder: two columns that begin in different directions. Annotations are
    W_p [h; h'; f; f'] of the highest layers (section 3.2)."""

    def __init__(self, columns: Sequence[FastForwardColumn], annotation_width: int):
        super().__init__()
        self.columns = nn.ModuleList(columns)
        tops = [lstm for column in columns for lstm in [column.layers[-1]] if isinstance(lstm, Lstm)]
        hidden, self.state_width = sum(lstm.hidden for lstm in tops), tops[0].state_width
        self.out = nn.Linear(5 * hidden, annotation_width, bias=False)
        self.output_width = annotation_width

    @property
    def properties(self) -> Properties:
        return Properties(causal=False, steppable=False)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        lengths = None if stream.keep is None else stream.keep.sum(1)
        tops = [column(stream.x, lengths) for column in self.columns]
        ctx.side.add("final", ctx.path, tops[0][2])
        hs, fs = ([top[index] for top in tops] for index in (0, 1))
        return self.out(torch.cat((*hs, *fs), dim=-1))  # 2 x (B, T, H), 2 x (B, T, 4H) -> (B, T, C)

    def transform_nothing(self, stream: Stream, ctx: Context) -> Tensor:
        ctx.side.add("final", ctx.path, stream.x.new_zeros(len(stream.x), self.state_width))
        return super().transform_nothing(stream, ctx)


class FastForwardDecoder(AttentionDecoder):
    """A decoder of LSTM layers with fast-forward connections: h^1_{t-1} attends to the source for c_t, and the lowest
    layer has the inputs [y_{t-1}; c_t] (section 3.2). So only the lowest layer runs in a loop."""

    def __init__(self, layers: Sequence[Lstm], glimpse: SourceAttention, dropout: float = 0.0):
        super().__init__(glimpse.score.length_free)
        self.tower, self.glimpse = StackedCells(layers[:1]), glimpse
        self.upper, self.drop = nn.ModuleList(layers[1:]), make_dropout(dropout)
        self.output_width = layers[-1].hidden

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        h, c = attend_before_steps(self.tower, self.glimpse, stream, ctx)
        x, below = torch.cat((stream.x, c), dim=-1), self.tower.recurrences[0]
        for number, lstm in enumerate(self.upper, start=1):
            assert isinstance(lstm, Lstm) and isinstance(below, Lstm)
            x = torch.cat((compute_gate_inputs(below, x, 2 * below.hidden), self.drop(h)), dim=-1)
            h, state = lstm(x, load_state(ctx, number, x.shape[0]))
            ctx.cache.put_state(ctx.at(number).path, state)
            below = lstm
        return self.drop(h)
