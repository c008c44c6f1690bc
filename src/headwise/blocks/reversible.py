"""Reversible layers: activations are computed back from the outputs instead of being kept (Kitaev et al. 2020,
section 3, after Gomez et al. 2017).

The stream carries two halves in its channels. A part f with its norm takes a step (a, b) -> (b, a + f(norm(b))), whose
inputs are told by its outputs: a = c - f(norm(b)). Two steps are the paper's layer, y1 = x1 + Attention(x2) and
y2 = x2 + FeedForward(y1); a decoder's third part is one more step.

In the backward pass each step computes its f once more, and leaves its inputs where the step before it finds them. So
of all layers of a call there is one pair of halves at any time, whatever the depth.

DISCREPANCY: floating-point numbers do not add up quite exactly, neither here nor in the released codes: in float32 the
inputs are recovered to about 1e-6. Hash buckets of recovered inputs may differ, so they are saved (`SAVED_CHOICES`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.utils.checkpoint import get_device_states, set_device_states

from headwise.blocks.residual import ResidualAdd, Wiring, WiringConfig
from headwise.blocks.stream import NO_CACHE, NO_RECORD, NO_SIDE, Context, LayerPath, SideOutputs, Stream

SAVED_CHOICES = "notes"  # where in `Context.shared` a part finds what it chose when it was computed before, by place
LOSS = "aux"  # side outputs that are learnt from


class Reversible(Wiring):
    """Reversible layers: (a, b) -> (b, a + f(norm(b))) for each part f; the last norm is over both halves."""

    closes = True

    def __init__(
        self, parts: Sequence[nn.Module], norm: Callable[[], nn.Module], add: Callable[[], nn.Module] = ResidualAdd
    ):
        super().__init__(parts, norm, add)
        self.width = len(self.norms[0].get_parameter("weight"))

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        if stream.x.shape[-1] == self.width:  # what the first layer reads
            stream = stream.with_x(torch.cat((stream.x, stream.x), dim=-1))
        again = torch.is_grad_enabled() and ctx.cache is NO_CACHE  # what is carried over is not there a second time
        for index, (part, norm, add) in enumerate(zip(self.parts, self.norms, self.adds, strict=True)):
            branch, here = Branch(part, norm, add.get_submodule("drop")), ctx.at(index)
            stream = stream.with_x(reversibly(branch, stream, here) if again else step(branch, stream, here))
        return stream


class ReversibleMean(Reversible):
    """The same, with the mean of both halves before the last norm: for heads that are as wide as the model."""

    @classmethod
    def close(cls, norm: Callable[[], nn.Module]) -> nn.Module | None:
        return nn.Sequential(Mean(), norm())


class Mean(nn.Module):
    """(a + b) / 2: (B, T, 2C) -> (B, T, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(x.chunk(2, dim=-1)).mean(0)


class Branch(nn.Module):
    """dropout(f(norm(x))). It owns nothing: it lends a name to all weights that a step uses."""

    def __init__(self, part: nn.Module, norm: nn.Module, drop: nn.Module):
        super().__init__()
        self.part, self.norm, self.drop = part, norm, drop

    def forward(self, stream: Stream, ctx: Context) -> Tensor:
        return self.drop(self.part(stream.with_x(self.norm(stream.x)), ctx))


def step(branch: Branch, stream: Stream, ctx: Context) -> Tensor:
    a, b = stream.x.chunk(2, dim=-1)  # (B, T, 2C) -> 2 x (B, T, C)
    return torch.cat((b, a + branch(stream.with_x(b), ctx)), dim=-1)


def reversibly(branch: Branch, stream: Stream, ctx: Context) -> Tensor:
    """`step`, of which nothing is kept for the gradient."""
    journey = ctx.shared.get(Journey)
    if journey is None or not journey.arrived_with(stream.x):
        journey = ctx.shared[Journey] = Journey()
    weights = dict(branch.named_parameters())
    memory = {name: seen.x for name, seen in ctx.memory.items()}
    places = stream.with_x(stream.x.new_empty(0))  # without the activations
    run = Run(branch, places, ctx, tuple(weights), tuple(memory), journey, replaying(stream.x, branch.training))
    x, *losses = Step.apply(run, stream.x, *weights.values(), *memory.values())
    for loss in losses:
        ctx.side.add(LOSS, ctx.path, loss)
    return x


@dataclass(slots=True)
class Journey:
    """Where a call is: how many steps it has taken, and what the last of them gave. On the way back, likewise."""

    steps: int = 0
    x: Tensor | None = None
    shared: dict[Any, Any] = field(default_factory=dict)

    def arrived_with(self, x: Tensor) -> bool:
        """Whether nothing was done to what the last step gave."""
        return self.x is not None and self.x.data_ptr() == x.data_ptr()

    def back(self, steps: int) -> Tensor:
        """What the last of so many steps gave."""
        if self.x is None or self.steps != steps:
            raise RuntimeError(
                "reversible layers go back once, from the last to the first: take gradients of the stack's outputs, "
                "in one backward pass"
            )
        return self.x


@dataclass(slots=True)
class Run:
    """One step of one call, and all that it takes to do it again."""

    branch: Branch
    places: Stream
    ctx: Context
    weights: tuple[str, ...]
    memory: tuple[str, ...]
    journey: Journey
    replay: Callable[[], AbstractContextManager[object]]
    number: int = 0
    notes: dict[Any, Any] = field(default_factory=dict)

    def first(self, b: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The branch and its side losses."""
        side, shared = Losses(self.ctx.side), self.journey.shared
        shared[SAVED_CHOICES] = self.notes
        ctx = Context(self.ctx.memory, NO_CACHE, side, self.ctx.record, self.ctx.path, shared)
        return self.branch(self.places.with_x(b), ctx), side.found

    def again(self, b: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The same with the same random numbers, unheard; `tensors` stand for weights and memories."""
        weights = dict(zip(self.weights, tensors, strict=False))
        memories = zip(self.memory, tensors[len(weights) :], strict=True)
        side = Losses(NO_SIDE)
        ctx = Context(
            {name: self.ctx.memory[name].with_x(x) for name, x in memories},
            NO_CACHE,
            side,
            NO_RECORD,
            self.ctx.path,
            # Shared with nobody: what others computed has no gradient here.
            {SAVED_CHOICES: self.notes},
        )
        with self.replay():
            return functional_call(self.branch, weights, (self.places.with_x(b), ctx)), side.found


class Losses(SideOutputs):
    """Keeps what is learnt from, to which gradients come from outside the step, and passes the rest on."""

    def __init__(self, onward: SideOutputs):
        self.onward = onward
        self.found: list[Tensor] = []

    def add(self, name: str, path: LayerPath, value: Any) -> None:
        if name == LOSS:
            self.found.append(value)
        else:
            self.onward.add(name, path, value)


class Step(torch.autograd.Function):
    """(a, b) -> (b, a + f(b)) and side losses, as a function of the halves, f's weights and the memories it sees."""

    @staticmethod
    def forward(ctx: Any, run: Run, x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        a, b = x.chunk(2, dim=-1)
        branch, losses = run.first(b)
        out = torch.cat((b, a + branch), dim=-1)
        run.journey.steps += 1
        run.number, run.journey.x = run.journey.steps, out.detach()
        ctx.run = run
        ctx.save_for_backward(*tensors)  # which are kept in any case
        return out, *losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *grad_losses: Tensor) -> Any:
        run: Run = ctx.run
        b, c = run.journey.back(run.number).chunk(2, dim=-1)
        grad_b, grad_c = grad.chunk(2, dim=-1)
        needed = ctx.needs_input_grad[2:]
        with torch.enable_grad():
            leaf = b.detach().requires_grad_()
            tensors = [x.detach().requires_grad_(wanted) for x, wanted in zip(ctx.saved_tensors, needed, strict=True)]
            branch, losses = run.again(leaf, tensors)
        ends = [(x, g) for x, g in zip((branch, *losses), (grad_c, *grad_losses), strict=True) if x.requires_grad]
        inputs = [leaf, *(x for x in tensors if x.requires_grad)]
        more, *found = torch.autograd.grad([x for x, _ in ends], inputs, [g for _, g in ends], allow_unused=True)
        run.journey.steps, run.journey.x = run.number - 1, torch.cat((c - branch.detach(), b), dim=-1)
        rest = iter(found)
        grads = [next(rest) if wanted else None for wanted in needed]
        return None, torch.cat((grad_c, grad_b if more is None else grad_b + more), dim=-1), *grads


def replaying(x: Tensor, training: bool) -> Callable[[], AbstractContextManager[object]]:
    """What brings back the present precision and, in training, the present random numbers."""
    kind = x.device.type
    if kind == "meta":
        return nullcontext
    precision = partial(torch.autocast, kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
    if not training:
        return precision
    state, (devices, states) = torch.get_rng_state(), get_device_states(x)

    @contextmanager
    def replay() -> Iterator[None]:
        with torch.random.fork_rng(devices), precision():
            torch.set_rng_state(state)
            set_device_states(devices, states)
            yield

    return replay


class ReversibleConfig(WiringConfig):
    """(a, b) -> (b, a + f(norm(b))): activations are computed back from outputs instead of being kept. In the end both
    halves are put side by side, or their mean is taken."""

    kind: Literal["reversible"] = "reversible"
    join: Literal["concat", "mean"] = "concat"

    @property
    def widens(self) -> int:
        return 2 if self.join == "concat" else 1

    def build(self) -> type[Wiring]:
        return Reversible if self.join == "concat" else ReversibleMean
