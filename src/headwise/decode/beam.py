"""Beam search, batched over sources and beams.

Each step extends the K live hypotheses of a source by their best tokens and keeps the best continuations. Finished
hypotheses either take a beam each, so that the beam narrows and a beam of one is greedy decoding (our convention), or
move to a pool beside K live beams (that of `generate`). The search of a source ends when its live hypotheses cannot,
or are not likely to, improve the pool of its best finished ones (`config.early_stopping`).

Letters: B sources, K beams, R = B * K rows, W candidates of a row, C candidates of a source, P hypotheses of a pool.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.decode.coverage_penalty import build_coverage_penalty
from headwise.decode.generator import Generator, NextTokenScorer, Request, topk
from headwise.decode.hypothesis import Hypothesis, rank_hypotheses, score_hypothesis


def beam_search(model: Generator, state: Any, request: Request) -> list[list[Hypothesis]]:
    """Beam search: the `config.nbest` best finished hypotheses of each source, best first."""
    return BeamSearch(model, request).search(state).hypotheses()


class BeamSearch:
    """The live and the finished hypotheses of a batch; a beam without a live hypothesis has log P = -inf."""

    def __init__(self, model: Generator, request: Request):
        config, device = request.config, request.device
        self.convention = config.conventions
        self.scorer = scorer = NextTokenScorer(model, request)
        self.alpha, self.nbest, self.early_stopping = config.length_penalty, config.nbest, config.early_stopping
        self.coverage = build_coverage_penalty(model, request)
        self.forced = request.count_forced(model)  # tokens before the first step that count as generated
        self.count, self.width = len(request.sources), config.beams
        # Beside a pool each beam has as many spare candidates as there are EOS tokens: K of them go on in any case.
        candidates = self.width if self.convention.finished_take_beams else self.width * (1 + len(scorer.ends))
        self.row_candidates = min(candidates, scorer.choices)
        self.candidates = min(candidates, self.width * self.row_candidates)
        pool = self.nbest if self.convention.finished_take_beams else self.width
        self.sources = torch.arange(self.count, device=device)  # (B,)
        self.ranks = torch.arange(self.candidates, device=device)  # (C,)
        self.beams = torch.arange(self.width, device=device)  # (K,)
        self.open = torch.full((self.count, 1), self.width, device=device)  # candidates that may finish
        self.live = torch.full((self.count, self.width), -torch.inf, device=device)
        self.live[:, 0] = 0  # all beams start equal, so only the first one branches
        self.tokens = request.build_first_tokens(model)
        self.ids = torch.empty(len(self.tokens), scorer.steps, dtype=torch.long, device=device)
        penalties = [self.convention.length_penalty(self.forced + 1 + step, self.alpha) for step in range(scorer.steps)]
        self.penalties = torch.tensor(penalties, device=device)  # of hypotheses that end at a step, EOS included
        last = [limit - 1 + self.convention.forces_eos for limit in request.compute_limits(model)]
        self.max_penalties = self.penalties[last]  # (B,)
        self.best_scores = torch.full((self.count, pool), -torch.inf, device=device)
        self.finished: defaultdict[int, list[Hypothesis]] = defaultdict(list)

    def search(self, state: Any) -> Self:
        """Run the search from the state after the prompt or source."""
        for _ in range(self.scorer.steps):
            with self.coverage.record_attention():
                log_probs, state = self.scorer(self.tokens, state)
            rows = self.extend(log_probs)
            if not len(rows):
                break
            state = state.select(rows)
            self.scorer.select(rows)
            self.scorer.extend(self.tokens)
            self.coverage.select(rows)
        return self

    def extend(self, log_probs: Tensor) -> Tensor:
        """Extend the hypotheses by one token, given log P (R, V); returns the rows that continue, in their order."""
        gains, tokens = topk(log_probs, self.row_candidates)
        shape = (len(self.live), self.width, self.row_candidates)
        totals = (self.live[:, :, None] + gains.view(shape)).flatten(1)  # (R, W) -> (B, K, W) -> (B, K * W)
        totals, chosen = totals.topk(self.candidates)
        first_rows = torch.arange(0, len(gains), self.width, device=gains.device)
        rows = chosen // self.row_candidates + first_rows[:, None]  # (B, C)
        tokens = tokens.view(len(totals), -1).gather(1, chosen)
        if self.convention.finished_take_beams:
            totals.masked_fill_(self.ranks >= self.open, -torch.inf)
        steps = self.scorer.rows.done[:: self.width]  # (B,)
        self.record_candidates(steps, rows, tokens, totals)
        limits = self.scorer.rows.limits[:: self.width, None]
        ended = self.scorer.find_ended(tokens, limits, steps[:, None])  # (B, C)
        self._finish(steps, rows, tokens, totals, ended & (self.ranks < self.open) & (totals > -torch.inf))
        rows = self._continue(rows, tokens, totals.masked_fill_(ended, -torch.inf))
        return self._drop(steps, rows) if self.finished else rows

    def record_candidates(self, steps: Tensor, rows: Tensor, tokens: Tensor, totals: Tensor) -> None:
        """Hook for subclasses: the best candidates after `steps` (B,) tokens, (B, C), with the rows that they
        extend."""

    def _finish(self, steps: Tensor, rows: Tensor, tokens: Tensor, totals: Tensor, finished: Tensor) -> None:
        """Move the candidates that end at this step, `finished` (B, C), to the pool."""
        if not finished.any():
            return
        coverage = self.coverage.compute(rows)  # (B, C)
        places = finished.nonzero()[:, 0]
        ended = (self.sources[places], steps[places], tokens[finished], totals[finished], coverage[finished])
        paths = self.ids[rows[finished]].tolist()
        for path, source, step, token, log_prob, covered in zip(paths, *(x.tolist() for x in ended), strict=True):
            ids = path[:step] if token in self.scorer.ends else [*path[:step], token]
            length = self.forced + step + 1
            scored = score_hypothesis(ids, log_prob, self.alpha, length, self.convention.length_penalty)
            self.finished[source].append(replace(scored, score=scored.score + covered))
        scores = totals.where(finished, -torch.inf) / self.penalties[steps][:, None] + coverage
        self.best_scores = torch.cat((self.best_scores, scores), dim=1).topk(self.best_scores.shape[1])[0]
        if self.convention.finished_take_beams:
            self.open -= finished.sum(1, keepdim=True)

    def _continue(self, rows: Tensor, tokens: Tensor, totals: Tensor) -> Tensor:
        """Make the best candidates that have not ended the live hypotheses; returns the rows that they extend, (R,)."""
        if self.candidates > self.width:
            totals, order = totals.topk(self.width)  # (B, C) -> (B, K)
            rows, tokens = rows.gather(1, order), tokens.gather(1, order)
        self.live, self.tokens, rows = totals, tokens.flatten(), rows.flatten()
        self.ids = self.ids[rows].scatter_(1, self.scorer.rows.done[:, None], self.tokens[:, None])
        return rows

    def _drop(self, steps: Tensor, rows: Tensor) -> Tensor:
        """Drop the sources whose search has ended; returns the rows of the others."""
        active = self._can_improve(steps).nonzero()[:, 0]
        return rows if len(active) == len(self.live) else rows[self.select_sources(active)]

    def select_sources(self, active: Tensor) -> Tensor:
        """Continue with these sources; returns their rows."""
        names = ("sources", "open", "live", "max_penalties", "best_scores")
        self.sources, self.open, self.live, self.max_penalties, self.best_scores = (
            getattr(self, name)[active] for name in names
        )
        rows = (active[:, None] * self.width + self.beams).flatten()  # (B, K) -> (R,)
        self.tokens, self.ids = self.tokens[rows], self.ids[rows]
        return rows

    def join(self, other: BeamSearch) -> None:
        """Append the sources of another search with the same settings, whatever their steps; they are numbered on."""
        self.sources = torch.cat((self.sources, other.sources + self.count))
        self.count += other.count
        self.open, self.live, self.tokens, self.max_penalties, self.best_scores = (
            torch.cat((getattr(self, name), getattr(other, name)))
            for name in ("open", "live", "tokens", "max_penalties", "best_scores")
        )
        if len(other.penalties) > len(self.penalties):
            self.penalties = other.penalties
        longest = len(self.penalties)
        self.ids = torch.cat([F.pad(ids, (0, longest - ids.shape[1])) for ids in (self.ids, other.ids)])
        self.scorer.join(other.scorer)

    def _can_improve(self, steps: Tensor) -> Tensor:
        """Whether the live hypotheses of a source may still enter its pool, (B,).

        log P never rises. A penalty that grows with length is largest at the maximum length, which bounds the score
        ("never"); that of the current length is a heuristic (false), and a full pool is enough (true). The coverage
        penalty is at most 0.
        """
        worst = self.best_scores[:, -1]
        longest = self.early_stopping == "never" and self.alpha > 0
        bounds = self.live.amax(1) / (self.max_penalties if longest else self.penalties[steps])
        can_improve = bounds > worst
        return can_improve & (worst == -torch.inf) if self.early_stopping is True else can_improve

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The best finished hypotheses of each source, best first."""
        return [self.rank(source) for source in range(self.count)]

    def rank(self, source: int) -> list[Hypothesis]:
        """The best finished hypotheses of a source, best first."""
        return rank_hypotheses(self.finished[source], self.nbest)
