"""Span corruption, the denoising objective of T5 (Raffel et al. 2020, section 3.1.4).

    Thank you for inviting me to your party last week .
    source: Thank you <X> me to your party <Y> week .
    target: <X> for inviting <Y> last <Z>

`share` of the tokens are removed, in spans of `span` tokens on average. Each span becomes a sentinel in the source; the
target has each sentinel with the tokens of its span, and a final one where the text continues after the last span.
Sentinels are the last ids of the vocabulary, from the very last one down.

DISCREPANCY: the final sentinel is as in the paper; spans are drawn as by the released code, where a text always ends
with a removed span. So 568 tokens become a source of 512 and a target of 114, both with EOS.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.data.collate import PairBatch, collate
from headwise.data.denoising import DenoisingBlocks
from headwise.data.examples import Examples

SENTINELS = 100


class SpanCorruptionBlocks(DenoisingBlocks[PairBatch]):
    """Span corruption of texts whose sources have at most `context` tokens, EOS included; `vocab` counts tokens and
    sentinels."""

    def __init__(
        self,
        examples: Examples,
        context: int,
        vocab: int,
        share: float = 0.15,
        span: float = 3.0,
        seed: int = 0,
        tokens_per_batch: int = 0,
        batch_size: int = 0,
    ):
        super().__init__(examples, compute_text_length(context, share, span), seed, tokens_per_batch, batch_size)
        self.vocab, self.share, self.span = vocab, share, span

    def corrupt(self, starts: np.ndarray, random: np.random.Generator) -> PairBatch:
        return collate(self.build_pairs(starts, random), np.arange(len(starts)))

    def build_pairs(self, starts: np.ndarray, random: np.random.Generator) -> Examples:
        """Sources and targets of the blocks that start at these positions."""
        texts = self.read_texts(starts, self.context)
        return Examples.from_rows(
            corrupt_spans(text, draw_noise_mask(len(text), self.share, self.span, random), self.vocab) for text in texts
        )


def count_spans(length: int, share: float, span: float) -> tuple[int, int]:
    """How many of `length` tokens are removed, and in how many spans: at most as many as there are sentinels.

    >>> count_spans(568, 0.15, 3.0)
    (85, 28)
    """
    if length < 2:
        return 0, 0
    removed = min(max(round(length * share), 1), length - 1)
    return removed, min(max(round(removed / span), 1), removed, length - removed, SENTINELS)


def compute_lengths(length: int, share: float, span: float) -> tuple[int, int]:
    """The lengths of source and target, EOS included, for a text of `length` tokens.

    >>> compute_lengths(568, 0.15, 3.0)
    (512, 114)
    """
    removed, spans = count_spans(length, share, span)
    return length - removed + spans + 1, removed + max(spans, 1) + 1


def compute_text_length(context: int, share: float, span: float) -> int:
    """The longest text whose source has at most `context` tokens, EOS included.

    >>> compute_text_length(512, 0.15, 3.0)
    568
    """
    length = context - 1
    while compute_lengths(length + 1, share, span)[0] <= context:
        length += 1
    return length


def draw_noise_mask(length: int, share: float, span: float, random: np.random.Generator) -> np.ndarray:
    """Which tokens are removed, (length,) bool: kept and removed spans alternate, of random lengths."""
    removed, spans = count_spans(length, share, span)
    if not spans:
        return np.zeros(length, bool)
    sizes = [draw_partition(total, spans, random) for total in (length - removed, removed)]
    return np.repeat(np.arange(2 * spans) % 2 == 1, np.column_stack(sizes).ravel())


def draw_partition(total: int, parts: int, random: np.random.Generator) -> np.ndarray:
    """`total` as a sum of `parts` positive integers, uniform over all such sums."""
    cuts = np.sort(random.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupt_spans(ids: np.ndarray, noise: np.ndarray, vocab: int) -> tuple[list[int], list[int]]:
    """Source and target of a text whose tokens are removed where `noise` is True.

    >>> corrupt_spans(np.array([4, 5, 6, 7, 8]), np.array([0, 1, 1, 0, 0], bool), vocab=110)
    ([4, 109, 7, 8], [109, 5, 6, 108])
    """
    first = noise & ~np.concatenate([[False], noise[:-1]])
    *sentinels, final = (vocab - np.arange(1, first.sum() + 2)).tolist()
    source = ids.copy()
    source[first] = sentinels
    target = np.insert(ids[noise], np.flatnonzero(first[noise]), sentinels)
    return source[~noise | first].tolist(), [*target.tolist(), *([] if noise[-1:].any() else [final])]


def restore_text(source: Sequence[int], target: Sequence[int], vocab: int) -> list[int]:
    """The text of a source and a target. A sentinel that the target lacks stands for no tokens.

    >>> restore_text([4, 109, 7, 8], [109, 5, 6, 108], vocab=110)
    [4, 5, 6, 7, 8]
    """
    spans = parse_target(target, vocab)
    return [token for read in source for token in spans.get(read, [read] if read < vocab - SENTINELS else [])]


def parse_target(target: Sequence[int], vocab: int) -> dict[int, list[int]]:
    """The span after each sentinel of a target.

    >>> parse_target([109, 5, 6, 108], vocab=110)
    {109: [5, 6], 108: []}
    """
    spans: dict[int, list[int]] = {}
    span: list[int] = []
    for token in target:
        if token >= vocab - SENTINELS:
            span = spans.setdefault(token, [])
        else:
            span.append(token)
    return spans
