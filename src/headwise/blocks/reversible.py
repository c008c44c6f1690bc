"""Reversible layers: activations are recomputed from the outputs instead of stored (Kitaev et al. 2020, "Reformer",
section 3, after Gomez et al. 2017, "The Reversible Residual Network").

The stream carries two halves in its channels. A part f with its norm is a step (a, b) -> (b, a + f(norm(b))), whose
inputs follow from its outputs (b, c): a = c - f(norm(b)). Two steps are the paper's layer, y1 = x1 + Attention(x2) and
y2 = x2 + FeedForward(y1); a decoder's third part is one more step.

In the backward pass each step recomputes f and its inputs, which are the outputs of the step before. So one pair of
halves is in memory at any time, whatever the depth.

DISCREPANCY: floating-point addition is not exactly invertible, neither here nor in the released codes: in float32
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

SAVED_CHOICES = "saved choices"  # key of `Context.shared`: discrete choices of a part in the forward pass, by path
LOSS = "aux"  # side output with losses


class Reversible(Wiring):
    """Reversible layers: (a, b) -> (b, a + f(norm(b))) for each part f; the last norm is over both halves."""

    has_final_norm = True

    def __init__(
        self, parts: Sequence[nn.Module], norm: Callable[[], nn.Module], add: Callable[[], nn.Module] = ResidualAdd
    ):
        super().__init__(parts, norm, add)
        self.width = len(self.norms[0].get_parameter("weight"))

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        if stream.x.shape[-1] == self.width:  # the first layer's inputs
            stream = stream.with_x(torch.cat((stream.x, stream.x), dim=-1))
        recompute = torch.is_grad_enabled() and ctx.cache is NO_CACHE  # a cache cannot be replayed
        for index, (part, norm, add) in enumerate(zip(self.parts, self.norms, self.adds, strict=True)):
            branch, part_ctx = Branch(part, norm, add.get_submodule("drop")), ctx.at(index)
            run = run_reversible_step if recompute else run_step
            stream = stream.with_x(run(branch, stream, part_ctx))
        return stream


class ReversibleMean(Reversible):
    """Reversible layers with the mean of both halves before the last norm, for heads of the model's width."""

    @classmethod
    def build_final_norm(cls, norm: Callable[[], nn.Module]) -> nn.Module | None:
        return nn.Sequential(Mean(), norm())


class Mean(nn.Module):
    """(a + b) / 2: (B, T, 2C) -> (B, T, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(x.chunk(2, dim=-1)).mean(0)


class Branch(nn.Module):
    """Residual branch dropout(f(norm(x))) of a step; owns no modules, but names their parameters."""

    def __init__(self, part: nn.Module, norm: nn.Module, drop: nn.Module):
        super().__init__()
        self.part, self.norm, self.drop = part, norm, drop

    def forward(self, stream: Stream, ctx: Context) -> Tensor:
        return self.drop(self.part(stream.with_x(self.norm(stream.x)), ctx))


def run_step(branch: Branch, stream: Stream, ctx: Context) -> Tensor:
    """(a, b) -> (b, a + f(norm(b)))."""
    a, b = stream.x.chunk(2, dim=-1)  # (B, T, 2C) -> 2 x (B, T, C)
    return torch.cat((b, a + branch(stream.with_x(b), ctx)), dim=-1)


def run_reversible_step(branch: Branch, stream: Stream, ctx: Context) -> Tensor:
    """`run_step` that saves no activations for the backward pass."""
    state = ctx.shared.get(PassState)
    if state is None or not state.ends_with(stream.x):
        state = ctx.shared[PassState] = PassState()
    weights = dict(branch.named_parameters())
    memory = {name: memory.x for name, memory in ctx.memory.items()}
    frame = stream.with_x(stream.x.new_empty(0))  # without the activations
    replay = capture_replay(stream.x, branch.training)
    call = StepCall(branch, frame, ctx, tuple(weights), tuple(memory), state, replay)
    x, *losses = ReversibleStep.apply(call, stream.x, *weights.values(), *memory.values())
    for loss in losses:
        ctx.side.add(LOSS, ctx.path, loss)
    return x


@dataclass(slots=True)
class PassState:
    """The number of steps of a forward pass and the outputs of the last; the backward pass goes back step by step."""

    steps: int = 0
    x: Tensor | None = None
    shared: dict[Any, Any] = field(default_factory=dict)

    def ends_with(self, x: Tensor) -> bool:
        """Whether x are the outputs of the last step, unchanged."""
        return self.x is not None and self.x.data_ptr() == x.data_ptr()

    def get_outputs(self, steps: int) -> Tensor:
        """The outputs of step number `steps`, which must be the last one not yet reversed."""
        if self.x is None or self.steps != steps:
            raise RuntimeError(
                "reversible layers: activations are recomputed once, from the last layer to the first; take gradients "
                "of the stack's outputs, in one backward pass"
            )
        return self.x


@dataclass(slots=True)
class StepCall:
    """One step of one forward pass, with all that its recomputation needs."""

    branch: Branch
    frame: Stream  # positions and masks, without activations
    ctx: Context
    weights: tuple[str, ...]
    memory: tuple[str, ...]
    state: PassState
    replay: Callable[[], AbstractContextManager[object]]
    number: int = 0
    choices: dict[Any, Any] = field(default_factory=dict)

    def compute(self, b: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The branch and its side losses, in the forward pass."""
        side, shared = LossCollector(self.ctx.side), self.state.shared
        shared[SAVED_CHOICES] = self.choices
        ctx = Context(self.ctx.memory, NO_CACHE, side, self.ctx.record, self.ctx.path, shared)
        return self.branch(self.frame.with_x(b), ctx), side.losses

    def recompute(self, b: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The branch again, with the same random numbers and without recorders; `tensors` replace weights and
        memory."""
        weights = dict(zip(self.weights, tensors, strict=False))
        memories = zip(self.memory, tensors[len(weights) :], strict=True)
        side = LossCollector(NO_SIDE)
        ctx = Context(
            {name: self.ctx.memory[name].with_x(x) for name, x in memories},
            NO_CACHE,
            side,
            NO_RECORD,
            self.ctx.path,
            # Nothing is shared with other layers, whose tensors would have no gradient here.
            {SAVED_CHOICES: self.choices},
        )
        with self.replay():
            return functional_call(self.branch, weights, (self.frame.with_x(b), ctx)), side.losses


class LossCollector(SideOutputs):
    """Collects losses, whose gradients come from outside the step, and forwards other side outputs."""

    def __init__(self, onward: SideOutputs):
        self.onward = onward
        self.losses: list[Tensor] = []

    def add(self, name: str, path: LayerPath, value: Any) -> None:
        if name == LOSS:
            self.losses.append(value)
        else:
            self.onward.add(name, path, value)


class ReversibleStep(torch.autograd.Function):
    """(a, b) -> (b, a + f(b)) and side losses, as a function of both halves, the weights of f and its memories."""

    @staticmethod
    def forward(ctx: Any, call: StepCall, x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        a, b = x.chunk(2, dim=-1)
        branch, losses = call.compute(b)
        out = torch.cat((b, a + branch), dim=-1)
        call.state.steps += 1
        call.number, call.state.x = call.state.steps, out.detach()
        ctx.call = call
        ctx.save_for_backward(*tensors)  # weights and memories, which are in memory anyway
        return out, *losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *grad_losses: Tensor) -> Any:
        call: StepCall = ctx.call
        b, c = call.state.get_outputs(call.number).chunk(2, dim=-1)
        grad_b, grad_c = grad.chunk(2, dim=-1)
        needed = ctx.needs_input_grad[2:]
        with torch.enable_grad():
            leaf = b.detach().requires_grad_()
            tensors = [x.detach().requires_grad_(need) for x, need in zip(ctx.saved_tensors, needed, strict=True)]
            branch, losses = call.recompute(leaf, tensors)
        outputs = [(x, g) for x, g in zip((branch, *losses), (grad_c, *grad_losses), strict=True) if x.requires_grad]
        inputs = [leaf, *(x for x in tensors if x.requires_grad)]
        leaf_grad, *input_grads = torch.autograd.grad(
            [x for x, _ in outputs], inputs, [g for _, g in outputs], allow_unused=True
        )
        call.state.steps, call.state.x = call.number - 1, torch.cat((c - branch.detach(), b), dim=-1)
        remaining = iter(input_grads)
        grads = [next(remaining) if need else None for need in needed]
        return None, torch.cat((grad_c, grad_b if leaf_grad is None else grad_b + leaf_grad), dim=-1), *grads


def capture_replay(x: Tensor, training: bool) -> Callable[[], AbstractContextManager[object]]:
    """A context that restores the present autocast settings and, in training, the present random state."""
    kind = x.device.type
    if kind == "meta":
        return nullcontext
    autocast = partial(torch.autocast, kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
    if not training:
        return autocast
    state, (devices, states) = torch.get_rng_state(), get_device_states(x)

    @contextmanager
    def replay() -> Iterator[None]:
        with torch.random.fork_rng(devices), autocast():
            torch.set_rng_state(state)
            set_device_states(devices, states)
            yield

    return replay


class ReversibleConfig(WiringConfig):
    """Reversible layers: (a, b) -> (b, a + f(norm(b))), whose activations are recomputed from outputs instead of
    stored. `join`: the stack's outputs are both halves, concatenated, or their mean."""

    kind: Literal["reversible"] = "reversible"
    join: Literal["concat", "mean"] = "concat"

    @property
    def width_factor(self) -> int:
        return 2 if self.join == "concat" else 1

    def build(self) -> type[Wiring]:
        return Reversible if self.join == "concat" else ReversibleMean
