"""Beam search over start and step, for all sources and beams of a batch at once.

At every step the K best continuations of a source survive; one that ends takes its slot with it, so the
beam narrows as hypotheses finish and a beam of one is greedy decoding. A source is through when no live
hypothesis can still beat the worst of its n best finished ones.

Letters: B sources, K beams, R = B * K rows, W candidates a row, N hypotheses kept.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from headwise.decode.generator import Generator, Request, Stepper, best
from headwise.decode.hypothesis import Hypothesis, length_penalty, rank_hypotheses, score_hypothesis


def beam(model: Generator, state: Any, request: Request) -> list[list[Hypothesis]]:
    """Beam search: the `config.nbest` best finished hypotheses a source, best first."""
    return Beams(model, request).searched(state).hypotheses()


class Beams:
    """The live hypotheses; a slot without one has log P = -inf."""

    def __init__(self, model: Generator, request: Request):
        config, device = request.config, request.device
        self.stepper = stepper = Stepper(model, request)
        self.alpha, self.nbest, self.end = config.length_penalty, config.nbest, model.end_id
        self.count, self.width = len(request.sources), config.beams
        self.candidates = min(self.width, stepper.choices)
        self.sources = torch.arange(self.count, device=device)  # (B,)
        self.slots = torch.arange(self.width, device=device)  # (K,)
        self.open = torch.full((self.count, 1), self.width, device=device)  # slots not yet taken by an end
        self.live = torch.full((self.count, self.width), -torch.inf, device=device)
        self.live[:, 0] = 0  # all beams begin equal: only the first may branch
        self.tokens = request.first(model)
        self.ids = torch.empty(len(self.tokens), stepper.longest + 1, dtype=torch.long, device=device)
        # log P only falls and the penalty only grows, so the limit's penalty bounds a live hypothesis.
        bounds = [length_penalty(limit + 1, self.alpha) for limit in request.limits(model)]
        self.bounds = torch.tensor(bounds, device=device)
        self.kept = torch.full((self.count, self.nbest), -torch.inf, device=device)
        self.ended: list[tuple[Tensor, Tensor, Tensor]] = []

    def searched(self, state: Any) -> Self:
        """The same, grown from a state in which nothing is written to the end."""
        for step in range(self.stepper.longest + 1):
            log_probs, state = self.stepper(self.tokens, state, step)
            rows = self.extend(log_probs, step)
            if not len(rows):
                break
            state = state.select(rows)
            self.stepper.select(rows)
        return self

    def extend(self, log_probs: Tensor, step: int) -> Tensor:
        """Grow every hypothesis by a token (R, V); the rows that go on, in their new order."""
        gains, tokens = best(log_probs, self.candidates)
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
        """Move the hypotheses that have just ended from the beam to the finished ones."""
        ends = (self.tokens == self.end).view_as(self.live) & (self.live > -torch.inf)
        rows = ends.flatten().nonzero()[:, 0]
        if len(rows):
            self.ended.append((self.sources[rows // self.width], self.ids[rows, :step], self.live[ends]))
            scores = self.live.where(ends, -torch.inf) / length_penalty(step + 1, self.alpha)
            self.kept = torch.cat((self.kept, scores), dim=1).topk(self.nbest)[0]  # (B, N + K) -> (B, N)
            self.live.masked_fill_(ends, -torch.inf)
            self.open -= ends.sum(1, keepdim=True)

    def _drop(self, rows: Tensor) -> Tensor:
        """Leave the sources whose live hypotheses have lost; the rows of those that go on."""
        if not self.ended:
            return rows
        going = self.live.amax(1) / self.bounds > self.kept[:, -1]
        staying = going.nonzero()[:, 0]
        if len(staying) == len(going):
            return rows
        self.sources, self.open, self.live, self.bounds, self.kept = (
            kept[staying] for kept in (self.sources, self.open, self.live, self.bounds, self.kept)
        )
        places = (staying[:, None] * self.width + self.slots).flatten()  # (B, K) -> (R,)
        self.tokens, self.ids = self.tokens[places], self.ids[places]
        return rows[places]

    def hypotheses(self) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in range(self.count)]
        for sources, ids, log_probs in self.ended:
            for source, path, log_prob in zip(sources.tolist(), ids.tolist(), log_probs.tolist(), strict=True):
                found[source].append(score_hypothesis(path, log_prob, self.alpha))
        return [rank_hypotheses(hypotheses, self.nbest) for hypotheses in found]
