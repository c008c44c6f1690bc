"""From a recurrent encoder to a recurrent decoder: what was read last becomes what is known first.

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

Finals = Mapping[str, list[Tensor]]  # the final states of all layers, by the name under which parts report them


class RecurrentEncoder(Encoder):
    """An encoder whose decoder begins with what the bridge makes of its final states.

    With `reverse` it reads each source from its end (Sutskever et al. 2014, section 3.3), so that the first words stand
    next to the decoder. Its outputs are put back in the order of the source: whoever looks at them sees the words where
    they stand.
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
        begun = self.bridge({name: side.all(name) for name in side.values})
        return {"encoder": outputs} | {name: Stream.of(x) for name, x in begun.items()}


class CopyStates(nn.Module):
    """Each layer of the decoder begins where that of the encoder ended (Sutskever et al. 2014)."""

    def forward(self, finals: Finals) -> dict[str, Tensor]:
        return {"final": torch.stack(finals["final"], dim=1)}  # L x (B, H) -> (B, L, H)


class SummaryBridge(nn.Module):
    """c = tanh(V h_N) and h'_0 = tanh(V' c), where c stays in sight (Cho et al. 2014, appendix A)."""

    def __init__(self, state_width: int, width: int, depth: int):
        super().__init__()
        self.summary = nn.Linear(state_width, width)
        self.first = InitialStates(width, state_width, depth)

    def forward(self, finals: Finals) -> dict[str, Tensor]:
        summary = self.summary(finals["final"][-1]).tanh()
        return {"final": self.first(summary), "summary": summary.unsqueeze(1)}  # (B, C) -> (B, 1, C)


class BackwardStateBridge(nn.Module):
    """s_0 = tanh(W_s h_1), h_1 of the direction that reads from the end (Bahdanau et al. 2015, appendix A.2.2)."""

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
    """What a decoder's layer knows before the next token, (rows, H): what it left, or first what the bridge gave it."""

    def first() -> Tensor:
        state = ctx.memory["final"].x[:, layer]  # (B, L, H) -> (B, H)
        return state.repeat_interleave(rows // len(state), 0)  # beams of one source are contiguous rows

    return ctx.cache.state(ctx.at(layer).path, first)
