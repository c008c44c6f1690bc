"""The token loop of greedy decoding and sampling: one hypothesis per row, one token per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum
from typing import Any

import torch
from torch import Tensor

from headwise.decode.config import DecodeConfig
from headwise.decode.generator import Generator, NextTokenScorer, Request
from headwise.decode.hypothesis import Hypothesis, rank_hypotheses, score_hypothesis

# (log P (R, V), step, indices of the rows at the start (R,)) -> log P and id of the next token of each row
PickToken = Callable[[Tensor, int, Tensor], tuple[Tensor, Tensor]]


def run_token_loop(model: Generator, state: Any, request: Request, pick: PickToken) -> list[list[Hypothesis]]:
    """Generate tokens with `pick` until every row has ended; `state` has `config.rows` rows per source."""
    scorer = NextTokenScorer(model, request)
    paths = Paths(model, request)
    # Checking which rows have ended synchronises host and device: expensive on a GPU, free on a CPU.
    check_every = 1 if request.device.type == "cpu" else 8
    for step in range(scorer.steps):
        log_probs, state = scorer(paths.tokens, state)
        gains, tokens = pick(log_probs, step, paths.rows)
        paths.extend(gains, tokens, ended=scorer.find_ended(tokens, scorer.rows.limits, scorer.rows.done))
        scorer.extend(tokens)
        if step % check_every == 0 or step == scorer.steps - 1:
            rows = paths.drop_ended()
            if rows is None:
                continue
            if not len(rows):
                break
            state = state.select(rows)
            scorer.select(rows)
    return paths.hypotheses()


class Paths:
    """The tokens that each row has generated; a source is dropped when all of its rows have ended."""

    def __init__(self, model: Generator, request: Request):
        device = request.device
        self.config, self.convention = request.config, request.config.conventions
        self.ends = {model.end_id, *request.config.eos_token_ids}
        self.forced = request.count_forced(model)
        self.max_steps = [limit + self.convention.forces_eos for limit in request.compute_limits(model)]
        self.sources = len(request.sources)
        self.copies = request.config.rows
        count = self.sources * self.copies
        self.rows = torch.arange(count, device=device)  # (R,) indices in the batch at the start
        self.tokens = request.build_first_tokens(model)
        self.ended = torch.zeros(count, dtype=torch.bool, device=device)
        self.ids: list[Tensor] = []  # (R,) of one step, or (R, n) of the steps before rows were dropped; so are gains
        self.gains: list[Tensor] = []
        self.finished: list[tuple[Tensor, Tensor, Tensor]] = []

    def extend(self, gains: Tensor, tokens: Tensor, ended: Tensor) -> None:
        self.tokens = tokens
        self.ids.append(tokens)
        self.gains.append(gains)
        self.ended |= ended

    def drop_ended(self) -> Tensor | None:
        """Drop the sources whose rows have all ended; returns the remaining rows, or None if none was dropped."""
        if not self.ended.any():
            return None
        source_ended = self.ended.view(-1, self.copies).all(1)  # (R,) -> (B,)
        if not source_ended.any():
            return None
        done = source_ended.repeat_interleave(self.copies)  # (B,) -> (R,)
        dropped, active = done.nonzero()[:, 0], (~done).nonzero()[:, 0]
        ids, gains = torch.column_stack(self.ids), torch.column_stack(self.gains)  # (R, steps)
        self.finished.append((self.rows[dropped], ids[dropped], gains[dropped]))
        self.rows, self.tokens, self.ended = (tensor[active] for tensor in (self.rows, self.tokens, self.ended))
        self.ids, self.gains = [ids[active]], [gains[active]]
        return active

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first."""
        hypotheses: list[list[Hypothesis]] = [[] for _ in range(self.sources)]
        for rows, ids, gains in self.finished:
            for row, path, steps in zip(rows.tolist(), ids.tolist(), gains.tolist(), strict=True):
                source = row // self.copies
                hypotheses[source].append(self._score(path, steps, self.max_steps[source]))
        return [rank_hypotheses(candidates, self.copies) for candidates in hypotheses]

    def _score(self, path: list[int], log_probs: list[float], max_steps: int) -> Hypothesis:
        """The hypothesis of a row, up to its first EOS or, where outputs are cut at the maximum length, up to that."""
        ends = (step for step, token in enumerate(path[:max_steps]) if token in self.ends)
        length = next(ends, max_steps)
        return score_path(path[:length], log_probs[: min(length + 1, max_steps)], self.config, self.forced)


def score_path(ids: Sequence[int], log_probs: Sequence[float], config: DecodeConfig, forced: int) -> Hypothesis:
    """The hypothesis of `ids`, given log P of its tokens and of EOS, if it has one; `forced` tokens of the prompt count
    as generated."""
    length, penalty = forced + len(log_probs), config.conventions.length_penalty
    return score_hypothesis(ids, fsum(log_probs), config.length_penalty, length, penalty)
