"""One path per row, one token at a time: the loop that greedy decoding and sampling share."""

from __future__ import annotations

from collections.abc import Callable
from math import fsum
from typing import Any

import torch
from torch import Tensor

from headwise.decode.generator import Generator, Request, Stepper
from headwise.decode.hypothesis import Hypothesis, rank_hypotheses, score_hypothesis

# (log P (R, V), tokens so far, numbers of the rows (R,)) -> log P and id of each row's next token
PickToken = Callable[[Tensor, int, Tensor], tuple[Tensor, Tensor]]


def run_token_loop(model: Generator, state: Any, request: Request, pick: PickToken) -> list[list[Hypothesis]]:
    """Follow `pick` from `state`, which has `config.rows` rows a source, until every row has ended."""
    stepper = Stepper(model, request)
    paths = Paths(model, request)
    # A look at what has ended makes the host wait for the device: dear on a GPU, free on a CPU.
    patience = 1 if request.device.type == "cpu" else 8
    for step in range(stepper.longest + 1):
        log_probs, state = stepper(paths.tokens, state, step)
        gains, tokens = pick(log_probs, step, paths.rows)
        paths.extend(gains, tokens, ended=tokens == model.end_id)
        if step % patience == 0 or step == stepper.longest:
            rows = paths.drop_ended()
            if rows is None:
                continue
            if not len(rows):
                break
            state = state.select(rows)
            stepper.select(rows)
    return paths.hypotheses(model.end_id, request.config.length_penalty)


class Paths:
    """What every row has produced so far; sources whose rows have all ended leave."""

    def __init__(self, model: Generator, request: Request):
        device = request.device
        self.sources = len(request.sources)
        self.copies = request.config.rows
        count = self.sources * self.copies
        self.rows = torch.arange(count, device=device)  # (R,) numbers in the batch as it was at the start
        self.tokens = request.first(model)
        self.over = torch.zeros(count, dtype=torch.bool, device=device)
        self.ids: list[Tensor] = []  # (R,) of a step, or (R, n) of several before rows left; the same of gains
        self.gains: list[Tensor] = []
        self.gone: list[tuple[Tensor, Tensor, Tensor]] = []

    def extend(self, gains: Tensor, tokens: Tensor, ended: Tensor) -> None:
        self.tokens = tokens
        self.ids.append(tokens)
        self.gains.append(gains)
        self.over |= ended

    def drop_ended(self) -> Tensor | None:
        """Take out the sources that are through; the rows that stay, or None if all do."""
        if not self.over.any():
            return None
        through = self.over.view(-1, self.copies).all(1)  # (R,) -> (B,)
        if not through.any():
            return None
        over = through.repeat_interleave(self.copies)  # (B,) -> (R,)
        leaving, staying = over.nonzero()[:, 0], (~over).nonzero()[:, 0]
        ids, gains = torch.column_stack(self.ids), torch.column_stack(self.gains)  # (R, steps)
        self.gone.append((self.rows[leaving], ids[leaving], gains[leaving]))
        self.rows, self.tokens, self.over = (kept[staying] for kept in (self.rows, self.tokens, self.over))
        self.ids, self.gains = [ids[staying]], [gains[staying]]
        return staying

    def hypotheses(self, end: int, alpha: float) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in range(self.sources)]
        for rows, ids, gains in self.gone:
            for row, path, steps in zip(rows.tolist(), ids.tolist(), gains.tolist(), strict=True):
                length = path.index(end)
                log_prob = fsum(steps[: length + 1])
                found[row // self.copies].append(score_hypothesis(path[:length], log_prob, alpha))
        return [rank_hypotheses(hypotheses, self.copies) for hypotheses in found]
