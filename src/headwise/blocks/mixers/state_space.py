"""S4D, a diagonal state space model as a mixer (Gu et al. 2022, "On the Parameterization and Initialization of Diagonal
State Space Models"; after S4, Gu et al. 2022, "Efficiently Modeling Long Sequences with Structured State Spaces").

Each channel u has a linear system with N complex states x and a diagonal A, discretised with its own step d:

    x' = A x + u,  y = 2 Re(c x) + D u    ->    x_t = A_d x_{t-1} + B_d u_t,  y_t = 2 Re(c x_t) + D u_t

    zoh         A_d = exp(d A),  B_d = (exp(d A) - 1) / A
    bilinear    A_d = (1 + d A / 2) / (1 - d A / 2),  B_d = d / (1 - d A / 2)

In training y is the convolution of u with the kernel K_l = 2 Re(sum_n c_n B_d,n A_d,n^l), a product with a Vandermonde
matrix; in decoding the recurrence is computed. An encoder has a second c for the opposite direction, from the next
token on. The output is glu(W gelu(y)).

The convolution is an FFT from `DIRECT` tokens on, whose rounding reaches earlier outputs, too; shorter texts are
multiplied with a Toeplitz matrix, where later tokens have no effect at all.

Letters: B rows, T length, C width, N state pairs (half of `state`: the others are complex conjugates), K directions.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from headwise.blocks.mixers.linear import disable_autocast
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import NO_CACHE, Context, Part, Properties, Stream

Init = Literal["lin", "inv"]
Discretisation = Literal["zoh", "bilinear"]
DIRECT = 64  # tokens up to which the convolution is a matrix product, which is faster there


class DiagonalStateSpace(nn.Module):
    """Diagonal state space model: a linear system of N complex states for each channel (S4D)."""

    def __init__(
        self,
        width: int,
        state: int = 64,
        *,
        init: Init = "lin",
        discretisation: Discretisation = "zoh",
        step_range: tuple[float, float] = (0.001, 0.1),
        directions: int = 1,
    ):
        super().__init__()
        pairs = state // 2
        self.width, self.pairs, self.discretisation = width, pairs, discretisation
        low, high = (math.log(step) for step in step_range)
        self.log_step = nn.Parameter(low + (high - low) * torch.rand(width))
        # A as vectors: the optimisers' weight decay, which is for matrices, would pull decays and frequencies to one
        self.log_decay = nn.Parameter(torch.full((width * pairs,), math.log(0.5)))
        self.frequency = nn.Parameter(init_frequency(init, state).repeat(width))
        self.output = nn.Parameter(torch.randn(directions, width, pairs, 2) * 0.5**0.5)  # c, real and imaginary part
        self.skip = nn.Parameter(torch.randn(width))  # D

    def discretise(self) -> tuple[Tensor, Tensor]:
        """log A_d and B_d, both complex (C, N)."""
        continuous = torch.complex(-self.log_decay.exp(), self.frequency).view(self.width, self.pairs)
        step = self.log_step.exp().unsqueeze(-1)  # (C, 1)
        if self.discretisation == "zoh":
            return step * continuous, (torch.exp(step * continuous) - 1) / continuous
        half = step * continuous / 2
        return torch.log((1 + half) / (1 - half)), step / (1 - half)

    def compute_kernel(self, length: int) -> Tensor:
        """K_l for l < length, in each direction: (K, C, length).

        With l = a s + b the Vandermonde matrix is a product of the powers of A_d^s and of A_d: two matrices of about
        sqrt(length) columns instead of one with all.
        """
        log_a, b = self.discretise()
        side = math.isqrt(length - 1) + 1
        fine = raise_to(log_a, torch.arange(side, device=b.device))  # (C, N, s)
        coarse = raise_to(log_a, side * torch.arange(-(-length // side), device=b.device))
        weights = torch.view_as_complex(self.output) * b  # (K, C, N)
        kernel = 2 * ((weights.unsqueeze(-1) * coarse).mT @ fine).real  # (K, C, a, N) @ (C, N, s)
        return kernel.flatten(2)[..., :length]

    def convolve(self, u: Tensor) -> Tensor:
        """Outputs of all tokens from a state of zero: (B, T, C) -> (B, T, C)."""
        length = u.shape[1]
        kernel = self.compute_kernel(length)
        opposite = kernel[1] if len(kernel) > 1 else torch.zeros_like(kernel[0])
        lags = torch.cat((opposite.flip(-1), kernel[0]), -1)  # (C, 2T): of distances -T ... T-1
        if length <= DIRECT:
            place = torch.arange(length, device=u.device)
            matrix = lags[:, place.unsqueeze(-1) - place + length]  # (C, T, T), Toeplitz
            mixed = matrix @ u.permute(2, 1, 0)  # (C, T, T) @ (C, T, B)
            return torch.addcmul(mixed.permute(2, 1, 0), u, self.skip)
        spectrum = torch.fft.rfft(lags.roll(length, -1)) * torch.fft.rfft(u.mT, n=2 * length)  # (B, C, T+1)
        return torch.addcmul(torch.fft.irfft(spectrum, n=2 * length)[..., :length].mT, u, self.skip)

    def init_state(self, u: Tensor) -> Tensor:
        """The state before the first token: zeros, real and imaginary parts, (B, C, N, 2)."""
        return u.new_zeros(u.shape[0], self.width, self.pairs, 2)

    def recur(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The recurrence for one token: (B, 1, C) and the state before it -> (B, 1, C) and the state after it."""
        log_a, b = self.discretise()
        new = log_a.exp() * torch.view_as_complex(state) + b * u.squeeze(1).unsqueeze(-1)  # (B, C, N)
        y = 2 * (torch.view_as_complex(self.output[0]) * new).sum(-1).real + self.skip * u.squeeze(1)
        return y.unsqueeze(1), torch.view_as_real(new)

    def resume(self, u: Tensor, state: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        """The effect (B, T, C) of an earlier state on the outputs of these tokens, and the state after the last real
        one."""
        log_a, b = self.discretise()
        before, length = torch.view_as_complex(state), u.shape[1]
        place = torch.arange(length, device=u.device)
        weights = torch.view_as_complex(self.output[0]) * before  # (B, C, N)
        later = 2 * (weights.unsqueeze(-2) @ raise_to(log_a, place + 1)).squeeze(-2).real  # (B, C, 1, N) @ (C, N, T)
        count = torch.full((1,), length, device=u.device) if keep is None else keep.sum(1)  # (1,) or (B,)
        if keep is not None:  # move the last real token of each row to the last column
            source = place - (length - count).unsqueeze(-1)  # (B, T)
            u = u.gather(1, source.clamp(min=0).unsqueeze(-1).expand_as(u)) * (source >= 0).unsqueeze(-1)
        sums = raise_to(log_a, length - 1 - place) @ u.permute(2, 1, 0).to(log_a.dtype)  # (C, N, T) @ (C, T, B)
        aged = torch.exp(log_a * count.view(-1, 1, 1)) * before
        return later.mT, torch.view_as_real(aged + b * sums.permute(2, 0, 1))


class StateSpaceMixer(Part):
    """S4D as a mixer: glu(W gelu(y)), with y of a diagonal state space model; in both directions in an encoder. A
    decoder's state has constant size.

    >>> StateSpaceMixer(16, DiagonalStateSpace(16))(torch.zeros(2, 10, 16)).shape
    torch.Size([2, 10, 16])
    """

    def __init__(self, width: int, system: DiagonalStateSpace, bias: bool = True, dropout: float = 0.0):
        super().__init__()
        self.system = system
        self.causal = len(system.output) == 1
        self.drop = make_dropout(dropout)
        self.out = nn.Linear(width, 2 * width, bias)

    @property
    def properties(self) -> Properties:
        causal = self.causal
        return Properties(causal=causal, steppable=causal, joins=causal, ragged=causal, unbounded=causal)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        x = stream.x
        with disable_autocast(x):  # powers up to the length need more than 16 bits
            u = x.to(torch.promote_types(x.dtype, torch.float32))
            if stream.keep is not None:
                u = u.masked_fill(~stream.keep.unsqueeze(-1), 0.0)
            y = self.run(u, stream, ctx).to(x.dtype)
        return F.glu(self.out(self.drop(F.gelu(y))), dim=-1)  # (B, T, C) -> (B, T, 2C) -> (B, T, C)

    def run(self, u: Tensor, stream: Stream, ctx: Context) -> Tensor:
        """Outputs of the system, and its state in the cache: (B, T, C) -> (B, T, C)."""
        if ctx.cache is NO_CACHE or not self.causal:  # a state would cost a quarter of the layer's products
            return self.system.convolve(u)
        state = ctx.cache.get_state(ctx.path, lambda: self.system.init_state(u))
        if u.shape[1] == 1 and stream.keep is None:
            y, state = self.system.recur(u, state)
        else:
            later, state = self.system.resume(u, state, stream.keep)
            y = self.system.convolve(u) + later
        ctx.cache.put_state(ctx.path, state)
        return y


def raise_to(log_a: Tensor, exponent: Tensor) -> Tensor:
    """A_d^exponent: (C, N) and (T,) -> (C, N, T)."""
    return torch.exp(log_a.unsqueeze(-1) * exponent)


def init_frequency(init: Init, state: int) -> Tensor:
    """Imaginary parts of A, (N,), of which the real parts are -1/2: S4D-Lin pi n, S4D-Inv (M / pi) (M / (2n + 1) - 1)
    with M = 2N states (Gu et al. 2022, eqs. 8 and 9)."""
    n = torch.arange(state // 2)
    return math.pi * n if init == "lin" else state / math.pi * (state / (2 * n + 1) - 1)


class StateSpaceConfig(PartConfig):
    """S4D: a diagonal state space model for each channel (Gu et al. 2022)."""

    kind: Literal["s4d"] = "s4d"
    state: int = Field(64, ge=2)  # states of each channel, an even number: pairs of complex conjugates
    init: Init = "lin"  # of the frequencies: S4D-Lin or S4D-Inv
    discretisation: Discretisation = "zoh"
    min_step: float = Field(0.001, gt=0)  # steps are drawn between these, uniform in their logarithm
    max_step: float = Field(0.1, gt=0)

    @model_validator(mode="after")
    def _check(self) -> StateSpaceConfig:
        if self.state % 2:
            raise ValueError(f"{self.state} states are no pairs of complex conjugates; use an even number")
        if self.min_step > self.max_step:
            raise ValueError(f"a `min_step` of {self.min_step} exceeds `max_step` = {self.max_step}; lower it")
        return self

    def build(self, build_ctx: BuildContext) -> nn.Module:
        system = DiagonalStateSpace(
            build_ctx.width,
            self.state,
            init=self.init,
            discretisation=self.discretisation,
            step_range=(self.min_step, self.max_step),
            directions=1 if build_ctx.causal else 2,
        )
        return StateSpaceMixer(build_ctx.width, system, build_ctx.mlp_bias, build_ctx.hidden_dropout)
