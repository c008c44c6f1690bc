"""Recurrent networks as mixers: Elman (1990), LSTM (Hochreiter and Schmidhuber 1997; Gers et al. 2000) and the GRU in
two forms, torch's and that of Cho et al. (2014), in one or both directions (Schuster and Paliwal 1997).

A `Recurrence` reads in one direction; the part `Recurrent` owns one or two of them, with their state in the cache.

Recurrent matrices start orthogonal (Saxe et al. 2014), so that at first the state is turned and not stretched; input
matrices Xavier-uniform, each gate for itself; biases zero.

Letters: B rows, T length, C width, H hidden, S width of a state: H, for an LSTM 2H with h and c side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.errors import UserError

Cell = Callable[..., Tensor]  # torch's step of one token
CellState = tuple[Tensor, ...]  # (B, H) each; the first is h
CellStep = Callable[[int, Tensor, CellState], CellState]  # token t, its inputs that are not known before, the state
SATURATED = 1e4  # sigmoid of it is exactly 1, of its negative exactly 0, in every type of number


class Recurrence(nn.Module, ABC):
    """One direction: `recurrence(x, state, lengths)` -> outputs (B, T, H) and the state after the last real token."""

    def __init__(self, hidden: int, vectors: int = 1):
        super().__init__()
        self.hidden = hidden
        self.state_width = vectors * hidden

    @abstractmethod
    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (B, T, C) and state (B, S); lengths (B,) count the real tokens of each row, None: all are real."""

    def unroll(self, x: Tensor) -> CellStep:
        """One step at a time, for inputs that depend on the step before: `step(t, rest, state)` takes the inputs
        [x_t; rest]. What x (B, T, C) gives is computed for all t at once."""
        raise UserError(f"{type(self).__name__} cannot feed its outputs back as inputs; use an LSTM or a GRU")


class Elman(Recurrence):
    """h_t = act(W x_t + b + U h_{t-1} + b'), act = tanh or relu."""

    def __init__(self, width: int, hidden: int, activation: str = "tanh"):
        super().__init__(hidden)
        self.net = nn.RNN(width, hidden, nonlinearity=activation, batch_first=True)
        self.cell = {"tanh": torch.rnn_tanh_cell, "relu": torch.rnn_relu_cell}[activation]
        initialise(self.net, hidden)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return through(self.net, self.cell, x, state, lengths)


class Gru(Recurrence):
    """torch's GRU: h~ = tanh(W x + b + r * (U h + b')), h = (1 - z) * h~ + z * h.

    DISCREPANCY: Cho et al. reset before the product, `ChoGru`; this form is the one that fused kernels know.
    """

    def __init__(self, width: int, hidden: int):
        super().__init__(hidden)
        self.net = nn.GRU(width, hidden, batch_first=True)
        initialise(self.net, hidden)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return through(self.net, torch.gru_cell, x, state, lengths)

    def unroll(self, x: Tensor) -> CellStep:
        w_ih, w_hh, b_ih, b_hh = self.net.all_weights[0]
        known, to_rest, to_h = split_inputs(x, w_ih, b_ih, w_hh)
        parts = (2 * self.hidden, self.hidden)

        def step(t: int, rest: Tensor, state: CellState) -> CellState:
            (h,) = state
            gates, new = torch.addmm(known[t], rest, to_rest).split(parts, dim=-1)  # (B, 2H), (B, H)
            more, old = torch.addmm(b_hh, h, to_h).split(parts, dim=-1)
            r, z = (gates + more).sigmoid().chunk(2, dim=-1)
            return (torch.lerp(torch.addcmul(new, r, old).tanh(), h, z),)

        return step


class Lstm(Recurrence):
    """LSTM: i, f, o = sigmoid(.), g = tanh(.) of W x + b + U h + b';  c = f * c + i * g,  h = o * tanh(c).

    `forget_bias` is what the forget gate's bias starts from: with 1 an untrained cell remembers (Jozefowicz et al.
    2015).
    """

    def __init__(self, width: int, hidden: int, forget_bias: float = 1.0):
        super().__init__(hidden, vectors=2)
        self.net = nn.LSTM(width, hidden, batch_first=True)
        initialise(self.net, hidden)
        forget = self.net.get_parameter("bias_ih_l0").detach()[hidden : 2 * hidden]  # gates i, f, g, o
        nn.init.constant_(forget, forget_bias)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):  # CPUs without AVX-512 have no LSTM in 16 bits
                return self(x.float(), state.float(), lengths)
        h, c = state.chunk(2, dim=-1)
        if lengths is None and x.shape[1] == 1:
            h, c = torch.lstm_cell(x[:, 0], (h, c), *self.net.all_weights[0])
            return h.unsqueeze(1), torch.cat((h, c), dim=-1)
        before = (h.unsqueeze(0).contiguous(), c.unsqueeze(0).contiguous())  # (B, H) -> (1, B, H)
        if lengths is None:
            out, (_, c) = self.net(x, before)
        else:
            out, c = self._held(x, before, lengths)
        return out, torch.cat((last(out, h, lengths), c.squeeze(0)), dim=-1)

    def unroll(self, x: Tensor) -> CellStep:
        w_ih, w_hh, b_ih, b_hh = self.net.all_weights[0]
        known, to_rest, to_h = split_inputs(x, w_ih, b_ih + b_hh, w_hh)

        def step(t: int, rest: Tensor, state: CellState) -> CellState:
            h, c = state
            gates = torch.addmm(torch.addmm(known[t], rest, to_rest), h, to_h)  # (B, 4H)
            i, f, _, o = gates.sigmoid().chunk(4, dim=-1)
            c = torch.addcmul(f * c, i, gates.chunk(4, dim=-1)[2].tanh())
            return o * c.tanh(), c

        return step

    def _held(self, x: Tensor, before: tuple[Tensor, Tensor], lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs, and c after the last real token.

        The fused kernels give c after the last column alone. So one more input channel is 1 on padding, where its
        weights open the forget gate and close the input gate: c stays as it is, to the bit.
        """
        weight, *others = self.net.all_weights[0]
        padding = torch.arange(x.shape[1], device=x.device) >= lengths.unsqueeze(1)  # (B, T)
        x = torch.cat((x, padding.unsqueeze(-1).to(x.dtype)), dim=-1)  # (B, T, C) -> (B, T, C + 1)
        hold = weight.new_zeros(len(weight), 1)  # (4H, 1)
        hold[: self.hidden], hold[self.hidden : 2 * self.hidden] = -SATURATED, SATURATED
        weights = (torch.cat((weight, hold), dim=1), *others)
        out, _, c = torch.lstm(x, before, weights, True, 1, 0.0, self.training, False, True)
        return out, c


class ChoGru(Recurrence):
    """Cho et al. (2014), eqs. 5-8: h~ = tanh(W x + U (r * h)), h = z * h + (1 - z) * h~.

    What depends on the inputs alone is computed for all tokens at once. DISCREPANCY: the paper leaves out the biases;
    here each gate has one.
    """

    def __init__(self, width: int, hidden: int):
        super().__init__(hidden)
        self.weight_ih = nn.Parameter(torch.empty(3 * hidden, width))  # r, z, h~
        self.weight_hh = nn.Parameter(torch.empty(3 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(3 * hidden))
        initialise(self, hidden)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        parts = (2 * self.hidden, self.hidden)
        gates, news = F.linear(x, self.weight_ih, self.bias).split(parts, dim=-1)  # (B, T, C) -> (B, T, 2H), (B, T, H)
        to_gates, to_new = self.weight_hh.t().split(parts, dim=-1)
        h, steps = state, []
        for gate, new in zip(gates.unbind(1), news.unbind(1), strict=True):
            r, z = torch.addmm(gate, h, to_gates).sigmoid().chunk(2, dim=-1)
            h = z * h + (1 - z) * torch.addmm(new, r * h, to_new).tanh()
            steps.append(h)
        out = torch.stack(steps, dim=1)  # T x (B, H) -> (B, T, H)
        return out, last(out, state, lengths)

    def unroll(self, x: Tensor) -> CellStep:
        known, to_rest, to_h = split_inputs(x, self.weight_ih, self.bias, self.weight_hh)
        parts = (2 * self.hidden, self.hidden)
        to_gates, to_new = to_h.split(parts, dim=-1)

        def step(t: int, rest: Tensor, state: CellState) -> CellState:
            (h,) = state
            gates, new = torch.addmm(known[t], rest, to_rest).split(parts, dim=-1)  # (B, 2H), (B, H)
            r, z = torch.addmm(gates, h, to_gates).sigmoid().chunk(2, dim=-1)
            return (torch.lerp(torch.addmm(new, r * h, to_new).tanh(), h, z),)

        return step


class Recurrent(Part):
    """A recurrence, or one in each direction with their outputs side by side, [h_ahead; h_back].

    The outputs are projected back to the site's width only where they have another one: where `hidden` differs, or
    where both directions together are not as wide as the site.

    The part leaves the state after the last real token with `ctx.side` as "final", and that of the backward direction
    after the first token as "final-backward". With `begin="memory"` it starts from the row of the memory "final",
    (B, layers, S), that has its layer's number; layers above the last row take the last.

    >>> Recurrent(64, Lstm(64, 32), Lstm(64, 32))(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(self, width: int, ahead: Recurrence, back: Recurrence | None = None, begin: str = "zeros"):
        super().__init__()
        self.ahead, self.back, self.begin = ahead, back, begin
        wide = ahead.hidden + (back.hidden if back is not None else 0)
        self.out = nn.Identity() if wide == width else nn.Linear(wide, width)

    @property
    def properties(self) -> Properties:
        ahead = self.back is None
        return Properties(causal=ahead, steppable=ahead, joins=ahead, ragged=ahead, unbounded=ahead)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        x, lengths = stream.x, None if stream.keep is None else stream.keep.sum(1)
        state = ctx.cache.state(ctx.path, lambda: self.initial(x, ctx))
        out, state = self.ahead(x, state, lengths)
        ctx.cache.put(ctx.path, state)
        ctx.side.add("final", ctx.path, state)
        if self.back is not None:
            zeros = x.new_zeros(len(x), self.back.state_width)
            back, state = self.back(turned(x, lengths), zeros, lengths)
            ctx.side.add("final-backward", ctx.path, state)
            out = torch.cat((out, turned(back, lengths)), dim=-1)  # (B, T, H) -> (B, T, 2H)
        return self.out(out)

    def initial(self, x: Tensor, ctx: Context) -> Tensor:
        """The state before the first token, (B, S)."""
        if self.begin == "zeros":
            return x.new_zeros(len(x), self.ahead.state_width)
        if "final" not in ctx.memory:
            raise UserError("begin: nothing before this stack leaves a final state; use begin = 'zeros'")
        final = ctx.memory["final"].x
        if final.shape[-1] != self.ahead.state_width:
            raise UserError(
                f"begin: a final state of width {final.shape[-1]} cannot begin one of {self.ahead.state_width}; "
                "give both stacks parts of the same kind and hidden width, or use begin = 'zeros'"
            )
        layer = next((step for step in ctx.path if isinstance(step, int)), 0)
        state = final[:, min(layer, final.shape[1] - 1)]  # (B, layers, S) -> (B, S)
        return state.repeat_interleave(len(x) // len(state), 0)  # beams of one source are contiguous rows


def split_inputs(x: Tensor, w_ih: Tensor, bias: Tensor, w_hh: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
    """What the known inputs give to the gates, T x (B, gates), and the weights of the other inputs and of h."""
    width = x.shape[-1]
    known = F.linear(x, w_ih[:, :width], bias).unbind(1)  # (B, T, C) -> T x (B, gates)
    return known, w_ih[:, width:].t(), w_hh.t()


def through(
    net: nn.RNN | nn.GRU, cell: Cell, x: Tensor, state: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Through a network whose state is its output; a single token through the cell, which packs no weights first."""
    if lengths is None and x.shape[1] == 1:
        state = cell(x[:, 0], state, *net.all_weights[0])
        return state.unsqueeze(1), state
    out, _ = net(x, state.unsqueeze(0))  # (B, H) -> (1, B, H)
    return out, last(out, state, lengths)


def last(out: Tensor, before: Tensor, lengths: Tensor | None) -> Tensor:
    """Each row's output (B, H) at its last real token; what was before where there is none."""
    if lengths is None:
        return out[:, -1]
    index = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, out.shape[-1])  # (B,) -> (B, 1, H)
    return torch.where(lengths.unsqueeze(1) > 0, out.gather(1, index).squeeze(1), before)


def turned(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each row's real tokens in the opposite order, padding where it was; twice is as before."""
    if lengths is None:
        return x.flip(1)
    rows, length, _ = x.shape
    place = torch.arange(length, device=x.device)
    other = lengths.unsqueeze(1) - 1 - place  # (B, T)
    index = torch.where(other >= 0, other, place) + length * torch.arange(rows, device=x.device).unsqueeze(1)
    return x.flatten(0, 1).index_select(0, index.flatten()).view_as(x)  # (B, T, C) -> (B*T, C) -> (B, T, C)


@torch.no_grad()
def initialise(module: nn.Module, hidden: int) -> None:
    """Recurrent matrices orthogonal, input matrices Xavier-uniform, gate by gate; biases zero."""
    for name, parameter in module.named_parameters():
        for gate in parameter.split(hidden):
            if name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(gate)


class RecurrentConfig(PartConfig):
    """A recurrent network with `hidden` channels in each direction; 0: as many as the site is wide."""

    hidden: int = Field(0, ge=0)
    bidirectional: bool = False
    initial_state: Literal["zeros", "memory"] = "zeros"  # memory: from the final states of another stack

    def build(self, site: BuildContext) -> nn.Module:
        if self.bidirectional and site.causal:
            raise UserError("bidirectional: this stack must not see the future; use bidirectional = false")
        if self.bidirectional and self.initial_state == "memory":
            raise UserError("begin: a bidirectional part reads a whole text from zeros; use begin = 'zeros'")
        hidden = self.hidden or site.width
        back = self.direction(site.width, hidden) if self.bidirectional else None
        return Recurrent(site.width, self.direction(site.width, hidden), back, self.initial_state)

    def direction(self, width: int, hidden: int) -> Recurrence:
        """The network of one direction."""
        raise TypeError(f"{type(self).__name__} has no direction method")


class RnnConfig(RecurrentConfig):
    """Elman's network."""

    kind: Literal["rnn"] = "rnn"
    activation: Literal["tanh", "relu"] = "tanh"

    def direction(self, width: int, hidden: int) -> Recurrence:
        return Elman(width, hidden, self.activation)


class LstmConfig(RecurrentConfig):
    kind: Literal["lstm"] = "lstm"
    forget_bias: float = 1.0  # where the bias of the forget gate starts

    def direction(self, width: int, hidden: int) -> Recurrence:
        return Lstm(width, hidden, self.forget_bias)


class GruConfig(RecurrentConfig):
    """The GRU in torch's form."""

    kind: Literal["gru"] = "gru"

    def direction(self, width: int, hidden: int) -> Recurrence:
        return Gru(width, hidden)


class ChoGruConfig(RecurrentConfig):
    """The GRU as it was published: the state is reset before it is multiplied."""

    kind: Literal["gru_cho"] = "gru_cho"

    def direction(self, width: int, hidden: int) -> Recurrence:
        return ChoGru(width, hidden)
