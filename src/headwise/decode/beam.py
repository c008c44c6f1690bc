"""Beam search, batched over sources and beams.

Each step keeps the K best continuations of a source. A finished hypothesis gives up its beam, so the beam narrows as
hypotheses finish and a beam of one is greedy decoding. The search of a source ends when no live hypothesis can still
beat the worst of its N best finished ones.

Letters: B sources, K beams, R = B * K rows, W candidates of a row, N hypotheses returned.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from headwise.decode.generator import Generator, Request, Stepper, topk
from headwise.decode.hypothesis import Hypothesis, length_penalty, rank_hypotheses, score_hypothesis


def beam_search(model: Generator, state: Any, request: Request) -> list[list[Hypothesis]]:
    """Beam search: the `config.nbest` best finished hypotheses of each source, best first."""
    return BeamSearch(model, request).search(state).hypotheses()


class BeamSearch:
    """The live and the finished hypotheses of a batch; a beam without a live hypothesis has log P = -inf."""

    def __init__(self, model: Generator, request: Request):
        config, device = request.config, request.device
        self.stepper = stepper = Stepper(model, request)
        self.alpha, self.nbest, self.end = config.length_penalty, config.nbest, model.end_id
        self.count, self.width = len(request.sources), config.beams
        self.candidates = min(self.width, stepper.choices)
        self.sources = torch.arange(self.count, device=device)  # (B,)
        self.slots = torch.arange(self.width, device=device)  # (K,)
        self.open = torch.full((self.count, 1), self.width, device=device)  # beams without a finished hypothesis
        self.live = torch.full((self.count, self.width), -torch.inf, device=device)
        self.live[:, 0] = 0  # all beams start equal, so only the first one branches
        self.tokens = request.build_first_tokens(model)
        self.ids = torch.empty(len(self.tokens), stepper.longest + 1, dtype=torch.long, device=device)
        # log P never rises and the penalty grows with length: the penalty at the limit bounds the final score.
        bounds = [length_penalty(limit + 1, self.alpha) for limit in request.compute_limits(model)]
        self.bounds = torch.tensor(bounds, device=device)
        self.best_scores = torch.full((self.count, self.nbest), -torch.inf, device=device)
        self.ended: list[tuple[Tensor, Tensor, Tensor]] = []

    def search(self, state: Any) -> Self:
        """Run the search from the state after the prompt or source."""
        for step in range(self.stepper.longest + 1):
            log_probs, state = self.stepper(self.tokens, state, step)
            rows = self.extend(log_probs, step)
            if not len(rows):
                break
            state = state.select(rows)
            self.stepper.select(rows)
        return self

    def extend(self, log_probs: Tensor, step: int) -> Tensor:
        """Extend the hypotheses by one token, given log P (R, V); returns the rows that continue, in their order."""
        gains, tokens = topk(log_probs, self.candidates)
        shape = (len(self.live), self.width, self.candidates)
        totals = (self.live[:, :, None] + gains.view(shape)).flatten(1)  # (R, W) -> (B, K, W) -> (B, K * W)
        live, chosen = totals.topk(self.width)
        self.live = live.masked_fill_(self.slots >= self.open, -torch.inf)
        first_rows = torch.arange(0, len(gains), self.width, device=gains.device)
        rows = (chosen // self.candidates + first_rows[:, None]).flatten()  # (B, K) -> (R,)
        self.tokens = tokens.view(len(live), -1).gather(1, chosen).flatten()
        self.ids = self.ids[rows]
        self.ids[:, step] = self.tokens
        self._finish(step)
        return self._drop(rows)

    def _finish(self, step: int) -> None:
        """Move the hypotheses that end at this step from the beam to the finished ones."""
        ends = (self.tokens == self.end).view_as(self.live) & (self.live > -torch.inf)
        rows = ends.flatten().nonzero()[:, 0]
        if len(rows):
            self.ended.append((self.sources[rows // self.width], self.ids[rows, :step], self.live[ends]))
            scores = self.live.where(ends, -torch.inf) / length_penalty(step + 1, self.alpha)
            self.best_scores = torch.cat((self.best_scores, scores), dim=1).topk(self.nbest)[0]  # (B, N + K) -> (B, N)
            self.live.masked_fill_(ends, -torch.inf)
            self.open -= ends.sum(1, keepdim=True)

    def _drop(self, rows: Tensor) -> Tensor:
        """Drop the sources whose live hypotheses can no longer win; returns the rows of the others."""
        if not self.ended:
            return rows
        can_improve = self.live.amax(1) / self.bounds > self.best_scores[:, -1]
        active = can_improve.nonzero()[:, 0]
        if len(active) == len(can_improve):
            return rows
        self.sources, self.open, self.live, self.bounds, self.best_scores = (
            tensor[active] for tensor in (self.sources, self.open, self.live, self.bounds, self.best_scores)
        )
        active_rows = (active[:, None] * self.width + self.slots).flatten()  # (B, K) -> (R,)
        self.tokens, self.ids = self.tokens[active_rows], self.ids[active_rows]
        return rows[active_rows]

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The best finished hypotheses of each source, best first."""
        hypotheses: list[list[Hypothesis]] = [[] for _ in range(self.count)]
        for sources, ids, log_probs in self.ended:
            for source, path, log_prob in zip(sources.tolist(), ids.tolist(), log_probs.tolist(), strict=True):
                hypotheses[source].append(score_hypothesis(path, log_prob, self.alpha))
        return [rank_hypotheses(candidates, self.nbest) for candidates in hypotheses]
