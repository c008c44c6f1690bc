"""Recurrent networks as mixers: Elman (1990), LSTM (Hochreiter and Schmidhuber 1997; Gers et al. 2000) and the GRU in
two forms, torch's and that of Cho et al. (2014), in one or both directions (Schuster and Paliwal 1997).

A `Recurrence` reads in one direction; the part `Recurrent` owns one or two of them and keeps their state in the cache.

Recurrent matrices are initialised orthogonal (Saxe et al. 2014), input matrices Xavier-uniform, each gate separately;
biases zero.

Letters: B rows, T length, C width, H hidden, S width of a state: H, for an LSTM 2H, h and c concatenated.
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

Cell = Callable[..., Tensor]  # torch's cell, one token at a time
CellState = tuple[Tensor, ...]  # (B, H) each; the first is h
CellStep = Callable[[int, Tensor, CellState], CellState]  # (t, inputs that depend on the step before, state)
SATURATED = 1e4  # its sigmoid is exactly 1, that of its negative exactly 0, in every dtype


class Recurrence(nn.Module, ABC):
    """A recurrent network of one direction: `recurrence(x, state, lengths)` -> outputs (B, T, H), state after the last
    real token."""

    def __init__(self, hidden: int, vectors: int = 1):
        super().__init__()
        self.hidden = hidden
        self.state_width = vectors * hidden

    @abstractmethod
    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (B, T, C) and state (B, S); lengths (B,) count the real tokens of each row, None: all are real."""

    def unroll(self, x: Tensor) -> CellStep:
        """A step function for inputs that depend on the step before: `step(t, rest, state)` has the inputs [x_t; rest].
        The product with x (B, T, C) is computed for all t at once."""
        raise UserError(f"cell: {type(self).__name__} cannot take its outputs as inputs; use an LSTM or a GRU")


class Elman(Recurrence):
    """Elman network: h_t = act(W x_t + b + U h_{t-1} + b'), act = tanh or relu."""

    def __init__(self, width: int, hidden: int, activation: str = "tanh"):
        super().__init__(hidden)
        self.net = nn.RNN(width, hidden, nonlinearity=activation, batch_first=True)
        self.cell = {"tanh": torch.rnn_tanh_cell, "relu": torch.rnn_relu_cell}[activation]
        init_gates(self.net, hidden)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return run_network(self.net, self.cell, x, state, lengths)


class Gru(Recurrence):
    """torch's GRU: h~ = tanh(W x + b + r * (U h + b')), h = (1 - z) * h~ + z * h.

    DISCREPANCY: Cho et al. reset the state before the product (`ChoGru`); fused kernels implement this form.
    """

    def __init__(self, width: int, hidden: int):
        super().__init__(hidden)
        self.net = nn.GRU(width, hidden, batch_first=True)
        init_gates(self.net, hidden)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return run_network(self.net, torch.gru_cell, x, state, lengths)

    def unroll(self, x: Tensor) -> CellStep:
        w_ih, w_hh, b_ih, b_hh = self.net.all_weights[0]
        from_x, to_rest, to_h = split_inputs(x, w_ih, b_ih, w_hh)
        sizes = (2 * self.hidden, self.hidden)

        def step(t: int, rest: Tensor, state: CellState) -> CellState:
            (h,) = state
            gates, new = torch.addmm(from_x[t], rest, to_rest).split(sizes, dim=-1)  # (B, 2H), (B, H)
            gates_h, new_h = torch.addmm(b_hh, h, to_h).split(sizes, dim=-1)
            r, z = (gates + gates_h).sigmoid().chunk(2, dim=-1)
            return (torch.lerp(torch.addcmul(new, r, new_h).tanh(), h, z),)

        return step


class Lstm(Recurrence):
    """LSTM: i, f, o = sigmoid(.), g = tanh(.) of W x + b + U h + b';  c = f * c + i * g,  h = o * tanh(c).

    `forget_bias` is the initial bias of the forget gate: with 1 an untrained cell remembers (Jozefowicz et al. 2015).
    """

    def __init__(self, width: int, hidden: int, forget_bias: float = 1.0):
        super().__init__(hidden, vectors=2)
        self.net = nn.LSTM(width, hidden, batch_first=True)
        init_gates(self.net, hidden)
        forget = self.net.get_parameter("bias_ih_l0").detach()[hidden : 2 * hidden]  # gates i, f, g, o
        nn.init.constant_(forget, forget_bias)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):  # CPUs without AVX-512 have no 16-bit LSTM
                return self(x.float(), state.float(), lengths)
        h, c = state.chunk(2, dim=-1)
        if lengths is None and x.shape[1] == 1:
            h, c = torch.lstm_cell(x[:, 0], (h, c), *self.net.all_weights[0])
            return h.unsqueeze(1), torch.cat((h, c), dim=-1)
        initial = (h.unsqueeze(0).contiguous(), c.unsqueeze(0).contiguous())  # (B, H) -> (1, B, H)
        if lengths is None:
            out, (_, c) = self.net(x, initial)
        else:
            out, c = self._run_padded(x, initial, lengths)
        return out, torch.cat((take_last(out, h, lengths), c.squeeze(0)), dim=-1)

    def unroll(self, x: Tensor) -> CellStep:
        w_ih, w_hh, b_ih, b_hh = self.net.all_weights[0]
        from_x, to_rest, to_h = split_inputs(x, w_ih, b_ih + b_hh, w_hh)

        def step(t: int, rest: Tensor, state: CellState) -> CellState:
            h, c = state
            gates = torch.addmm(torch.addmm(from_x[t], rest, to_rest), h, to_h)  # (B, 4H)
            i, f, _, o = gates.sigmoid().chunk(4, dim=-1)
            c = torch.addcmul(f * c, i, gates.chunk(4, dim=-1)[2].tanh())
            return o * c.tanh(), c

        return step

    def _run_padded(self, x: Tensor, initial: tuple[Tensor, Tensor], lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs, and c after the last real token of each row.

        Fused kernels return c after the last column alone. So an additional input channel is 1 on padding, where its
        weights open the forget gate and close the input gate: c stays the same, bit by bit.
        """
        w_ih, *others = self.net.all_weights[0]
        padding = torch.arange(x.shape[1], device=x.device) >= lengths.unsqueeze(1)  # (B, T)
        x = torch.cat((x, padding.unsqueeze(-1).to(x.dtype)), dim=-1)  # (B, T, C) -> (B, T, C + 1)
        column = w_ih.new_zeros(len(w_ih), 1)  # (4H, 1)
        column[: self.hidden], column[self.hidden : 2 * self.hidden] = -SATURATED, SATURATED
        weights = (torch.cat((w_ih, column), dim=1), *others)
        out, _, c = torch.lstm(x, initial, weights, True, 1, 0.0, self.training, False, True)
        return out, c


class ChoGru(Recurrence):
    """The GRU of Cho et al. (2014), eqs. 5-8: h~ = tanh(W x + U (r * h)), h = z * h + (1 - z) * h~.

    The products with the inputs are computed for all tokens at once. DISCREPANCY: the paper leaves out the biases; here
    each gate has one.
    """

    def __init__(self, width: int, hidden: int):
        super().__init__(hidden)
        self.weight_ih = nn.Parameter(torch.empty(3 * hidden, width))  # r, z, h~
        self.weight_hh = nn.Parameter(torch.empty(3 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(3 * hidden))
        init_gates(self, hidden)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        sizes = (2 * self.hidden, self.hidden)
        gates, news = F.linear(x, self.weight_ih, self.bias).split(sizes, dim=-1)  # (B, T, C) -> (B, T, 2H), (B, T, H)
        to_gates, to_new = self.weight_hh.t().split(sizes, dim=-1)
        h, states = state, []
        for gate, new in zip(gates.unbind(1), news.unbind(1), strict=True):
            r, z = torch.addmm(gate, h, to_gates).sigmoid().chunk(2, dim=-1)
            h = z * h + (1 - z) * torch.addmm(new, r * h, to_new).tanh()
            states.append(h)
        out = torch.stack(states, dim=1)  # T x (B, H) -> (B, T, H)
        return out, take_last(out, state, lengths)

    def unroll(self, x: Tensor) -> CellStep:
        from_x, to_rest, to_h = split_inputs(x, self.weight_ih, self.bias, self.weight_hh)
        sizes = (2 * self.hidden, self.hidden)
        to_gates, to_new = to_h.split(sizes, dim=-1)

        def step(t: int, rest: Tensor, state: CellState) -> CellState:
            (h,) = state
            gates, new = torch.addmm(from_x[t], rest, to_rest).split(sizes, dim=-1)  # (B, 2H), (B, H)
            r, z = torch.addmm(gates, h, to_gates).sigmoid().chunk(2, dim=-1)
            return (torch.lerp(torch.addmm(new, r * h, to_new).tanh(), h, z),)

        return step


class Recurrent(Part):
    """A recurrent part: one recurrence, or one in each direction with concatenated outputs, [h_ahead; h_back].

    Outputs are projected to the layer's width only if they have another one.

    The part reports the state after the last real token to `ctx.side` as "final", and that of the backward direction
    after the first token as "final-backward". With `initial_state="memory"` it starts from the row of the memory
    "final", (B, layers, S), with the index of its layer; layers above the last row take the last.

    >>> Recurrent(64, Lstm(64, 32), Lstm(64, 32))(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(self, width: int, ahead: Recurrence, back: Recurrence | None = None, initial_state: str = "zeros"):
        super().__init__()
        self.ahead, self.back, self.initial_state = ahead, back, initial_state
        self.output_width = width
        hidden = ahead.hidden + (back.hidden if back is not None else 0)
        self.out = nn.Identity() if hidden == width else nn.Linear(hidden, width)

    @property
    def properties(self) -> Properties:
        causal = self.back is None
        return Properties(causal=causal, steppable=causal, joins=causal, ragged=causal, unbounded=causal)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        x, lengths = stream.x, None if stream.keep is None else stream.keep.sum(1)
        state = ctx.cache.get_state(ctx.path, lambda: self.build_initial_state(x, ctx))
        out, state = self.ahead(x, state, lengths)
        ctx.cache.put_state(ctx.path, state)
        ctx.side.add("final", ctx.path, state)
        if self.back is not None:
            zeros = x.new_zeros(x.shape[0], self.back.state_width)
            back, state = self.back(reverse_tokens(x, lengths), zeros, lengths)
            ctx.side.add("final-backward", ctx.path, state)
            out = torch.cat((out, reverse_tokens(back, lengths)), dim=-1)  # (B, T, H) -> (B, T, 2H)
        return self.out(out)

    def transform_nothing(self, stream: Stream, ctx: Context) -> Tensor:
        """The states are those before the first token."""
        ctx.side.add("final", ctx.path, self.build_initial_state(stream.x, ctx))
        if self.back is not None:
            ctx.side.add("final-backward", ctx.path, stream.x.new_zeros(len(stream.x), self.back.state_width))
        return super().transform_nothing(stream, ctx)

    def build_initial_state(self, x: Tensor, ctx: Context) -> Tensor:
        """The state before the first token, (B, S)."""
        if self.initial_state == "zeros":
            return x.new_zeros(x.shape[0], self.ahead.state_width)
        if "final" not in ctx.memory:
            raise UserError("initial_state: no stack before this one has a final state; use initial_state = 'zeros'")
        final = ctx.memory["final"].x
        if final.shape[-1] != self.ahead.state_width:
            raise UserError(
                f"initial_state: final states have width {final.shape[-1]}, this part needs {self.ahead.state_width}; "
                "use parts of the same kind and hidden width in both stacks, or initial_state = 'zeros'"
            )
        layer = next((step for step in ctx.path if isinstance(step, int)), 0)
        state = final[:, min(layer, final.shape[1] - 1)]  # (B, layers, S) -> (B, S)
        beams = x.shape[0] // max(state.shape[0], 1)
        return state.repeat_interleave(beams, 0)  # those of one source are contiguous rows


def split_inputs(x: Tensor, w_ih: Tensor, bias: Tensor, w_hh: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
    """Gate inputs from x, T x (B, gates), and the transposed weights of the remaining inputs and of h."""
    width = x.shape[-1]
    from_x = F.linear(x, w_ih[:, :width], bias).unbind(1)  # (B, T, C) -> T x (B, gates)
    return from_x, w_ih[:, width:].t(), w_hh.t()


def run_network(
    net: nn.RNN | nn.GRU, cell: Cell, x: Tensor, state: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Run a network whose state is its output; a single token through the cell, which is faster."""
    if lengths is None and x.shape[1] == 1:
        state = cell(x[:, 0], state, *net.all_weights[0])
        return state.unsqueeze(1), state
    out, _ = net(x, state.unsqueeze(0))  # (B, H) -> (1, B, H)
    return out, take_last(out, state, lengths)


def take_last(out: Tensor, initial: Tensor, lengths: Tensor | None) -> Tensor:
    """Each row's output (B, H) at its last real token; `initial` for a row without any."""
    if lengths is None:
        return out[:, -1]
    index = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, out.shape[-1])  # (B,) -> (B, 1, H)
    return torch.where(lengths.unsqueeze(1) > 0, out.gather(1, index).squeeze(1), initial)


def reverse_tokens(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each row's real tokens in reverse order, padding in place; its own inverse."""
    if lengths is None:
        return x.flip(1)
    rows, length, _ = x.shape
    column = torch.arange(length, device=x.device)
    reverse = lengths.unsqueeze(1) - 1 - column  # (B, T)
    index = torch.where(reverse >= 0, reverse, column) + length * torch.arange(rows, device=x.device).unsqueeze(1)
    return x.flatten(0, 1).index_select(0, index.flatten()).view_as(x)  # (B, T, C) -> (B*T, C) -> (B, T, C)


@torch.no_grad()
def init_gates(module: nn.Module, hidden: int) -> None:
    """Initialise recurrent matrices orthogonal and input matrices Xavier-uniform, gate by gate; biases zero."""
    for name, parameter in module.named_parameters():
        for gate in parameter.split(hidden):
            if name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(gate)


class RecurrentConfig(PartConfig):
    """A recurrent network with `hidden` channels in each direction; 0: the width."""

    hidden: int = Field(0, ge=0)
    bidirectional: bool = False
    initial_state: Literal["zeros", "memory"] = "zeros"  # memory: the final states of another stack

    def build(self, build_ctx: BuildContext) -> nn.Module:
        if self.bidirectional and build_ctx.causal:
            raise UserError("bidirectional: this stack must not see the future; use bidirectional = false")
        if self.bidirectional and self.initial_state == "memory":
            raise UserError("initial_state: a bidirectional part starts from zeros; use initial_state = 'zeros'")
        hidden = self.hidden or build_ctx.width
        back = self.build_direction(build_ctx.width, hidden) if self.bidirectional else None
        return Recurrent(build_ctx.width, self.build_direction(build_ctx.width, hidden), back, self.initial_state)

    def build_direction(self, width: int, hidden: int) -> Recurrence:
        """The network of one direction."""
        raise TypeError(f"{type(self).__name__} has no build_direction method")


class RnnConfig(RecurrentConfig):
    """Elman network (Elman 1990)."""

    kind: Literal["rnn"] = "rnn"
    activation: Literal["tanh", "relu"] = "tanh"

    def build_direction(self, width: int, hidden: int) -> Recurrence:
        return Elman(width, hidden, self.activation)


class LstmConfig(RecurrentConfig):
    """LSTM (Hochreiter and Schmidhuber 1997) with a forget gate (Gers et al. 2000)."""

    kind: Literal["lstm"] = "lstm"
    forget_bias: float = 1.0  # initial bias of the forget gate

    def build_direction(self, width: int, hidden: int) -> Recurrence:
        return Lstm(width, hidden, self.forget_bias)


class GruConfig(RecurrentConfig):
    """GRU in torch's form: the product with the state is reset."""

    kind: Literal["gru"] = "gru"

    def build_direction(self, width: int, hidden: int) -> Recurrence:
        return Gru(width, hidden)


class ChoGruConfig(RecurrentConfig):
    """GRU as published (Cho et al. 2014): the state is reset before the product."""

    kind: Literal["gru_cho"] = "gru_cho"

    def build_direction(self, width: int, hidden: int) -> Recurrence:
        return ChoGru(width, hidden)
