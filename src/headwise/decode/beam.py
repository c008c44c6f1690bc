"""Beam search, batched over sources and beams.

Each step extends the K live hypotheses of a source by their best tokens and keeps the best continuations. Finished
hypotheses either take a beam each, so that the beam narrows and a beam of one is greedy decoding (our convention), or
move to a pool beside K live beams (that of `generate`). The search of a source ends when its live hypotheses cannot,
or are not likely to, improve the pool of its best finished ones (`config.early_stopping`).

Letters: B sources, K beams, R = B * K rows, W candidates of a row, C candidates of a source, P hypotheses of a pool.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import torch
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
        lengths = [limit + self.convention.forces_eos for limit in request.compute_limits(model)]
        self.max_penalties = torch.tensor([self._penalty(length) for length in lengths], device=device)  # (B,)
        self.best_scores = torch.full((self.count, pool), -torch.inf, device=device)
        self.finished: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    def _penalty(self, length: int) -> float:
        """The length penalty of hypotheses of `length` tokens, EOS included."""
        return self.convention.length_penalty(self.forced + length, self.alpha)

    def search(self, state: Any) -> Self:
        """Run the search from the state after the prompt or source."""
        for step in range(self.scorer.steps):
            with self.coverage.record_attention():
                log_probs, state = self.scorer(self.tokens, state, step)
            rows = self.extend(log_probs, step)
            if not len(rows):
                break
            state = state.select(rows)
            self.scorer.select(rows)
            self.coverage.select(rows)
        return self

    def extend(self, log_probs: Tensor, step: int) -> Tensor:
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
        self.record_candidates(step, rows, tokens, totals)
        ended = self.scorer.find_ended(tokens, self.scorer.rows.limits[:: self.width, None], step)  # (B, C)
        self._finish(step, rows, tokens, totals, ended & (self.ranks < self.open) & (totals > -torch.inf))
        return self._drop(step, self._continue(step, rows, tokens, totals.masked_fill_(ended, -torch.inf)))

    def record_candidates(self, step: int, rows: Tensor, tokens: Tensor, totals: Tensor) -> None:
        """Hook for subclasses: the best candidates of a step, (B, C), with the rows that they extend."""

    def _finish(self, step: int, rows: Tensor, tokens: Tensor, totals: Tensor, finished: Tensor) -> None:
        """Move the candidates that end at this step, `finished` (B, C), to the pool."""
        if not finished.any():
            return
        ids = torch.cat((self.ids[rows[finished], :step], tokens[finished][:, None]), dim=1)
        coverage = self.coverage.compute(rows)  # (B, C)
        self.finished.append((self.sources[finished.nonzero()[:, 0]], ids, totals[finished], coverage[finished]))
        scores = totals.where(finished, -torch.inf) / self._penalty(step + 1) + coverage
        self.best_scores = torch.cat((self.best_scores, scores), dim=1).topk(self.best_scores.shape[1])[0]
        if self.convention.finished_take_beams:
            self.open -= finished.sum(1, keepdim=True)

    def _continue(self, step: int, rows: Tensor, tokens: Tensor, totals: Tensor) -> Tensor:
        """Make the best candidates that have not ended the live hypotheses; returns the rows that they extend, (R,)."""
        if self.candidates > self.width:
            totals, order = totals.topk(self.width)  # (B, C) -> (B, K)
            rows, tokens = rows.gather(1, order), tokens.gather(1, order)
        self.live, self.tokens, rows = totals, tokens.flatten(), rows.flatten()
        self.ids = self.ids[rows]
        self.ids[:, step] = self.tokens
        return rows

    def _drop(self, step: int, rows: Tensor) -> Tensor:
        """Drop the sources whose search has ended; returns the rows of the others."""
        if not self.finished:
            return rows
        active = self._can_improve(step).nonzero()[:, 0]
        if len(active) == len(self.live):
            return rows
        self.sources, self.open, self.live, self.max_penalties, self.best_scores = (
            tensor[active] for tensor in (self.sources, self.open, self.live, self.max_penalties, self.best_scores)
        )
        active_rows = (active[:, None] * self.width + self.beams).flatten()  # (B, K) -> (R,)
        self.tokens, self.ids = self.tokens[active_rows], self.ids[active_rows]
        return rows[active_rows]

    def _can_improve(self, step: int) -> Tensor:
        """Whether the live hypotheses of a source may still enter its pool, (B,).

        log P never rises. A penalty that grows with length is largest at the maximum length, which bounds the score
        ("never"); that of the current length is a heuristic (false), and a full pool is enough (true). The coverage
        penalty is at most 0.
        """
        worst = self.best_scores[:, -1]
        longest = self.early_stopping == "never" and self.alpha > 0
        bounds = self.live.amax(1) / (self.max_penalties if longest else self._penalty(step + 1))
        can_improve = bounds > worst
        return can_improve & (worst == -torch.inf) if self.early_stopping is True else can_improve

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The best finished hypotheses of each source, best first."""
        hypotheses: list[list[Hypothesis]] = [[] for _ in range(self.count)]
        for finished in self.finished:
            length = self.forced + finished[1].shape[1]
            for source, path, log_prob, coverage in zip(*(tensor.tolist() for tensor in finished), strict=True):
                path = path[:-1] if path[-1] in self.scorer.ends else path
                scored = score_hypothesis(path, log_prob, self.alpha, length, self.convention.length_penalty)
                hypotheses[source].append(replace(scored, score=scored.score + coverage))
        return [rank_hypotheses(candidates, self.nbest) for candidates in hypotheses]
