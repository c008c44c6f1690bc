"""Recurrent parts: declared properties, padding, initial states, and use in a stack."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

import headwise
from headwise.blocks.cache import DecodingCache
from headwise.blocks.mixers.recurrent import ChoGru, Elman, Gru, Lstm, Recurrence, Recurrent
from headwise.blocks.part import BuildContext
from headwise.blocks.residual import NoResidual, ResidualAdd
from headwise.blocks.stream import Context, SideOutputs, Stream
from headwise.blocks.tables import PARTS
from headwise.config.base import validate
from headwise.errors import UserError
from headwise.testing import assert_causal

WIDTH, HIDDEN, LENGTH = 6, 4, 5
Make = Callable[[int, int], Recurrence]
KINDS: dict[str, Make] = {"rnn": Elman, "lstm": Lstm, "gru": Gru, "gru_cho": ChoGru}
DIRECTIONS = {"one way": False, "both ways": True}

every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
every_direction = pytest.mark.parametrize("both", DIRECTIONS.values(), ids=DIRECTIONS.keys())


def build_part(make: Make, both: bool = False, initial_state: str = "zeros", hidden: int = HIDDEN) -> Recurrent:
    back = make(WIDTH, hidden) if both else None
    built = Recurrent(WIDTH, make(WIDTH, hidden), back, initial_state).double()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built


def make_random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def run_steps(recurrent: Recurrent, x: Tensor, ctx: Context) -> Tensor:
    return torch.cat([recurrent(Stream.of(x[:, t : t + 1], start=t), ctx) for t in range(x.shape[1])], dim=1)


class FinalStates(SideOutputs):
    """The side outputs of parts, by name and path."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, object], Tensor] = {}

    def add(self, name: str, path: object, value: Tensor) -> None:
        self.states[name, path] = value


# ---- properties ----


@every_direction
@every_kind
def test_only_one_direction_is_causal_and_steppable(make: Make, both: bool) -> None:
    recurrent, x = build_part(make, both), make_random(2, LENGTH, WIDTH)
    assert recurrent.properties.causal == (not both)
    with pytest.raises(AssertionError, match="gradient") if both else nullcontext():
        assert_causal(recurrent, x)
    equal = torch.allclose(run_steps(recurrent, x, Context(cache=DecodingCache(rows=2))), recurrent(x))
    assert equal == recurrent.properties.steppable == (not both)


@every_kind
def test_decoding_in_pieces_of_any_length_equals_one_forward_pass(make: Make) -> None:
    recurrent, x, ctx = build_part(make), make_random(2, LENGTH, WIDTH), Context(cache=DecodingCache(rows=2))
    pieces = [recurrent(Stream.of(piece), ctx) for piece in x.split((3, 1, 1), dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), recurrent(x))


@every_direction
@every_kind
def test_padding_and_other_rows_change_nothing(make: Make, both: bool) -> None:
    recurrent, x = build_part(make, both), make_random(3, LENGTH, WIDTH)
    lengths = (LENGTH, 2, 0)
    keep = torch.arange(LENGTH) < torch.tensor(lengths).unsqueeze(1)
    together = FinalStates()
    out = recurrent(Stream.of(x, keep), Context(side=together))
    assert torch.isfinite(out).all()
    for row, length in enumerate(lengths[:2]):
        alone = FinalStates()
        expected = recurrent(Stream.of(x[row : row + 1, :length]), Context(side=alone))
        torch.testing.assert_close(out[row : row + 1, :length], expected)
        for name, final in alone.states.items():
            torch.testing.assert_close(together.states[name][row : row + 1], final)
    assert all((final[2] == 0).all() for final in together.states.values())  # no tokens: still the initial state


@every_kind
def test_a_padded_piece_leaves_the_state_at_its_last_real_token(make: Make) -> None:
    recurrent, x = build_part(make), make_random(1, LENGTH, WIDTH)
    ctx = Context(cache=DecodingCache(rows=1))
    padded = torch.cat((x[:, :3], make_random(1, 2, WIDTH)), dim=1)
    recurrent(Stream.of(padded, torch.arange(5).unsqueeze(0) < 3), ctx)
    torch.testing.assert_close(recurrent(Stream.of(x[:, 3:], start=3), ctx), recurrent(x)[:, 3:])


@every_direction
@every_kind
def test_gradients(make: Make, both: bool) -> None:
    recurrent = build_part(make, both, hidden=2)
    keep = torch.tensor([[True, True, True], [True, False, False]])
    names, values = zip(*recurrent.named_parameters(), strict=True)

    def run(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        side = FinalStates()
        parameters = dict(zip(names, weights, strict=True))
        out = torch.func.functional_call(recurrent, parameters, (Stream.of(x, keep), Context(side=side)))
        return out[keep], *side.states.values()

    assert torch.autograd.gradcheck(run, (make_random(2, 3, WIDTH).requires_grad_(), *values), fast_mode=True)


@every_kind
def test_inference_mode_and_no_grad(make: Make) -> None:
    recurrent, x = build_part(make), make_random(2, LENGTH, WIDTH)
    expected = recurrent(x).detach()
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            ctx = Context(cache=DecodingCache(rows=2))
            torch.testing.assert_close(run_steps(recurrent, x, ctx), expected)


@every_direction
@every_kind
def test_lengths_are_not_read_on_the_host(make: Make, both: bool) -> None:
    """The meta device has no contents: reading a length on the host would fail."""
    with torch.device("meta"):
        recurrent = Recurrent(WIDTH, make(WIDTH, HIDDEN), make(WIDTH, HIDDEN) if both else None)
        stream = Stream.of(torch.randn(2, LENGTH, WIDTH), torch.ones(2, LENGTH, dtype=torch.bool))
    assert recurrent(stream).device.type == "meta"


# ---- initial states ----


@every_kind
def test_continues_from_the_final_state_of_another_stack(make: Make) -> None:
    encoder = build_part(make)
    decoder = Recurrent(WIDTH, encoder.ahead, initial_state="memory").double()
    decoder.out = encoder.out
    x, side = make_random(2, LENGTH, WIDTH), FinalStates()
    first = encoder(Stream.of(x[:, :3]), Context(side=side))
    (final,) = side.states.values()
    ctx = Context({"final": Stream.of(final.unsqueeze(1))})  # (B, S) -> (B, 1, S)
    torch.testing.assert_close(torch.cat((first, decoder(Stream.of(x[:, 3:]), ctx)), dim=1), encoder(x))


def test_initial_states_by_layer_and_by_source_of_each_beam() -> None:
    decoder = build_part(Lstm, initial_state="memory")
    final = make_random(2, 3, 2 * HIDDEN)
    x = make_random(6, LENGTH, WIDTH)  # three beams of two sources
    for layer, row in ((0, 0), (2, 2), (5, 2)):
        ctx = Context({"final": Stream.of(final)}, DecodingCache(6, beams=3)).at("decoder").at(layer).at(0)
        state = final[[0, 0, 0, 1, 1, 1], row]
        expected = decoder.out(decoder.ahead(x, state)[0])
        torch.testing.assert_close(run_steps(decoder, x, ctx), expected)


def test_a_missing_or_unfitting_initial_state_is_refused() -> None:
    decoder, x = build_part(Lstm, initial_state="memory"), make_random(2, 1, WIDTH)
    with pytest.raises(UserError, match="initial_state: no stack before this one has a final state"):
        decoder(x)
    with pytest.raises(UserError, match="initial_state: final states have width 4, this part needs 8"):
        decoder(Stream.of(x), Context({"final": Stream.of(make_random(2, 1, HIDDEN))}))


@every_kind
def test_recurrent_matrices_are_initialised_orthogonal(make: Make) -> None:
    matrices = [value for name, value in make(WIDTH, HIDDEN).named_parameters() if "weight_hh" in name]
    gates = torch.cat([matrix.detach() for matrix in matrices]).unflatten(0, (-1, HIDDEN))  # (G*H, H) -> (G, H, H)
    torch.testing.assert_close(gates @ gates.mT, torch.eye(HIDDEN).expand_as(gates), atol=1e-5, rtol=0)


def test_forget_bias_is_the_initial_bias_of_the_forget_gate() -> None:
    for forget_bias in (0.0, 1.0):
        weights = dict(Lstm(WIDTH, HIDDEN, forget_bias).net.named_parameters())
        total = weights["bias_ih_l0"] + weights["bias_hh_l0"]
        expected = torch.tensor([0.0, forget_bias, 0.0, 0.0]).repeat_interleave(HIDDEN)  # i, f, g, o
        assert torch.equal(total.detach(), expected)


# ---- in a stack ----


def test_outputs_are_projected_only_if_widths_differ() -> None:
    build_ctx = BuildContext(width=8, heads=2, hidden=8)
    for settings, projected in (
        ({}, False),
        ({"hidden": 5}, True),
        ({"bidirectional": True}, True),
        ({"bidirectional": True, "hidden": 4}, False),
    ):
        for kind in KINDS:
            built = PARTS.parse({"kind": kind, **settings}).build(build_ctx)
            assert isinstance(built.out, torch.nn.Linear) == projected
            assert built(torch.zeros(1, 2, 8)).shape == (1, 2, 8)


@pytest.mark.parametrize("kind", KINDS)
def test_mistakes_are_named(kind: str) -> None:
    causal = BuildContext(width=8, heads=2, hidden=8, causal=True)
    with pytest.raises(UserError, match="bidirectional: this stack must not see the future"):
        PARTS.parse({"kind": kind, "bidirectional": True}).build(causal)
    with pytest.raises(UserError, match="initial_state: a bidirectional part starts from zeros"):
        PARTS.parse({"kind": kind, "bidirectional": True, "initial_state": "memory"}).build(
            BuildContext(width=8, heads=2, hidden=8)
        )
    with pytest.raises(UserError, match=r"hidden: .*greater than or equal to 0"):
        validate(PARTS[kind], {"hidden": -1})


def test_an_lstm_in_a_transformer_decoder() -> None:
    layers = [[{"kind": "lstm"}, {"kind": "attention", "attend_to": "memory"}, {"kind": "mlp"}]]
    model = headwise.build("transformer-tiny", vocab=11, decoder={"depth": 2, "layers": layers}).double().eval()
    source, target = torch.tensor([[4, 5, 6], [7, 2, 0]]), torch.tensor([[1, 8, 9], [1, 5, 5]])
    state, logits = model.start(source), []
    for tokens in target.unbind(1):
        out, state = model.step(tokens, state)
        logits.append(out)
    torch.testing.assert_close(torch.stack(logits, dim=1), model(source, target))


def test_parts_without_residual_run_one_after_the_other() -> None:
    one, two = build_part(Gru, hidden=WIDTH), build_part(Elman, hidden=WIDTH)
    chain, x = NoResidual([one, two], torch.nn.Identity, lambda: ResidualAdd(0.5)), make_random(2, LENGTH, WIDTH)
    assert not chain.has_final_norm and not list(chain.norms.parameters())
    assert (chain(Stream.of(x), Context()).x == 0).any()  # dropped while training
    torch.testing.assert_close(chain.eval()(Stream.of(x), Context()).x, two(one(x)))
