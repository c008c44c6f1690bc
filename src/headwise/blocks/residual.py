"""Wirings: how parts, norms, residual adds and dropout make a layer.

A wiring is a layer, `layer(stream, ctx) -> stream`, that owns a tuple of parts with their norms.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.step import Function, FunctionStep, Step, calls, identity, inline
from headwise.blocks.stream import Context, LayerStep, Stream, make_step
from headwise.config.base import Config

STEPS = 2**16


class Dropout(nn.Module, FunctionStep):
    """Dropout: zero each value with probability p and divide the others by 1 - p, in training alone.

    On CPUs torch draws one Bernoulli variable a value, the slowest part of a layer. Here one 64-bit draw serves four
    values with 16 bits each: a third of the time, with p exact to 1/65536. Other devices take torch's own.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p
        dropped = round(p * STEPS)
        self.threshold = dropped - STEPS // 2  # among the signed 16-bit numbers
        self.scale = STEPS / (STEPS - dropped)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        return x * (bits >= self.threshold).to(x.dtype).mul_(self.scale)

    def stepper(self) -> Function:
        return identity

    def extra_repr(self) -> str:
        return f"p={self.p}"


def make_dropout(p: float) -> nn.Module:
    """A dropout, or nothing at all where p is 0."""
    return Dropout(p) if p else nn.Identity()


class DropPath(nn.Module, FunctionStep):
    """Leave out the whole branch of some rows, and divide that of the others by the share that stays: stochastic depth
    (Huang et al. 2016)."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training:
            return branch
        shape = (len(branch), *(1,) * (branch.dim() - 1))  # one draw a row
        return branch * branch.new_empty(shape).bernoulli_(1 - self.p).div_(1 - self.p)

    def stepper(self) -> Function:
        return identity

    def extra_repr(self) -> str:
        return f"p={self.p}"


class ResidualAdd(nn.Module, FunctionStep):
    """The residual add: x + dropout(f(x)) (He et al. 2016), of some rows x alone in training."""

    def __init__(self, dropout: float = 0.0, drop_path: float = 0.0):
        super().__init__()
        self.drop = make_dropout(dropout)
        if drop_path:
            self.drop = nn.Sequential(self.drop, DropPath(drop_path))

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return x + self.drop(branch)

    def stepper(self) -> Function:
        drop = inline(self.drop)
        return operator.add if drop is identity else lambda x, branch: x + drop(branch)


class LayerScaleAdd(ResidualAdd):
    """LayerScale (layer scale; Touvron et al. 2021, "Going deeper"): x + diag(gain) f(x), with small gains at first."""

    def __init__(self, width: int, initial: float = 1e-5, dropout: float = 0.0, drop_path: float = 0.0):
        super().__init__(dropout, drop_path)
        self.gain = nn.Parameter(torch.full((width,), initial))

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return x + self.drop(self.gain * branch)


class Wiring(nn.Module, LayerStep):
    """Parts in a row, each with a norm and an add of its own."""

    closes = False  # whether a stack of such layers ends with one more norm

    @classmethod
    def close(cls, norm: Callable[[], nn.Module]) -> nn.Module | None:
        """What a stack of such layers ends with."""
        return norm() if cls.closes else None

    def __init__(
        self,
        parts: Sequence[nn.Module],
        norm: Callable[[], nn.Module],
        add: Callable[[], nn.Module] = ResidualAdd,
    ):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.norms = nn.ModuleList(norm() for _ in parts)
        self.adds = nn.ModuleList(add() for _ in parts)

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        cut = self._last_mixer() if ctx.outputs_needed is not None else None
        for index, (part, norm, add) in enumerate(zip(self.parts, self.norms, self.adds, strict=True)):
            asked = ctx.outputs_needed if index == cut else None
            branch = part(stream.with_x(self.normalize_input(stream.x, norm)), ctx.at(index, asked))
            if asked is not None:
                stream, branch = stream.take_first(asked), branch[:, :asked]
            stream = stream.with_x(self.add_residual(stream.x, branch, norm, add))
        return stream

    @calls("normalize_input", "add_residual")
    def stepper(self, ctx: Context) -> Step:
        triples = zip(self.parts, self.norms, self.adds, strict=True)
        steps = [(make_step(part, ctx.at(n)), inline(norm), inline(add)) for n, (part, norm, add) in enumerate(triples)]
        normalize_input, add_residual = self.normalize_input, self.add_residual

        def step(x: Tensor, at: Stream) -> Tensor:
            for part, norm, add in steps:
                x = add_residual(x, part(normalize_input(x, norm), at), norm, add)
            return x

        return step

    def normalize_input(self, x: Tensor, norm: Function) -> Tensor:
        """What a part reads."""
        return x

    def add_residual(self, x: Tensor, branch: Tensor, norm: Function, add: Function) -> Tensor:
        """What went before a part and what it gave, together."""
        return add(x, branch)

    def _last_mixer(self) -> int | None:
        """The last part in which tokens meet: after it those that nobody reads can be left out."""
        mixers = (index for index, part in enumerate(self.parts) if not getattr(part, "by_token", False))
        return max(mixers, default=None)


class PostNorm(Wiring):
    """Post-norm: norm(x + f(x)): the 2017 form."""

    def add_residual(self, x: Tensor, branch: Tensor, norm: Function, add: Function) -> Tensor:
        return norm(add(x, branch))


class PreNorm(Wiring):
    """Pre-norm: x + f(norm(x)), with one norm after the last layer: gradients stay flat in depth (Xiong et al.
    2020)."""

    closes = True

    def normalize_input(self, x: Tensor, norm: Function) -> Tensor:
        return norm(x)


class ResPostNorm(Wiring):
    """x + norm(f(x)): what is added to the residual path has one size at every depth (Liu et al. 2022, section 3.2)."""

    closes = True

    def add_residual(self, x: Tensor, branch: Tensor, norm: Function, add: Function) -> Tensor:
        return add(x, norm(branch))


class NoResidual(Wiring):
    """dropout(f(x)), no residual and no norm: recurrent stacks before residuals (Zaremba et al. 2014)."""

    def __init__(
        self,
        parts: Sequence[nn.Module],
        norm: Callable[[], nn.Module] = nn.Identity,
        add: Callable[[], ResidualAdd] = ResidualAdd,
    ):
        super().__init__(parts, nn.Identity, lambda: add().drop)

    def add_residual(self, x: Tensor, branch: Tensor, norm: Function, add: Function) -> Tensor:
        return add(branch)


class WiringConfig(Config):
    """How parts make a layer: `build() -> class`. A stack of such layers gives `widens` times the channels it takes."""

    kind: str

    @property
    def widens(self) -> int:
        return 1

    def build(self) -> type[Wiring]:
        raise TypeError(f"{type(self).__name__} has no build method")


class PostNormConfig(WiringConfig):
    """norm(x + f(x))"""

    kind: Literal["post"] = "post"

    def build(self) -> type[Wiring]:
        return PostNorm


class PreNormConfig(WiringConfig):
    """x + f(norm(x))"""

    kind: Literal["pre"] = "pre"

    def build(self) -> type[Wiring]:
        return PreNorm


class ResPostNormConfig(WiringConfig):
    """x + norm(f(x))"""

    kind: Literal["respost"] = "respost"

    def build(self) -> type[Wiring]:
        return ResPostNorm


class NoResidualConfig(WiringConfig):
    """f(x): no residual, no norm"""

    kind: Literal["none"] = "none"

    def build(self) -> type[Wiring]:
        return NoResidual
