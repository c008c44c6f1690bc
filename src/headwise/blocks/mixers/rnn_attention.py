"""Recurrent decoders that look at the source: Bahdanau et al. (2015), Luong et al. (2015), and the one that only
remembers it, Cho et al. (2014).

Where a step's input depends on the step before, the recurrence is unrolled in a loop, and all that does not depend
on it is computed before the loop or after it.

Letters: B sources, K beams, R = B * K rows, T length of the target, S that of the source, C width, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headwise.blocks.attention.kernels import auto
from headwise.blocks.attention.multihead import fold_beams
from headwise.blocks.attention.score_mods import ALWAYS, AttentionInputs, AttentionLayout, Score, ScoreMod
from headwise.blocks.bridge import load_state
from headwise.blocks.mixers.recurrent import CellState, CellStep, Recurrence
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, Part, Properties, Stream


class SourceAttention(nn.Module):
    """c = sum_s a_s h_s, a = softmax_s(score(q, h_s)): the annotations h_s of a source as they are, in one head."""

    def __init__(self, score: Score, score_mods: Sequence[ScoreMod] = (), name: str = "encoder"):
        super().__init__()
        self.score, self.score_mods, self.name = score, nn.ModuleList(score_mods), name
        self.all_score_mods: tuple[ScoreMod, ...] = (*score_mods, *ALWAYS)
        self.needs_positions = any(mod.needs_positions for mod in score_mods)

    def keys(self, ctx: Context) -> Tensor:
        """What queries are compared with, once per source: (B, S, C) -> (B, 1, S, C')."""
        memory = ctx.memory[self.name]
        return ctx.cache.once(ctx.path, lambda: (self.score.project_key(memory.x.unsqueeze(1)),), dim=2)[0]

    def look(self, q: Tensor, keys: Tensor, pos: Tensor, ctx: Context) -> AttentionInputs:
        """Queries (R, T, H) at `pos`, beams of one source as further queries."""
        memory = ctx.memory[self.name]
        q = q.reshape(len(keys), 1, -1, q.shape[-1])  # (R, T, H) -> (B, 1, K*T, H)
        # None where nobody asks, so that all steps share one mask.
        where = fold_beams(pos, q.shape[2]) if self.needs_positions else None
        layout = AttentionLayout(q.shape[2], keys.shape[2], where, memory.pos, memory.keep)
        values = memory.x.unsqueeze(1)  # (B, S, C) -> (B, 1, S, C)
        look = AttentionInputs(
            q, keys, values, self.score.scale, layout, self.all_score_mods,
            shared=ctx.shared, is_cross=True, score=self.score, side=ctx.side, path=ctx.path,
        )  # fmt: skip
        return ctx.record.edit_inputs(ctx.path, look)

    def seen(self, look: AttentionInputs, ctx: Context) -> Tensor:
        """c of each query, (B, 1, K*T, C)."""
        return ctx.record.edit_heads(ctx.path, auto(look))


class AttentionDecoder(Part):
    """A part of a decoder: it sees no later token, and goes on from its state."""

    def __init__(self, length_free: bool = True):
        super().__init__()
        self.length_free = length_free

    @property
    def properties(self) -> Properties:
        return Properties(causal=True, steppable=True, length_free=self.length_free, joins=True)


class LuongDecoder(AttentionDecoder):
    """h~ = tanh(W_c [c; h]) with c seen from h (Luong et al. 2015, eq. 5)."""

    def __init__(self, width: int, memory_width: int, glimpse: SourceAttention):
        super().__init__(glimpse.score.length_free)
        self.glimpse = glimpse
        self.out = nn.Linear(memory_width + width, width, bias=False)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        look = self.glimpse.look(stream.x, self.glimpse.keys(ctx), stream.pos, ctx)
        ctx.record.observe(ctx.path, look)
        return self.joined(stream.x, self.glimpse.seen(look, ctx))

    def joined(self, h: Tensor, seen: Tensor) -> Tensor:
        """h (R, T, H) with what it sees."""
        seen = seen.reshape(*h.shape[:2], -1)  # (B, 1, K*T, C) -> (R, T, C)
        return self.out(torch.cat((seen, h), dim=-1)).tanh()


class InputFeedingDecoder(AttentionDecoder):
    """Recurrences below an attention whose h~ joins the next token's input (Luong et al. 2015, section 3.3).

    The first recurrence takes [x_t; h~_{t-1}].
    """

    def __init__(self, recurrences: Sequence[Recurrence], attend: LuongDecoder, dropout: float = 0.0):
        super().__init__(attend.length_free)
        self.tower, self.attend = StackedCells(recurrences, dropout), attend

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        glimpse, keys, fed_place = self.attend.glimpse, self.attend.glimpse.keys(ctx), (*ctx.path, "fed")
        climb = StackedStep(self.tower, stream.x, ctx)
        fed = ctx.cache.state(fed_place, lambda: torch.zeros_like(climb.top))
        tops, outs = [], []
        for t in range(stream.x.shape[1]):
            top = climb.advance(t, fed).unsqueeze(1)  # (R, H) -> (R, 1, H)
            seen = glimpse.seen(glimpse.look(top, keys, stream.pos[..., t : t + 1], ctx), ctx)
            out = self.attend.joined(top, seen)
            fed = out.squeeze(1)
            tops.append(top)
            outs.append(out)
        climb.leave(ctx)
        ctx.cache.put(fed_place, fed)
        ctx.record.observe(ctx.path, glimpse.look(torch.cat(tops, dim=1), keys, stream.pos, ctx))
        return torch.cat(outs, dim=1)


class BahdanauDecoder(AttentionDecoder):
    """A decoder that searches the source before each step (Bahdanau et al. 2015, section 3.1).

    c_t is seen from s_{t-1}; the first recurrence takes [y_{t-1}; c_t]; the output is made of (s_t, y_{t-1}, c_t).
    """

    def __init__(
        self, recurrences: Sequence[Recurrence], glimpse: SourceAttention, output: nn.Module, dropout: float = 0.0
    ):
        super().__init__(glimpse.score.length_free)
        self.tower, self.glimpse, self.output = StackedCells(recurrences, dropout), glimpse, output

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        x, keys = stream.x, self.glimpse.keys(ctx)
        climb = StackedStep(self.tower, x, ctx)
        states, contexts = [climb.top], []
        for t in range(x.shape[1]):
            look = self.glimpse.look(climb.top.unsqueeze(1), keys, stream.pos[..., t : t + 1], ctx)
            contexts.append(self.glimpse.seen(look, ctx).reshape(len(x), -1))  # (B, 1, K, C) -> (R, C)
            states.append(climb.advance(t, contexts[-1]))
        climb.leave(ctx)
        s = torch.stack(states, dim=1)  # s_0 ... s_T: (R, T + 1, H)
        ctx.record.observe(ctx.path, self.glimpse.look(s[:, :-1], keys, stream.pos, ctx))
        return self.output(torch.cat((s[:, 1:], x, torch.stack(contexts, dim=1)), dim=-1))


class ChoDecoder(AttentionDecoder):
    """A decoder that reads the summary c of the source beside every token: h_t = f(h_{t-1}, y_{t-1}, c), with an output
    made of (h_t, y_{t-1}, c) (Cho et al. 2014, eqs. 3-4)."""

    def __init__(self, recurrences: Sequence[Recurrence], output: nn.Module, dropout: float = 0.0):
        super().__init__()
        self.recurrences, self.output = nn.ModuleList(recurrences), output
        self.drop = make_dropout(dropout)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        x, summary = stream.x, ctx.memory["summary"].x
        c = summary.repeat_interleave(len(x) // len(summary), 0).expand(-1, x.shape[1], -1)  # (B, 1, C) -> (R, T, C)
        h = torch.cat((x, c), dim=-1)
        for number, recurrence in enumerate(self.recurrences):
            h, state = recurrence(self.drop(h) if number else h, load_state(ctx, number, len(x)))
            ctx.cache.put(ctx.at(number).path, state)
        return self.output(torch.cat((h, x, c), dim=-1))


class Maxout(nn.Module):
    """The larger of each two: units of a deep output (Goodfellow et al. 2013)."""

    def __init__(self, width: int, units: int):
        super().__init__()
        self.inner = nn.Linear(width, 2 * units)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).unflatten(-1, (-1, 2)).amax(-1)  # (..., 2U) -> (..., U, 2) -> (..., U)


class StackedCells(nn.Module):
    """Recurrences one on the other, for `StackedStep`."""

    def __init__(self, recurrences: Sequence[Recurrence], dropout: float = 0.0):
        super().__init__()
        self.recurrences, self.drop = nn.ModuleList(recurrences), make_dropout(dropout)


class StackedStep:
    """One call's way up a tower, token after token: the states of its recurrences, and a step for each.

    Of the lowest recurrence's inputs the first C are known before the loop: x (R, T, C).
    """

    def __init__(self, tower: StackedCells, x: Tensor, ctx: Context):
        self.drop = tower.drop
        self.states: list[CellState] = []
        self.steps: list[CellStep] = []
        for number, recurrence in enumerate(tower.recurrences):
            assert isinstance(recurrence, Recurrence)
            self.states.append(load_state(ctx, number, len(x)).split(recurrence.hidden, dim=-1))
            known = x if number == 0 else x[..., :0]
            self.steps.append(recurrence.unroll(known))

    @property
    def top(self) -> Tensor:
        """h of the highest recurrence, (R, H)."""
        return self.states[-1][0]

    def advance(self, t: int, rest: Tensor) -> Tensor:
        """Through token t, whose known inputs are joined by `rest` (R, C'); the new top."""
        for number, step in enumerate(self.steps):
            below = self.drop(self.states[number - 1][0]) if number else rest
            self.states[number] = step(t, below, self.states[number])
        return self.top

    def leave(self, ctx: Context) -> None:
        """The states for the next call."""
        for number, state in enumerate(self.states):
            ctx.cache.put(ctx.at(number).path, torch.cat(state, dim=-1))
