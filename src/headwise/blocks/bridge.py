"""Bridges from a recurrent encoder to a recurrent decoder: the decoder's initial states from the encoder's final ones
(Sutskever et al. 2014; Cho et al. 2014; Bahdanau et al. 2015).

Letters: B sources, S length, C width, L layers of the decoder, H the width of a layer's state.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from headwise.blocks.mixers.recurrent import reverse_tokens
from headwise.blocks.record import Collector
from headwise.blocks.stack import Embedding, Encoder, Stack
from headwise.blocks.stream import Context, Stream

Finals = Mapping[str, list[Tensor]]  # final states of all layers, by name of the side output


class RecurrentEncoder(Encoder):
    """A recurrent encoder with a bridge, which computes the decoder's initial states from its final ones.

    With `reverse` it reads each source from its end (Sutskever et al. 2014, section 3.3), so that the first words are
    next to the decoder. Its outputs are in the order of the source again, for attention.
    """

    def __init__(self, embed: Embedding, stack: Stack, bridge: nn.Module, reverse: bool = False, pad: int = 0):
        super().__init__(embed, stack, pad)
        self.bridge, self.reverse = bridge, reverse

    def forward(self, ids: Tensor, ctx: Context) -> Stream:
        if not self.reverse:
            return super().forward(ids, ctx)
        lengths = (ids != self.pad).sum(1)
        stream = super().forward(reverse_tokens(ids.unsqueeze(-1), lengths).squeeze(-1), ctx)
        return stream.with_x(reverse_tokens(stream.x, lengths))

    def read(self, ids: Tensor) -> dict[str, Stream]:
        ctx = Context()
        side = Collector("final", "final-backward", onward=ctx.side)
        outputs = self(ids, Context(side=side, record=ctx.record))
        states = self.bridge({name: side.list_values(name) for name in side.values})
        return {"encoder": outputs} | {name: Stream.of(x) for name, x in states.items()}


class CopyStates(nn.Module):
    """The decoder's layers start from the final states of the encoder's (Sutskever et al. 2014); where the lowest are
    bidirectional, from those of their backward direction, as in the GNMT of github.com/tensorflow/nmt."""

    def forward(self, finals: Finals) -> dict[str, Tensor]:
        backward = finals.get("final-backward", [])
        states = [*backward, *finals["final"][len(backward) :]]
        return {"final": torch.stack(states, dim=1)}  # L x (B, H) -> (B, L, H)


class ZeroStates(nn.Module):
    """The decoder's layers start from zeros: all that it knows of the source comes through attention."""

    def __init__(self, depth: int):
        super().__init__()
        self.depth = depth

    def forward(self, finals: Finals) -> dict[str, Tensor]:
        state = finals["final"][-1]
        return {"final": state.new_zeros(state.shape[0], self.depth, state.shape[1])}  # (B, L, H)


class SummaryBridge(nn.Module):
    """c = tanh(V h_N), h'_0 = tanh(V' c); the decoder also reads c at every step (Cho et al. 2014, appendix A)."""

    def __init__(self, state_width: int, width: int, depth: int):
        super().__init__()
        self.summary = nn.Linear(state_width, width)
        self.first = InitialStates(width, state_width, depth)

    def forward(self, finals: Finals) -> dict[str, Tensor]:
        summary = self.summary(finals["final"][-1]).tanh()
        return {"final": self.first(summary), "summary": summary.unsqueeze(1)}  # (B, C) -> (B, 1, C)


class BackwardStateBridge(nn.Module):
    """s_0 = tanh(W_s h_1), h_1 the final state of the backward direction (Bahdanau et al. 2015, appendix A.2.2)."""

    def __init__(self, state_width: int, depth: int):
        super().__init__()
        self.first = InitialStates(state_width, state_width, depth)

    def forward(self, finals: Finals) -> dict[str, Tensor]:
        return {"final": self.first(finals["final-backward"][-1])}


class InitialStates(nn.Linear):
    """tanh(W x) for each layer of a decoder: (B, C) -> (B, L, H)."""

    def __init__(self, width: int, state_width: int, depth: int):
        super().__init__(width, depth * state_width)
        self.depth = depth

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).tanh().unflatten(-1, (self.depth, -1))  # (B, LH) -> (B, L, H)


def load_state(ctx: Context, layer: int, rows: int) -> Tensor:
    """A decoder layer's state before the next token, (rows, H): from the cache, at first from the bridge."""

    def load_initial() -> Tensor:
        state = ctx.memory["final"].x[:, layer]  # (B, L, H) -> (B, H)
        return state.repeat_interleave(rows // state.shape[0], 0)  # beams of one source are contiguous rows

    return ctx.cache.get_state(ctx.at(layer).path, load_initial)
