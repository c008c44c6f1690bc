"""Recurrent parts against torch.nn with the same weights, and Cho's GRU against its equations written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headwise.blocks.cache import DecodingCache
from headwise.blocks.mixers.recurrent import ChoGru, Elman, Gru, Lstm, Recurrence, Recurrent
from headwise.blocks.stream import Context, SideOutputs, Stream
from headwise.testing import assert_parity

WIDTH, HIDDEN, LENGTHS = 5, 7, (6, 1, 4)
KINDS = {
    "tanh": (lambda: Elman(WIDTH, HIDDEN), lambda **more: nn.RNN(WIDTH, HIDDEN, **more)),
    "relu": (lambda: Elman(WIDTH, HIDDEN, "relu"), lambda **more: nn.RNN(WIDTH, HIDDEN, nonlinearity="relu", **more)),
    "lstm": (lambda: Lstm(WIDTH, HIDDEN), lambda **more: nn.LSTM(WIDTH, HIDDEN, **more)),
    "gru": (lambda: Gru(WIDTH, HIDDEN), lambda **more: nn.GRU(WIDTH, HIDDEN, **more)),
}


def close(ours: Tensor, theirs: Tensor) -> None:
    assert_parity(ours, theirs, 1e-6)


class Kept(SideOutputs):
    """Side outputs by name."""

    def __init__(self) -> None:
        self.found: dict[str, Tensor] = {}

    def add(self, name: str, place: object, value: Tensor) -> None:
        self.found[name] = value


def pair(kind: str) -> tuple[Recurrent, nn.RNNBase]:
    """Our bidirectional part without its projection, and torch's network, with the same random weights."""
    make, theirs = KINDS[kind][0], KINDS[kind][1](batch_first=True, bidirectional=True)
    ours = Recurrent(2 * HIDDEN, make(), make())
    for net, end in ((ours.ahead.net, ""), (ours.back.net, "_reverse")):
        net.load_state_dict({name: theirs.get_parameter(name + end) for name, _ in net.named_parameters()})
    return ours, theirs


def state(final: Tensor | tuple[Tensor, Tensor], direction: int) -> Tensor:
    """torch's final state as ours: h, or h and c side by side."""
    vectors = final if isinstance(final, tuple) else (final,)
    return torch.cat([vector[direction] for vector in vectors], dim=-1)


@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind: str) -> None:
    ours, theirs = pair(kind)
    x, side = torch.randn(3, 6, WIDTH), Kept()
    expected, final = theirs(x)
    close(ours(Stream.of(x), Context(side=side)), expected)
    close(side.found["final"], state(final, 0))
    close(side.found["final-backward"], state(final, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_as_if_packed(kind: str) -> None:
    ours, theirs = pair(kind)
    x, side = 3 * torch.randn(3, 6, WIDTH), Kept()
    keep = torch.arange(6) < torch.tensor(LENGTHS).unsqueeze(1)
    packed, final = theirs(pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    close(ours(Stream.of(x, keep), Context(side=side))[keep], expected[keep])
    close(side.found["final"], state(final, 0))
    close(side.found["final-backward"], state(final, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_through_padding_are_as_if_packed(kind: str) -> None:
    ours, theirs = pair(kind)
    keep = torch.arange(6) < torch.tensor(LENGTHS).unsqueeze(1)
    x, side = torch.randn(3, 6, WIDTH, requires_grad=True), Kept()
    out = ours(Stream.of(x, keep), Context(side=side))
    (out[keep].square().sum() + side.found["final"].sum()).backward()
    mine, x.grad = x.grad, None
    packed, final = theirs(pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False))
    (packed.data.square().sum() + state(final, 0).sum()).backward()
    close(mine, x.grad)
    for name, parameter in ours.ahead.net.named_parameters():
        assert_parity(parameter.grad, theirs.get_parameter(name).grad)


@pytest.mark.parametrize("kind", KINDS)
def test_single_tokens_from_a_state(kind: str) -> None:
    make, theirs = KINDS[kind][0], KINDS[kind][1](batch_first=True)
    recurrence: Recurrence = make()
    recurrence.net.load_state_dict(theirs.state_dict())
    part, x, ctx = Recurrent(HIDDEN, recurrence), torch.randn(3, 4, WIDTH), Context(cache=DecodingCache(rows=3))
    steps = [part(Stream.of(x[:, t : t + 1], start=t), ctx) for t in range(4)]
    close(torch.cat(steps, dim=1), theirs(x)[0])


def test_the_count_of_the_lstm() -> None:
    count = sum(parameter.numel() for parameter in Lstm(WIDTH, HIDDEN).parameters())
    assert count == 4 * (HIDDEN * WIDTH + HIDDEN**2 + 2 * HIDDEN)


def test_chos_form_is_its_equations() -> None:
    gru = ChoGru(WIDTH, HIDDEN).double()
    nn.init.normal_(gru.bias)
    x, h = torch.randn(3, 4, WIDTH, dtype=torch.float64), torch.randn(3, HIDDEN, dtype=torch.float64)
    out, final = gru(x, h)
    w_r, w_z, w = gru.weight_ih.chunk(3)
    u_r, u_z, u = gru.weight_hh.chunk(3)
    b_r, b_z, b = gru.bias.chunk(3)
    for t in range(4):
        r = torch.sigmoid(x[:, t] @ w_r.T + h @ u_r.T + b_r)
        z = torch.sigmoid(x[:, t] @ w_z.T + h @ u_z.T + b_z)
        h = z * h + (1 - z) * torch.tanh(x[:, t] @ w.T + (r * h) @ u.T + b)
        torch.testing.assert_close(out[:, t], h, atol=1e-12, rtol=1e-12)
    assert torch.equal(final, out[:, -1])


def test_the_two_forms_of_the_gru_differ() -> None:
    ours, cho = Gru(WIDTH, HIDDEN), ChoGru(WIDTH, HIDDEN)
    cho.load_state_dict({
        "weight_ih": ours.net.weight_ih_l0, "weight_hh": ours.net.weight_hh_l0, "bias": ours.net.bias_ih_l0,
    })  # fmt: skip
    x, h = torch.randn(2, 3, WIDTH), torch.randn(2, HIDDEN)
    assert not torch.allclose(ours(x, h)[0], cho(x, h)[0], atol=1e-3)
    close(ours(x, 0 * h)[0][:, 0], cho(x, 0 * h)[0][:, 0])  # where nothing went before there is nothing to reset
