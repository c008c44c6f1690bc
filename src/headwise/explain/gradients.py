"""Why gradients vanish or explode (Hochreiter 1991; Bengio et al. 1994; Pascanu et al. 2013), and what helps.

∂h_T/∂h_t is a product of T - t Jacobians, diag(σ') W each. Its norm (the largest singular value) is measured here by
autograd, in float64, on the parts that models are made of. For an LSTM the state is (h, c); for the residual path the
distance is counted in layers; for attention h_T is the last output and h_t an input.

Letters: R rows, one for each entry of the state, T length, C width, S width of a state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headwise.blocks.attention.multihead import Attention
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.mixers.recurrent import Elman, Lstm, Recurrence
from headwise.blocks.norm import LayerNorm
from headwise.blocks.residual import PreNorm
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError
from headwise.train.optim import clip_and_step

WIDTH = 32
FORGET_BIASES = (1.0, 3.0)  # the usual start of an LSTM's forget bias, and one that training may well find
OVERFLOW_LENGTHS = (10, 100, 300, 1000)  # lengths at which float32 is tried
GROWTH = 1e4  # of gradients in the network that learns: large, yet far from an overflow
STEPS, RATE, CLIP = 40, 0.02, 1.0  # steps, learning rate and norm of the descent with and without clipping

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GradientSettings:
    """How far to look, the scales rho of the orthogonal recurrent matrix, and where to truncate."""

    length: int = 100
    rho: tuple[float, ...] = (0.9, 1.0, 1.1)
    truncate: int = 20

    def __post_init__(self) -> None:
        if not 10 <= self.length <= 1000:
            raise UserError(f"--length {self.length}: must be between 10 and 1000 steps")
        if not 1 <= len(self.rho) <= 4:
            raise UserError(f"--rho: give one to four numbers, not {len(self.rho)}")
        for rho in self.rho:
            if not 0.1 <= rho <= 1.9:
                raise UserError(f"--rho {rho:g}: must be between 0.1 and 1.9, or even float64 overflows")
        if not 1 <= self.truncate < self.length:
            raise UserError(f"--truncate {self.truncate}: must be between 1 and {self.length - 1}, below --length")


@dataclass(frozen=True, eq=False)
class Curve:
    """The gradient norm at each distance, from 0 on, along one path; `setting` is its rho or its forget bias."""

    path: str
    norms: Floats
    setting: float | None = None

    @property
    def name(self) -> str:
        sign = "bias" if self.path == "LSTM" else "ρ"
        return self.path if self.setting is None else f"{self.path}, {sign} {self.setting:g}"


@dataclass(frozen=True, eq=False)
class GradientMeasurements:
    """All curves; the largest gradient in float32 at each length; losses by clipping norm; BPTT cut short."""

    curves: tuple[Curve, ...]
    exploding_rho: float  # the rho with which gradients explode
    overflow: dict[int, float]
    train_length: int  # the length of the network that learns
    losses: dict[float, list[float]]
    truncated: Curve


class Linear(Elman):
    """An Elman network without its activation, h_t = W x_t + b + U h_{t-1} + b': what the closed form is about."""

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        input_weight, recurrent_weight, bias, recurrent_bias = self.net.all_weights[0]
        states = []
        for new in F.linear(x, input_weight, bias + recurrent_bias).unbind(1):  # (B, T, C) -> T x (B, S)
            state = new + F.linear(state, recurrent_weight)
            states.append(state)
        return torch.stack(states, dim=1), state


def scale_recurrence(network: Elman, rho: float) -> Elman:
    """The network in float64, its recurrent matrix rho times orthogonal to that precision."""
    torch.nn.init.orthogonal_(network.double().net.get_parameter("weight_hh_l0"), gain=rho)
    return network


def unroll(recurrence: Recurrence, x: Tensor, truncate: int = 0) -> list[Tensor]:
    """The states (R, S) before the first and after each token of x (T, C), the same in every row.

    With `truncate`, truncated backpropagation through time: counted from the end, the state is detached every
    `truncate` steps, and no gradient passes beyond.
    """
    rows = recurrence.state_width
    state = x.new_zeros(rows, rows).requires_grad_()
    states = [state]
    for step, token in enumerate(x.expand(rows, -1, -1).split(1, dim=1)):  # (T, C) -> T x (R, 1, C)
        if truncate and (len(x) - step) % truncate == 0:
            states[-1] = state = state.detach().requires_grad_()
        state = recurrence(token, state)[1]
        states.append(state)
    return states


def jacobian_norms(states: Sequence[Tensor]) -> Floats:
    """||∂ last / ∂ state|| of each state, the last first: the norm over distance.

    Row i of every state belongs to a copy of the network whose output i is differentiated: all rows of the Jacobians
    come from one backward pass.
    """
    last = states[-1]
    seeds = torch.eye(len(last), dtype=last.dtype).view_as(last)
    gradients = torch.autograd.grad(last, states, seeds, allow_unused=True, materialize_grads=True)
    jacobians = torch.stack(gradients).flatten(2)  # states x (R, ...) -> (states, R, S)
    return torch.linalg.matrix_norm(jacobians, ord=2).flip(0).numpy()


def run_residual_layers(x: Tensor, layers: int) -> list[Tensor]:
    """Streams (R, 1, C) before and after each of `layers` pre-norm residual feed-forward layers."""
    norm = partial(LayerNorm, WIDTH)
    stream = Stream.of(x.expand(WIDTH, 1, -1).clone().requires_grad_())  # (C,) -> (R, 1, C)
    states = [stream.x]
    for _ in range(layers):
        stream = PreNorm([FeedForward(WIDTH, 4 * WIDTH)], norm).double()(stream, Context())
        states.append(stream.x)
    return states


def attention_norms(x: Tensor) -> Floats:
    """The same for one attention layer: its last output by each of its inputs x (T, C)."""
    inputs = x.expand(WIDTH, -1, -1).clone().requires_grad_()  # (T, C) -> (R, T, C)
    last = Attention(WIDTH, heads=4).double()(inputs)[:, -1]
    (gradients,) = torch.autograd.grad(last, inputs, torch.eye(WIDTH, dtype=x.dtype))
    return torch.linalg.matrix_norm(gradients.transpose(0, 1), ord=2).flip(0).numpy()  # (R, T, C) -> (T, R, C) -> (T,)


def largest_float32_gradient(rho: float, length: int) -> float:
    """The largest entry of ∂h_T/∂h_0 in float32 through the linear network: inf or NaN where it overflows."""
    states = unroll(scale_recurrence(Linear(WIDTH, WIDTH), rho).float(), torch.zeros(length, WIDTH))
    (gradients,) = torch.autograd.grad(states[-1], states[0], torch.eye(WIDTH))
    return float(gradients.abs().max())


def train_linear(rho: float, length: int, clip: float, steps: int = STEPS) -> list[float]:
    """Losses mean(h_T²) while the linear network learns to end at zero, in float32, by the training loop's update."""
    torch.manual_seed(0)
    network = scale_recurrence(Linear(WIDTH, WIDTH), rho).float()
    x, start = torch.randn(1, length, WIDTH), torch.zeros(1, WIDTH)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0, fused=True)
    losses = []
    for _ in range(steps + 1):
        loss = network(x, start)[1].square().mean()
        losses.append(float(loss.detach()))
        loss.backward()
        clip_and_step(optimizer, torch.ones(()), RATE, clip)
    return losses


def measure(settings: GradientSettings) -> GradientMeasurements:
    """Measure all curves on the same inputs; the state of torch's random generator is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = torch.randn(settings.length + 1, WIDTH, dtype=torch.float64)
        networks: dict[str, Callable[..., Elman]] = {"linear": Linear, "tanh": Elman}
        curves = [
            Curve(path, jacobian_norms(unroll(scale_recurrence(network(WIDTH, WIDTH), rho), x[1:])), rho)
            for path, network in networks.items()
            for rho in settings.rho
        ]
        curves += [
            Curve("LSTM", jacobian_norms(unroll(Lstm(WIDTH, WIDTH, bias).double(), x[1:])), bias)
            for bias in FORGET_BIASES
        ]
        curves += [
            Curve("residual", jacobian_norms(run_residual_layers(x[0], settings.length))),
            Curve("attention", attention_norms(x)),
        ]
        exploding_rho = max(*settings.rho, 1.1)
        train_length = math.ceil(math.log(GROWTH) / math.log(exploding_rho))
        truncated = unroll(scale_recurrence(Linear(WIDTH, WIDTH), exploding_rho), x[1:], settings.truncate)
        return GradientMeasurements(
            tuple(curves),
            exploding_rho,
            {length: largest_float32_gradient(exploding_rho, length) for length in OVERFLOW_LENGTHS},
            train_length,
            {clip: train_linear(exploding_rho, train_length, clip) for clip in (0.0, CLIP)},
            Curve("linear", jacobian_norms(truncated), exploding_rho),
        )


def to_json(settings: GradientSettings, measured: GradientMeasurements) -> dict[str, Any]:
    """All values of the story, as plain data; null where a number overflowed."""

    def to_list(values: Sequence[float] | Floats) -> list[float | None]:
        return [float(value) if math.isfinite(value) else None for value in values]

    return {
        "length": settings.length,
        "rho": list(settings.rho),
        "norms": [{"path": c.path, "setting": c.setting, "norms": to_list(c.norms)} for c in measured.curves],
        "float32": {
            "rho": measured.exploding_rho,
            "lengths": list(measured.overflow),
            "largest": to_list([*measured.overflow.values()]),
        },
        "clipping": [{"clip": clip, "losses": to_list(losses)} for clip, losses in measured.losses.items()],
        "truncated": {
            "rho": measured.exploding_rho,
            "steps": settings.truncate,
            "norms": to_list(measured.truncated.norms),
        },
    }
