"""Residual connections, dropout and stochastic depth; pre-norm and post-norm layers.

A wiring is a layer, `layer(stream, ctx) -> stream`, that owns parts with their norms and residual adds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.decode_step import Function, FunctionStep, Step, calls, identity, to_function
from headwise.blocks.stream import Context, LayerStep, Stream, build_decode_step
from headwise.config.base import Config
from headwise.errors import UserError

LEVELS = 2**16  # of a random 16-bit number


class Dropout(nn.Module, FunctionStep):
    """Dropout: zero each value with probability p and divide the others by 1 - p, in training alone.

    On CPUs torch draws one Bernoulli variable per value, the slowest part of a layer. Here one 64-bit draw serves four
    values with 16 bits each: a third of the time, with p exact to 1/65536. Other devices use F.dropout.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p
        dropped = round(p * LEVELS)
        self.threshold = dropped - LEVELS // 2  # as a signed 16-bit number
        self.scale = LEVELS / (LEVELS - dropped)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        return x * (bits >= self.threshold).to(x.dtype).mul_(self.scale)

    def build_decode_step(self) -> Function:
        return identity

    def extra_repr(self) -> str:
        return f"p={self.p}"


def make_dropout(p: float) -> nn.Module:
    """A dropout; the identity where p is 0."""
    return Dropout(p) if p else nn.Identity()


class DropPath(nn.Module, FunctionStep):
    """Stochastic depth (Huang et al. 2016): zero the residual branch of a row with probability p, and divide that of
    the others by 1 - p."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training:
            return branch
        shape = (len(branch), *(1,) * (branch.dim() - 1))  # one draw per row
        return branch * branch.new_empty(shape).bernoulli_(1 - self.p).div_(1 - self.p)

    def build_decode_step(self) -> Function:
        return identity

    def extra_repr(self) -> str:
        return f"p={self.p}"


class ResidualAdd(nn.Module, FunctionStep):
    """The residual add: x + dropout(f(x)) (He et al. 2016), with stochastic depth where `drop_path` is above 0."""

    def __init__(self, dropout: float = 0.0, drop_path: float = 0.0):
        super().__init__()
        self.drop = make_dropout(dropout)
        if drop_path:
            self.drop = nn.Sequential(self.drop, DropPath(drop_path))

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return x + self.drop(branch)

    def build_decode_step(self) -> Function:
        drop = to_function(self.drop)
        return operator.add if drop is identity else lambda x, branch: x + drop(branch)


class LayerScaleAdd(ResidualAdd):
    """LayerScale (layer scale; Touvron et al. 2021, "Going deeper"): x + diag(gain) f(x), gains begin small."""

    def __init__(self, width: int, initial: float = 1e-5, dropout: float = 0.0, drop_path: float = 0.0):
        super().__init__(dropout, drop_path)
        self.gain = nn.Parameter(torch.full((width,), initial))

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return x + self.drop(self.gain * branch)


class Wiring(nn.Module, LayerStep):
    """A layer: parts one after the other, each with its norm and residual add."""

    has_final_norm = False  # whether a stack of such layers ends with one more norm

    @classmethod
    def build_final_norm(cls, norm: Callable[[], nn.Module]) -> nn.Module | None:
        """The norm after the last layer of a stack of such layers; None: there is none."""
        return norm() if cls.has_final_norm else None

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
        last_mixer = self._find_last_mixer() if ctx.outputs_needed is not None else None
        for index, (part, norm, add) in enumerate(zip(self.parts, self.norms, self.adds, strict=True)):
            needed = ctx.outputs_needed if index == last_mixer else None
            branch = part(stream.with_x(self.normalize_input(stream.x, norm)), ctx.at(index, needed))
            if needed is not None:
                stream, branch = stream.take_first(needed), branch[:, :needed]
            stream = stream.with_x(self.add_residual(stream.x, branch, norm, add))
        return stream

    @calls("normalize_input", "add_residual")
    def build_decode_step(self, ctx: Context) -> Step:
        triples = zip(self.parts, self.norms, self.adds, strict=True)
        steps = [
            (build_decode_step(part, ctx.at(n)), to_function(norm), to_function(add))
            for n, (part, norm, add) in enumerate(triples)
        ]
        normalize_input, add_residual = self.normalize_input, self.add_residual

        def step(x: Tensor, at: Stream) -> Tensor:
            for part, norm, add in steps:
                x = add_residual(x, part(normalize_input(x, norm), at), norm, add)
            return x

        return step

    def normalize_input(self, x: Tensor, norm: Function) -> Tensor:
        """The input of a part."""
        return x

    def add_residual(self, x: Tensor, branch: Tensor, norm: Function, add: Function) -> Tensor:
        """The sum of the residual stream and the branch, the output of a part."""
        return add(x, branch)

    def _find_last_mixer(self) -> int | None:
        """The index of the last part that mixes tokens: after it tokens whose outputs are not needed can be left
        out."""
        mixers = (index for index, part in enumerate(self.parts) if not getattr(part, "by_token", False))
        return max(mixers, default=None)


class PostNorm(Wiring):
    """Post-norm: norm(x + f(x)), as in the Transformer of 2017."""

    def add_residual(self, x: Tensor, branch: Tensor, norm: Function, add: Function) -> Tensor:
        return norm(add(x, branch))


class PreNorm(Wiring):
    """Pre-norm: x + f(norm(x)), with one norm after the last layer: gradients stay flat in depth (Xiong et al.
    2020)."""

    has_final_norm = True

    def normalize_input(self, x: Tensor, norm: Function) -> Tensor:
        return norm(x)


class ResPostNorm(Wiring):
    """Res-post-norm: x + norm(f(x)), so that branches have the same variance at every depth (Liu et al. 2022, section
    3.2)."""

    has_final_norm = True

    def add_residual(self, x: Tensor, branch: Tensor, norm: Function, add: Function) -> Tensor:
        return add(x, norm(branch))


class SandwichNorm(Wiring):
    """Sandwich norm: x + norm'(f(norm(x))), a norm before and one after each part (Ding et al. 2021; Gemma 2)."""

    has_final_norm = True

    def __init__(
        self,
        parts: Sequence[nn.Module],
        norm: Callable[[], nn.Module],
        add: Callable[[], nn.Module] = ResidualAdd,
    ):
        super().__init__(parts, lambda: NormPair(norm(), norm()), add)

    def normalize_input(self, x: Tensor, norm: Function) -> Tensor:
        return norm(x)

    def add_residual(self, x: Tensor, branch: Tensor, norm: Function, add: Function) -> Tensor:
        assert isinstance(norm, NormPair)
        return add(x, norm.after(branch))


class NormPair(nn.Module):
    """The norm before a part, which is its forward, and the one after it."""

    def __init__(self, before: nn.Module, after: nn.Module):
        super().__init__()
        self.before, self.after = before, after

    def forward(self, x: Tensor) -> Tensor:
        return self.before(x)


class ParallelPreNorm(Wiring):
    """Parallel pre-norm: x + f1(norm1(x)) + f2(norm2(x)), attention and feed-forward network side by side (GPT-NeoX,
    Black et al. 2022; after GPT-J, which has one norm for both)."""

    has_final_norm = True

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        last_mixer = self._find_last_mixer() if ctx.outputs_needed is not None else None
        x = stream.x
        for index, (part, norm, add) in enumerate(zip(self.parts, self.norms, self.adds, strict=True)):
            needed = ctx.outputs_needed if index == last_mixer else None
            branch = part(stream.with_x(norm(stream.x)), ctx.at(index, needed))
            if needed is not None:
                stream, x, branch = stream.take_first(needed), x[:, :needed], branch[:, :needed]
            x = add(x, branch)
        return stream.with_x(x)

    def build_decode_step(self, ctx: Context) -> Step:
        triples = zip(self.parts, self.norms, self.adds, strict=True)
        steps = [
            (build_decode_step(part, ctx.at(n)), to_function(norm), to_function(add))
            for n, (part, norm, add) in enumerate(triples)
        ]

        def step(x: Tensor, at: Stream) -> Tensor:
            total = x
            for part, norm, add in steps:
                total = add(total, part(norm(x), at))
            return total

        return step


class NoResidual(Wiring):
    """dropout(f(x)), without residual and norm: stacked recurrent networks (Zaremba et al. 2014)."""

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
    """How parts, norms and residual adds make a layer: `build() -> class`."""

    kind: str

    @property
    def width_factor(self) -> int:
        """Width of a stack's output, in multiples of its input's."""
        return 1

    @property
    def skips_first_norm(self) -> bool:
        """Whether the first part of a stack has no norm."""
        return False

    def build(self) -> type[Wiring]:
        raise UserError(f"{self.kind}: {type(self).__name__} has no build method; write one that returns a class")

    def init_weights(self, model: nn.Module) -> None:
        """Initialise the weights that the wiring has a rule for, after the model's own initialisation."""


class PostNormConfig(WiringConfig):
    """norm(x + f(x))"""

    kind: Literal["post"] = "post"

    def build(self) -> type[Wiring]:
        return PostNorm


class PreNormConfig(WiringConfig):
    """x + f(norm(x))"""

    kind: Literal["pre"] = "pre"
    first_norm: bool = True  # False: the first part of a stack has no norm, as the embeddings have one (ModernBERT)

    @property
    def skips_first_norm(self) -> bool:
        return not self.first_norm

    def build(self) -> type[Wiring]:
        return PreNorm


class ResPostNormConfig(WiringConfig):
    """x + norm(f(x))"""

    kind: Literal["respost"] = "respost"

    def build(self) -> type[Wiring]:
        return ResPostNorm


class SandwichNormConfig(WiringConfig):
    """x + norm'(f(norm(x)))"""

    kind: Literal["sandwich"] = "sandwich"

    def build(self) -> type[Wiring]:
        return SandwichNorm


class ParallelPreNormConfig(WiringConfig):
    """x + f1(norm1(x)) + f2(norm2(x))"""

    kind: Literal["parallel"] = "parallel"

    def build(self) -> type[Wiring]:
        return ParallelPreNorm


class NoResidualConfig(WiringConfig):
    """f(x): no residual, no norm"""

    kind: Literal["none"] = "none"

    def build(self) -> type[Wiring]:
        return NoResidual
