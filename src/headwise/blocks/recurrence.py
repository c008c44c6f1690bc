"""Recurrence in depth: the steps of Universal Transformer, with or without adaptive computation time (Dehghani et al.
2019, "Universal Transformers"; Graves 2016, "Adaptive Computation Time for Recurrent Neural Networks").

One layer, or one pattern of layers, is applied `steps` times. Before each step embeddings of the step and of the
positions are added to the state (section 2.1). Gates between a layer's input and its output are a wiring
(`gated_residual.py`).

Letters: B rows, T length, C width.

DISCREPANCY: in the paper a token that has halted is copied to the next steps; in the code printed in its appendix, in
the released code and here its state is still transformed, which later tokens attend to, and its output stays.
DISCREPANCY: the paper adds sinusoids of the step, the released code by default learned vectors (`steps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from headwise.blocks.experts import is_readable
from headwise.blocks.positions.absolute import build_sinusoids
from headwise.blocks.stack import Stack
from headwise.blocks.stream import NO_CACHE, NO_RECORD, Context, Stream
from headwise.config.base import Config

StepKind = Literal["learned", "sinusoid", "none"]
HALTING_BIAS = 1.0  # initial, as in the released code: tokens halt early at first


class StepEmbedding(nn.Module):
    """The embedding of steps and positions: state + step[t] + sinusoid(pos)."""

    def __init__(self, steps: int, width: int, kind: StepKind = "sinusoid", positions: bool = True):
        super().__init__()
        self.width, self.kind, self.positions = width, kind, positions
        if kind == "learned":  # of the variance of sinusoids, and more: that of the released code
            self.table: Tensor = nn.Parameter(torch.randn(steps, width))
        elif kind == "sinusoid":
            table = build_sinusoids(torch.arange(1, steps + 1), width).to(torch.get_default_dtype())
            self.register_buffer("table", table, persistent=False)

    def compute_positions(self, stream: Stream) -> Tensor | None:
        """The sinusoids of positions, (T, C) or (B, T, C), the same at every step; None: there are none."""
        return build_sinusoids(stream.pos, self.width).to(stream.x.dtype) if self.positions else None

    def forward(self, x: Tensor, step: int, positions: Tensor | None) -> Tensor:
        if self.kind != "none":
            x = x + self.table[step]
        return x if positions is None else x + positions

    def extra_repr(self) -> str:
        return f"{self.kind}, positions={self.positions}"


@dataclass(slots=True)
class HaltingState:
    """What adaptive computation time has of each token, (B, T) each: the sum of its halting probabilities, its
    remainder, the number of its updates, and whether it is still running."""

    probability: Tensor
    remainder: Tensor
    updates: Tensor
    running: Tensor

    @classmethod
    def start(cls, x: Tensor) -> HaltingState:
        """Before the first step of tokens (B, T, C)."""
        zeros = torch.zeros_like(x[..., 0], dtype=torch.promote_types(x.dtype, torch.float32))
        return cls(zeros, zeros, zeros, torch.ones_like(zeros, dtype=torch.bool))

    def update(self, p: Tensor, threshold: float) -> Tensor:
        """Add the halting probabilities of a step; returns the weight of each token's new state."""
        halts = self.running & (self.probability + p > threshold)
        continues = self.running & ~halts
        self.updates = self.updates + self.running
        self.probability = self.probability + p * continues
        self.remainder = self.remainder + (1 - self.probability) * halts
        self.running = continues
        return p * continues + self.remainder * halts


class Halting(nn.Module):
    """The halting unit of adaptive computation time: p = sigmoid(w . state + b), in float32."""

    def __init__(self, width: int, threshold: float = 0.99, ponder_loss: float = 0.01):
        super().__init__()
        self.threshold, self.ponder_loss = threshold, ponder_loss
        self.weight = nn.Parameter(torch.randn(width) * width**-0.5)
        self.bias = nn.Parameter(torch.full((1,), HALTING_BIAS))

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T)."""
        exact = torch.promote_types(x.dtype, torch.float32)
        return ((x.to(exact) * self.weight.to(exact)).sum(-1) + self.bias.to(exact)).sigmoid()

    def compute_ponder_cost(self, state: HaltingState, real: Tensor | None) -> Tensor:
        """The ponder cost: `ponder_loss` times the mean of updates + remainder over the real tokens."""
        cost = state.updates + state.remainder
        if real is None:
            return self.ponder_loss * cost.mean()
        return self.ponder_loss * (cost * real).sum() / real.sum().clamp(min=1)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}"


class RecurrentStack(Stack):
    """A recurrent stack (Universal Transformer): layers `before`, then `steps` times the layers of the pattern, then
    layers after it. With `halting`, each token has its own number of steps, at most `steps`; the stack's outputs after
    the last step are the states s_n, interpolated with the weights w_n of adaptive computation time: y <- y + w_n (s_n
    - y). The ponder cost of training is the side output "aux", the number of steps of each token is "ponder".

    All steps are in the KV cache, so that a later token may take more of them than the earlier ones that it attends
    to: decoding runs them all. In training the loop ends when every token has halted.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        final: nn.Module | None,
        layer_numbers: Sequence[int],
        pattern_length: int,
        *,
        before: int,
        steps: int,
        embedding: StepEmbedding,
        halting: Halting | None = None,
    ):
        super().__init__(layers, final, layer_numbers, pattern_length)
        self.before, self.steps, self.embedding, self.halting = before, steps, embedding, halting

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        stream = self.run_layers(stream, ctx, 0, self.before)
        run = self.run_steps if self.halting is None else self.run_until_halted
        after = self.before + self.steps * self.pattern_length
        stream = self.run_layers(run(stream, ctx), ctx, after, len(self.layer_numbers))
        return stream.with_x(self.final(stream.x))

    def run_layers(self, stream: Stream, ctx: Context, start: int, end: int) -> Stream:
        """The layers at depths start ... end - 1."""
        for index in range(start, end):
            layer_ctx = ctx.at(index)
            stream = self.run_layer(index, stream, layer_ctx)
            ctx.side.add("layer", layer_ctx.path, stream)
        return stream

    def run_step(self, stream: Stream, ctx: Context, step: int) -> Stream:
        start = self.before + step * self.pattern_length
        return self.run_layers(stream, ctx, start, start + self.pattern_length)

    def run_steps(self, stream: Stream, ctx: Context) -> Stream:
        """A fixed number of steps."""
        positions = self.embedding.compute_positions(stream)
        for step in range(self.steps):
            stream = self.run_step(stream.with_x(self.embedding(stream.x, step, positions)), ctx, step)
        return stream

    def run_until_halted(self, stream: Stream, ctx: Context) -> Stream:
        """Adaptive computation time."""
        assert self.halting is not None
        positions = self.embedding.compute_positions(stream)
        state, outputs = HaltingState.start(stream.x), torch.zeros_like(stream.x)
        for step in range(self.steps):
            stream = stream.with_x(self.embedding(stream.x, step, positions))
            weights = state.update(self.halting(stream.x), self.halting.threshold)  # (B, T)
            stream = self.run_step(stream, ctx, step)
            outputs = outputs + weights.to(outputs.dtype).unsqueeze(-1) * (stream.x - outputs)
            if self._has_halted(state.running, stream, ctx):
                break
        ctx.side.add("ponder", ctx.path, state.updates)
        if self.training:
            ctx.side.add("aux", ctx.path, self.halting.compute_ponder_cost(state, stream.real_mask))
        return stream.with_x(outputs)

    def _has_halted(self, running: Tensor, stream: Stream, ctx: Context) -> bool:
        """Whether further steps change no output, and nobody observes or caches them."""
        if ctx.cache is not NO_CACHE or ctx.record is not NO_RECORD or ctx.side.wants("layer"):
            return False
        if not is_readable(running):
            return False
        return not bool((running if stream.real_mask is None else running & stream.real_mask).any())


class RecurrenceConfig(Config):
    """Universal Transformer: `depth` steps of one layer, and layers before and after them."""

    # act: adaptive computation time: tokens halt by themselves, after `depth` steps at the latest; none: no recurrence
    kind: Literal["fixed", "act", "none"] = "fixed"
    before: int = Field(0, ge=0)  # layers before the steps
    after: int = Field(0, ge=0)  # layers after the steps
    own_weights: bool = True  # layers before and after have weights of their own; false: those of the steps
    steps: StepKind = "sinusoid"  # embedding of the step
    positions: bool = True  # sinusoids of positions are added at every step
    threshold: float = Field(0.99, gt=0, lt=1)  # sum of halting probabilities above which a token halts
    ponder_loss: float = Field(0.01, ge=0)  # weight of the ponder cost, the mean number of steps and the remainders

    @model_validator(mode="before")
    @classmethod
    def _read_kind(cls, data: Any) -> Any:
        return {"kind": data} if isinstance(data, str) else data

    @property
    def enabled(self) -> bool:
        """Whether the stack is recurrent."""
        return self.kind != "none"

    def list_layer_numbers(self, steps: int, pattern_length: int) -> list[int]:
        """The layer whose weights each place of the stack has.

        >>> RecurrenceConfig(before=1, after=2).list_layer_numbers(steps=3, pattern_length=1)
        [0, 1, 1, 1, 2, 3]
        >>> RecurrenceConfig(before=1, after=2, own_weights=False).list_layer_numbers(steps=3, pattern_length=1)
        [0, 0, 0, 0, 0, 0]
        """
        pattern = list(range(pattern_length))
        if not self.own_weights:
            before, after = ([i % pattern_length for i in range(count)] for count in (self.before, self.after))
            return [*before, *(pattern * steps), *after]
        end = self.before + pattern_length
        repeated = [self.before + i for i in pattern] * steps
        return [*range(self.before), *repeated, *range(end, end + self.after)]

    def build(self, layers: Sequence[nn.Module], final: nn.Module | None, steps: int, width: int) -> RecurrentStack:
        """The stack of `steps` steps over layers of this width."""
        pattern_length = len(layers) - (self.before + self.after if self.own_weights else 0)
        return RecurrentStack(
            layers,
            final,
            self.list_layer_numbers(steps, pattern_length),
            pattern_length,
            before=self.before,
            steps=steps,
            embedding=StepEmbedding(steps, width, self.steps, self.positions),
            halting=Halting(width, self.threshold, self.ponder_loss) if self.kind == "act" else None,
        )
