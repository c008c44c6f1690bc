"""RNN decoders of encoder-decoder models: with attention, Bahdanau et al. (2015, "Neural Machine Translation by Jointly
Learning to Align and Translate"), Luong et al. (2015, "Effective Approaches to Attention-based Neural Machine
Translation") and Wu et al. (2016, GNMT); with a summary vector, Cho et al. (2014).

Where the input of a step depends on the step before, the recurrence is unrolled in a loop; everything else is computed
before or after the loop.

Letters: B sources, K beams, R = B * K rows, T length of the target, S that of the source, C width, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from headwise.blocks.attention.kernels import auto
from headwise.blocks.attention.multihead import fold_beams
from headwise.blocks.attention.score_mods import BASE_MASKS, AttentionInputs, AttentionLayout, Score, ScoreMod
from headwise.blocks.bridge import load_state
from headwise.blocks.mixers.recurrent import CellState, CellStep, Recurrence
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, Part, Properties, Stream


class SourceAttention(nn.Module):
    """Attention to the annotations h_s of a source, in one head without projections: c = sum_s a_s h_s,
    a = softmax_s(score(q, h_s)). `values` names the memory with other vectors to sum than h_s."""

    def __init__(self, score: Score, score_mods: Sequence[ScoreMod] = (), name: str = "encoder", values: str = ""):
        super().__init__()
        self.score, self.score_mods, self.name, self.values = score, nn.ModuleList(score_mods), name, values or name
        self.all_score_mods: tuple[ScoreMod, ...] = (*score_mods, *BASE_MASKS)
        self.needs_positions = any(mod.needs_positions for mod in score_mods)

    def project_keys(self, ctx: Context) -> Tensor:
        """The keys of the score, cached per source: (B, S, C) -> (B, 1, S, C')."""
        memory = ctx.memory[self.name]
        return ctx.cache.compute_once(ctx.path, lambda: (self.score.project_key(memory.x.unsqueeze(1)),), dim=2)[0]

    def build_inputs(self, q: Tensor, keys: Tensor, pos: Tensor, ctx: Context) -> AttentionInputs:
        """Attention inputs for queries (R, T, H) at `pos`; beams of one source are further queries."""
        memory = ctx.memory[self.name]
        q = q.reshape(len(keys), 1, -1, q.shape[-1])  # (R, T, H) -> (B, 1, K*T, H)
        # None if no score mod reads positions, so that all steps share one mask.
        query_pos = fold_beams(pos, q.shape[2]) if self.needs_positions else None
        layout = AttentionLayout(q.shape[2], keys.shape[2], query_pos, memory.pos, memory.keep)
        values = ctx.memory[self.values].x.unsqueeze(1)  # (B, S, C) -> (B, 1, S, C)
        inputs = AttentionInputs(
            q, keys, values, self.score.scale, layout, self.all_score_mods,
            shared=ctx.shared, is_cross=True, score=self.score, side=ctx.side, path=ctx.path,
        )  # fmt: skip
        return ctx.record.edit_inputs(ctx.path, inputs)

    def compute_context(self, inputs: AttentionInputs, ctx: Context) -> Tensor:
        """The context vector of each query, (B, 1, K*T, C)."""
        return ctx.record.edit_heads(ctx.path, auto(inputs))


class AttentionDecoder(Part):
    """Base class of RNN decoders: causal, with a decoding state."""

    def __init__(self, length_free: bool = True):
        super().__init__()
        self.length_free = length_free

    @property
    def properties(self) -> Properties:
        return Properties(causal=True, steppable=True, length_free=self.length_free, joins=True)


class LuongDecoder(AttentionDecoder):
    """Attentional state h~ = tanh(W_c [c; h]), where h attends to the source for c (Luong et al. 2015, eq. 5)."""

    def __init__(self, width: int, memory_width: int, glimpse: SourceAttention):
        super().__init__(glimpse.score.length_free)
        self.glimpse = glimpse
        self.out = nn.Linear(memory_width + width, width, bias=False)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        inputs = self.glimpse.build_inputs(stream.x, self.glimpse.project_keys(ctx), stream.pos, ctx)
        ctx.record.observe(ctx.path, inputs)
        return self.combine(stream.x, self.glimpse.compute_context(inputs, ctx))

    def combine(self, h: Tensor, c: Tensor) -> Tensor:
        """h~ of states h (R, T, H) and context vectors c."""
        c = c.reshape(*h.shape[:2], -1)  # (B, 1, K*T, C) -> (R, T, C)
        return self.out(torch.cat((c, h), dim=-1)).tanh()


class InputFeedingDecoder(AttentionDecoder):
    """Input feeding: the first recurrence has the inputs [x_t; h~_{t-1}], the last attentional state included (Luong et
    al. 2015, section 3.3)."""

    def __init__(self, recurrences: Sequence[Recurrence], attend: LuongDecoder, dropout: float = 0.0):
        super().__init__(attend.length_free)
        self.tower, self.attend = StackedCells(recurrences, dropout), attend
        self.output_width = attend.out.out_features

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        glimpse, keys, fed_path = self.attend.glimpse, self.attend.glimpse.project_keys(ctx), (*ctx.path, "fed")
        steps = StackedStep(self.tower, stream.x, ctx)
        fed = ctx.cache.get_state(fed_path, lambda: torch.zeros_like(steps.top))
        tops, outs = [], []
        for t in range(stream.x.shape[1]):
            top = steps.advance(t, fed).unsqueeze(1)  # (R, H) -> (R, 1, H)
            inputs = glimpse.build_inputs(top, keys, stream.pos[..., t : t + 1], ctx)
            out = self.attend.combine(top, glimpse.compute_context(inputs, ctx))
            fed = out.squeeze(1)
            tops.append(top)
            outs.append(out)
        steps.store(ctx)
        ctx.cache.put_state(fed_path, fed)
        ctx.record.observe(ctx.path, glimpse.build_inputs(torch.cat(tops, dim=1), keys, stream.pos, ctx))
        return torch.cat(outs, dim=1)


class BahdanauDecoder(AttentionDecoder):
    """A decoder that attends to the source before each step (Bahdanau et al. 2015, section 3.1).

    s_{t-1} attends to the source for c_t; the first recurrence has the inputs [y_{t-1}; c_t]; the output layer has
    (s_t, y_{t-1}, c_t).
    """

    def __init__(
        self, recurrences: Sequence[Recurrence], glimpse: SourceAttention, output: Maxout, dropout: float = 0.0
    ):
        super().__init__(glimpse.score.length_free)
        self.tower, self.glimpse, self.output = StackedCells(recurrences, dropout), glimpse, output
        self.output_width = output.units

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        s, c = attend_before_steps(self.tower, self.glimpse, stream, ctx)
        return self.output(torch.cat((s, stream.x, c), dim=-1))


class ResidualLstmDecoder(AttentionDecoder):
    """The decoder of GNMT: residual LSTM layers that all read one attention context (Wu et al. 2016, section 3).

    The state of the lowest layer at t-1 attends to the source for a_t, and layer i has the inputs [x^{i-1}_t; a_t]:

        m^i, c^i = LSTM_i([x^{i-1}; a]),  x^i = m^i for i = 1, 2,  x^i = m^i + x^{i-1} above (eq. 6)

    So only the lowest layer runs in a loop; the others read the whole target in one call each. `experts` is a mixture
    of experts with a residual connection before the last layer (Shazeer et al. 2017, appendix E).
    """

    def __init__(
        self,
        recurrences: Sequence[Recurrence],
        glimpse: SourceAttention,
        dropout: float = 0.0,
        experts: Part | None = None,
    ):
        super().__init__(glimpse.score.length_free)
        self.tower, self.glimpse = StackedCells(recurrences[:1]), glimpse
        self.upper, self.experts, self.drop = nn.ModuleList(recurrences[1:]), experts, make_dropout(dropout)
        self.output_width = recurrences[-1].hidden

    @property
    def properties(self) -> Properties:
        if self.experts is None:
            return super().properties
        routed = self.experts.properties
        return replace(super().properties, steppable=routed.steppable, batch_independent=routed.batch_independent)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        h, a = attend_before_steps(self.tower, self.glimpse, stream, ctx)
        x = self.drop(h)
        for number, recurrence in enumerate(self.upper, start=1):
            if self.experts is not None and number == len(self.upper):
                x = x + self.drop(self.experts(stream.with_x(x), ctx.at("experts")))
            m, state = recurrence(torch.cat((x, a), dim=-1), load_state(ctx, number, x.shape[0]))
            ctx.cache.put_state(ctx.at(number).path, state)
            x = self.drop(m) if number == 1 else x + self.drop(m)
        return x


class ChoDecoder(AttentionDecoder):
    """A decoder that reads the summary vector c of the source at every step: h_t = f(h_{t-1}, y_{t-1}, c); the output
    layer has (h_t, y_{t-1}, c) (Cho et al. 2014, eqs. 3-4)."""

    def __init__(self, recurrences: Sequence[Recurrence], output: Maxout, dropout: float = 0.0):
        super().__init__()
        self.recurrences, self.output = nn.ModuleList(recurrences), output
        self.output_width = output.units
        self.drop = make_dropout(dropout)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        x, summary = stream.x, ctx.memory["summary"].x
        c = summary.repeat_interleave(x.shape[0] // summary.shape[0], 0).expand(
            -1, x.shape[1], -1
        )  # (B, 1, C) -> (R, T, C)
        h = torch.cat((x, c), dim=-1)
        for number, recurrence in enumerate(self.recurrences):
            h, state = recurrence(self.drop(h) if number else h, load_state(ctx, number, x.shape[0]))
            ctx.cache.put_state(ctx.at(number).path, state)
        return self.output(torch.cat((h, x, c), dim=-1))


def attend_before_steps(
    tower: StackedCells, glimpse: SourceAttention, stream: Stream, ctx: Context
) -> tuple[Tensor, Tensor]:
    """Attention before each step: s_{t-1} of the top attends to the source for c_t, which the lowest recurrence reads
    beside x_t. Returns s_1 ... s_T (R, T, H) and c_1 ... c_T (R, T, C)."""
    keys, steps = glimpse.project_keys(ctx), StackedStep(tower, stream.x, ctx)
    states, contexts = [steps.top], []
    for t in range(stream.x.shape[1]):
        inputs = glimpse.build_inputs(steps.top.unsqueeze(1), keys, stream.pos[..., t : t + 1], ctx)
        contexts.append(glimpse.compute_context(inputs, ctx).reshape(stream.x.shape[0], -1))  # (B, 1, K, C) -> (R, C)
        states.append(steps.advance(t, contexts[-1]))
    steps.store(ctx)
    s = torch.stack(states, dim=1)  # s_0 ... s_T: (R, T + 1, H)
    ctx.record.observe(ctx.path, glimpse.build_inputs(s[:, :-1], keys, stream.pos, ctx))
    return s[:, 1:], torch.stack(contexts, dim=1)


class Maxout(nn.Module):
    """Maxout units of two pieces: max(W_1 x, W_2 x) (Goodfellow et al. 2013)."""

    def __init__(self, width: int, units: int):
        super().__init__()
        self.units = units
        self.inner = nn.Linear(width, 2 * units)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).unflatten(-1, (-1, 2)).amax(-1)  # (..., 2U) -> (..., U, 2) -> (..., U)


class StackedCells(nn.Module):
    """Stacked recurrences, run by `StackedStep`."""

    def __init__(self, recurrences: Sequence[Recurrence], dropout: float = 0.0):
        super().__init__()
        self.recurrences, self.drop = nn.ModuleList(recurrences), make_dropout(dropout)


class StackedStep:
    """Runs stacked recurrences one token at a time: holds their states and step functions.

    The first C inputs of the lowest recurrence, x (R, T, C), are known before the loop.
    """

    def __init__(self, tower: StackedCells, x: Tensor, ctx: Context):
        self.drop = tower.drop
        self.states: list[CellState] = []
        self.steps: list[CellStep] = []
        for number, recurrence in enumerate(tower.recurrences):
            assert isinstance(recurrence, Recurrence)
            self.states.append(load_state(ctx, number, x.shape[0]).split(recurrence.hidden, dim=-1))
            known = x if number == 0 else x[..., :0]
            self.steps.append(recurrence.unroll(known))

    @property
    def top(self) -> Tensor:
        """h of the highest recurrence, (R, H)."""
        return self.states[-1][0]

    def advance(self, t: int, rest: Tensor) -> Tensor:
        """Run token t, with `rest` (R, C') as its remaining inputs; returns the new top."""
        for number, step in enumerate(self.steps):
            below = self.drop(self.states[number - 1][0]) if number else rest
            self.states[number] = step(t, below, self.states[number])
        return self.top

    def store(self, ctx: Context) -> None:
        """Put the states into the cache for the next call."""
        for number, state in enumerate(self.states):
            ctx.cache.put_state(ctx.at(number).path, torch.cat(state, dim=-1))
