"""S4D: its convolution beside systems that scipy discretises and simulates, its recurrence, and both directions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import signal
from torch import Tensor

from headwise.blocks.cache import DecodingCache
from headwise.blocks.mixers.state_space import DIRECT, DiagonalStateSpace, StateSpaceConfig, StateSpaceMixer
from headwise.blocks.stream import Context, Stream
from headwise.config.base import validate
from headwise.errors import UserError
from headwise.testing import assert_parity, check_part, perturb_parameters
from headwise.train.optim import group_parameters

FORMS = [(init, discretisation) for init in ("lin", "inv") for discretisation in ("zoh", "bilinear")]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build_system(init: Any = "lin", discretisation: Any = "zoh", directions: int = 1) -> DiagonalStateSpace:
    torch.manual_seed(0)
    system = DiagonalStateSpace(3, 8, init=init, discretisation=discretisation, directions=directions)
    return perturb_parameters(system)


def discretise(system: DiagonalStateSpace, channel: int) -> tuple[np.ndarray, np.ndarray]:
    """A_d and B_d of a channel, complex128, as scipy discretises the continuous system."""
    pairs = system.pairs
    weights = {name: tensor.detach().numpy() for name, tensor in system.named_parameters()}
    rows = slice(channel * pairs, (channel + 1) * pairs)
    a = np.diag(-np.exp(weights["log_decay"][rows]) + 1j * weights["frequency"][rows])
    continuous = (a, np.ones((pairs, 1)), np.ones((1, pairs)), np.zeros((1, 1)))
    return signal.cont2discrete(continuous, float(np.exp(weights["log_step"][channel])), system.discretisation)[:2]


def simulate(system: DiagonalStateSpace, u: Tensor, direction: int = 0) -> Tensor:
    """The recurrence x_t = A_d x_{t-1} + B_d u_t, y_t = 2 Re(c x_t), a token after the other: (T, C) -> (T, C)."""
    out = np.zeros(u.shape)
    for channel in range(u.shape[1]):
        a, b = discretise(system, channel)
        c = system.output[direction, channel].detach().numpy() @ np.array([1, 1j])
        state = np.zeros(system.pairs, dtype=np.complex128)
        for t, value in enumerate(u[:, channel].tolist()):
            state = a @ state + b[:, 0] * value
            out[t, channel] = 2 * (c @ state).real
    return torch.from_numpy(out)


@pytest.mark.parametrize(("init", "discretisation"), FORMS)
@pytest.mark.parametrize("length", [1, 13, DIRECT, DIRECT + 7])
@torch.no_grad()
def test_the_convolution_is_the_recurrence(length: int, init: str, discretisation: str) -> None:
    system, u = build_system(init, discretisation), draw(1, length, 3)
    assert_parity(system.convolve(u)[0], simulate(system, u[0]) + system.skip * u[0], 1e-9)


@torch.no_grad()
def test_a_decoder_is_the_discrete_system_that_scipy_simulates() -> None:
    """dlsim has real systems, x_{t+1} = A x_t + B u_t: pairs of conjugates are rotations with real matrices, and the
    output is read from the state after the token."""
    system, u = build_system(), draw(1, 90, 3)
    expected = np.zeros((90, 3))
    for channel in range(3):
        a, b = discretise(system, channel)
        blocks = [np.array([[z.real, -z.imag], [z.imag, z.real]]) for z in np.diag(a)]
        real_a, real_b = np.kron(np.eye(system.pairs), np.zeros((2, 2))), np.stack((b[:, 0].real, b[:, 0].imag), 1)
        for n, block in enumerate(blocks):
            real_a[2 * n : 2 * n + 2, 2 * n : 2 * n + 2] = block
        c = system.output[0, channel].numpy() * np.array([2.0, -2.0])  # 2 Re(c x)
        c_row, b_column = c.reshape(1, -1), real_b.reshape(-1, 1)
        feedthrough = c_row @ b_column + system.skip[channel].item()
        _, y, _ = signal.dlsim((real_a, b_column, c_row @ real_a, feedthrough, 1.0), u[0, :, channel].numpy())
        expected[:, channel] = y[:, 0]
    assert_parity(system.convolve(u)[0], torch.from_numpy(expected), 1e-9)


@torch.no_grad()
def test_the_discretised_system_is_that_of_scipy() -> None:
    for init, discretisation in FORMS:
        system = build_system(init, discretisation)
        log_a, b = system.discretise()
        for channel in range(3):
            a_of_scipy, b_of_scipy = discretise(system, channel)
            assert np.allclose(log_a.exp()[channel].numpy(), np.diag(a_of_scipy))
            assert np.allclose(b[channel].numpy(), b_of_scipy[:, 0])


@pytest.mark.parametrize("length", [13, DIRECT + 7])
@torch.no_grad()
def test_an_encoder_adds_the_opposite_direction_from_the_next_token_on(length: int) -> None:
    system, u = build_system(directions=2), draw(1, length, 3)
    ahead = simulate(system, u[0])
    back = simulate(system, u[0].flip(0), direction=1).flip(0)
    expected = ahead + system.skip * u[0]
    expected[:-1] += back[1:]
    assert_parity(system.convolve(u)[0], expected, 1e-9)


@torch.no_grad()
def test_decoding_in_steps_of_any_size_equals_one_pass() -> None:
    torch.manual_seed(0)
    part = perturb_parameters(StateSpaceMixer(3, build_system()))
    x, cache, outs, start = draw(2, 120, 3), DecodingCache(2), [], 0
    for size in (DIRECT + 9, 1, 1, 7, 38):
        outs.append(part(Stream.of(x[:, start : start + size], start=start), Context(cache=cache)))
        assert [state.shape for state in cache.states.values()] == [(2, 3, 4, 2)] and not cache.growing
        start += size
    assert_parity(torch.cat(outs, 1), part(x), 1e-9)


@torch.no_grad()
def test_later_tokens_change_long_texts_by_no_more_than_rounding() -> None:
    system, u = build_system(), draw(1, 4 * DIRECT, 3)
    edited = u.clone()
    edited[:, DIRECT:] = draw(1, 3 * DIRECT, 3, seed=1)
    assert_parity(system.convolve(edited)[:, :DIRECT], system.convolve(u)[:, :DIRECT], 1e-12)


@torch.no_grad()
def test_the_mixer_is_glu_of_gelu_of_the_system() -> None:
    part, x = StateSpaceMixer(3, build_system()).double(), draw(1, 9, 3)
    y = simulate(part.system, x[0]) + part.system.skip * x[0]
    value, gate = (part.out(0.5 * y * (1 + torch.erf(y / math.sqrt(2))))).chunk(2, -1)
    assert_parity(part(x)[0], value * gate.sigmoid(), 1e-9)


def test_initial_frequencies_are_those_of_the_paper() -> None:
    lin, inv = (DiagonalStateSpace(2, 8, init=init).frequency.view(2, 4)[1].tolist() for init in ("lin", "inv"))
    assert lin == pytest.approx([0, math.pi, 2 * math.pi, 3 * math.pi])
    assert inv == pytest.approx([8 / math.pi * (8 / (2 * n + 1) - 1) for n in range(4)])


def test_decays_frequencies_and_steps_have_no_weight_decay() -> None:
    system = DiagonalStateSpace(2, 8)
    decayed, others = group_parameters(system, 0.1, False, {})
    assert [id(weight) for weight in decayed["params"]] == [id(system.output)]
    assert len(others["params"]) == 4 and not others["weight_decay"]


def test_sizes_that_cannot_be_built_are_refused() -> None:
    with pytest.raises(UserError, match="3 states are no pairs of complex conjugates; use an even number"):
        validate(StateSpaceConfig, {"state": 3})
    with pytest.raises(UserError, match=r"a `min_step` of 0.5 exceeds `max_step` = 0.1; lower it"):
        validate(StateSpaceConfig, {"min_step": 0.5})


def test_default_steps_are_what_the_part_declares() -> None:
    """With steps down to 0.001 it forgets over thousands of tokens."""
    check_part(StateSpaceConfig())
