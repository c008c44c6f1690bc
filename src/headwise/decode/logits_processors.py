"""Rules that look back: what stands in a row's past changes what may follow.

Letters: R rows, V vocabulary, L length of the past. A past is a row's prompt, padded on the left, and what was written.
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
    """The logits processors of a search: what a config asks for beyond the model's own P. These are null: nothing."""

    def process(self, logits: Tensor, tokens: Tensor, done: int) -> Tensor:
        """The logits (R, V) after `done` written tokens, of which `tokens` (R,) are the last, changed."""
        return logits

    def finish(self, log_probs: Tensor, limits: Tensor, done: int) -> None:
        """Close ways: log P (R, V) of what may not be written becomes -inf. Rows end at their limits (R,) anyway."""

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, in this order."""


class HistoryProcessors(LogitsProcessors):
    """The rules of a config on what may follow a past, (R, L)."""

    def __init__(self, config: DecodeConfig, past: Tensor, end: int, tokeniser: Tokeniser | None = None):
        if config.stop and tokeniser is None:
            raise UserError("decode.stop: stop strings end what a language model writes; leave them out here")
        self.config, self.past, self.end, self.tokeniser = config, past, end, tokeniser

    def process(self, logits: Tensor, tokens: Tensor, done: int) -> Tensor:
        if done:
            self.past = torch.cat((self.past, tokens[:, None]), dim=1)
        penalty = self.config.repetition_penalty
        return logits if penalty == 1 else penalize_repeats(logits, self.past, penalty)

    def finish(self, log_probs: Tensor, limits: Tensor, done: int) -> None:
        if self.config.no_repeat_ngram:
            forbid_repeats(log_probs, self.past, self.config.no_repeat_ngram)
        if done < self.config.min_length:
            log_probs[:, self.end].masked_fill_(limits > done, -torch.inf)
        if self.tokeniser and self.config.stop:
            over = find_stops(self.tokeniser, self.past, done, self.config.stop)
            log_probs.masked_fill_(over[:, None], -torch.inf)
            log_probs[:, self.end].masked_fill_(over, 0)

    def select(self, rows: Tensor) -> None:
        self.past = self.past[rows]


def penalize_repeats(logits: Tensor, past: Tensor, penalty: float) -> Tensor:
    """Repetition penalty: logits (R, V) in which those of tokens of the past (R, L) are divided by `penalty` (Keskar et
    al. 2019, 4.1).

    DISCREPANCY: the paper divides all; dividing a negative one would make its token likelier, so these are multiplied.

    >>> penalize_repeats(torch.tensor([[0.0, 3.0, -3.0, 3.0]]), torch.tensor([[1, 2, 1]]), 1.5).tolist()
    [[0.0, 2.0, -4.5, 3.0]]
    """
    there = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, past, True)
    there[:, PAD] = False
    return torch.where(there, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def forbid_repeats(log_probs: Tensor, past: Tensor, size: int) -> None:
    """N-gram blocking: close the tokens that would make the last `size` tokens a sequence that was there (Paulus et al.
    2018, 2.5).

    >>> log_probs = torch.zeros(1, 7)
    >>> forbid_repeats(log_probs, torch.tensor([[4, 5, 6, 4]]), 2)
    >>> log_probs.tolist()
    [[-inf, 0.0, 0.0, 0.0, 0.0, -inf, 0.0]]
    """
    if past.shape[1] < size:
        return
    grams = past.unfold(1, size, 1)  # (R, L) -> (R, L - size + 1, size)
    again = (grams[..., :-1] == past[:, None, past.shape[1] - size + 1 :]).all(-1)
    log_probs.scatter_(1, grams[..., -1].where(again, PAD), -torch.inf)  # PAD is never written anyway


def find_stops(tokeniser: Tokeniser, past: Tensor, written: int, stop: Sequence[str]) -> Tensor:
    """Whether the text of the last `written` tokens of each row holds a stop string, (R,); earlier ones were looked at
    when they were the last."""
    reach = max(len(text.encode()) for text in stop)  # how many tokens it may span: each has a byte or more
    new = min(written, reach)
    # One more token, whose text is left out again: it decides how the next one is joined to it.
    tails = past[:, max(0, past.shape[1] - new - 1) :].tolist()

    def holds(tail: list[int]) -> bool:
        text = tokeniser.decode(tail)[len(tokeniser.decode(tail[: len(tail) - new])) :]
        return any(each in text for each in stop)

    return torch.tensor([holds(tail) for tail in tails], device=past.device)
