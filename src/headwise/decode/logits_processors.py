"""Logits processors: repetition penalty, n-gram blocking, minimum length, stop strings.

Letters: R rows, V vocabulary, L length of the history: a row's prompt, padded on the left, and its generated tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.decode.config import DecodeConfig
from headwise.errors import UserError
from headwise.text import PAD
from headwise.text.base import Tokeniser


class LogitsProcessors:
    """The logits processors of a search; this null object changes nothing."""

    def process(self, logits: Tensor, tokens: Tensor, done: int) -> Tensor:
        """Process the logits (R, V) after `done` generated tokens, of which `tokens` (R,) are the last."""
        return logits

    def finish(self, log_probs: Tensor, limits: Tensor, done: int) -> None:
        """Set log P (R, V) of forbidden tokens to -inf, in place; at their limits (R,) rows end in any case."""

    def select(self, rows: Tensor) -> None:
        """Continue with these rows, in this order."""


class HistoryProcessors(LogitsProcessors):
    """The logits processors of a config that depend on the history (R, L)."""

    def __init__(self, config: DecodeConfig, history: Tensor, end: int, tokeniser: Tokeniser | None = None):
        if config.stop and tokeniser is None:
            raise UserError("decode.stop: stop strings need the tokeniser of a language model; leave them out")
        self.config, self.history, self.end, self.tokeniser = config, history, end, tokeniser

    def process(self, logits: Tensor, tokens: Tensor, done: int) -> Tensor:
        if done:
            self.history = torch.cat((self.history, tokens[:, None]), dim=1)
        penalty = self.config.repetition_penalty
        return logits if penalty == 1 else penalize_repeats(logits, self.history, penalty)

    def finish(self, log_probs: Tensor, limits: Tensor, done: int) -> None:
        if self.config.no_repeat_ngram:
            forbid_repeats(log_probs, self.history, self.config.no_repeat_ngram)
        if done < self.config.min_length:
            log_probs[:, self.end].masked_fill_(limits > done, -torch.inf)
        if self.tokeniser and self.config.stop:
            stopped = find_stops(self.tokeniser, self.history, done, self.config.stop)
            log_probs.masked_fill_(stopped[:, None], -torch.inf)
            log_probs[:, self.end].masked_fill_(stopped, 0)

    def select(self, rows: Tensor) -> None:
        self.history = self.history[rows]


def penalize_repeats(logits: Tensor, history: Tensor, penalty: float) -> Tensor:
    """Repetition penalty (Keskar et al. 2019, 4.1): divides the logits (R, V) of tokens of the history (R, L).

    DISCREPANCY: the paper divides all logits; dividing a negative one would raise it, so negative ones are multiplied.

    >>> penalize_repeats(torch.tensor([[0.0, 3.0, -3.0, 3.0]]), torch.tensor([[1, 2, 1]]), 1.5).tolist()
    [[0.0, 2.0, -4.5, 3.0]]
    """
    repeated = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, history, True)
    repeated[:, PAD] = False
    return torch.where(repeated, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def forbid_repeats(log_probs: Tensor, history: Tensor, size: int) -> None:
    """N-gram blocking (Paulus et al. 2018, 2.5): forbids tokens that would complete an n-gram of the history again.

    >>> log_probs = torch.zeros(1, 7)
    >>> forbid_repeats(log_probs, torch.tensor([[4, 5, 6, 4]]), 2)
    >>> log_probs.tolist()
    [[-inf, 0.0, 0.0, 0.0, 0.0, -inf, 0.0]]
    """
    if history.shape[1] < size:
        return
    ngrams = history.unfold(1, size, 1)  # (R, L) -> (R, L - size + 1, size)
    matches = (ngrams[..., :-1] == history[:, None, history.shape[1] - size + 1 :]).all(-1)
    log_probs.scatter_(1, ngrams[..., -1].where(matches, PAD), -torch.inf)  # PAD is never generated anyway


def find_stops(tokeniser: Tokeniser, history: Tensor, generated: int, stop: Sequence[str]) -> Tensor:
    """Whether the text of the last `generated` tokens of each row contains a stop string, (R,); earlier tokens were
    checked in earlier steps."""
    span = max(len(string.encode()) for string in stop)  # the most tokens of a stop string: each has a byte or more
    new = min(generated, span)
    # One more token, whose text is removed again: it decides how the next one is joined to it.
    tails = history[:, max(0, history.shape[1] - new - 1) :].tolist()

    def has_stop(tail: list[int]) -> bool:
        text = tokeniser.decode(tail)[len(tokeniser.decode(tail[: len(tail) - new])) :]
        return any(string in text for string in stop)

    return torch.tensor([has_stop(tail) for tail in tails], device=history.device)
