"""Texts with missing spans, to be written by a decoder (Raffel et al. 2020, section 3.1.4: span corruption).

    Thank you for inviting me to your party last week .
    source: Thank you <X> me to your party <Y> week .
    target: <X> for inviting <Y> last <Z>

`share` of the tokens are missing, in spans of `span` tokens in the mean. Each span becomes a sentinel in the source;
the target has each sentinel with what it stands for, and one more where the text goes on after the last span. Sentinels
are the last rows of the vocabulary, from the very last one down.

DISCREPANCY: the paper shows that final sentinel; spans are drawn as by the released code, where a text always ends with
a missing one. So 568 tokens become 512 to read and 114 to write, both with EOS.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.data.collate import PairBatch, collate
from headwise.data.denoising import DenoisingBlocks
from headwise.data.examples import Examples

SENTINELS = 100


class SpanCorruptionBlocks(DenoisingBlocks):
    """Span corruption. Texts whose sources have at most `context` tokens, EOS included; `vocab` counts words and
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
        return collate(self.pairs(starts, random), np.arange(len(starts)))

    def pairs(self, starts: np.ndarray, random: np.random.Generator) -> Examples:
        """Sources and targets of the blocks that begin at these places."""
        texts = self.texts(starts, self.context)
        return Examples.from_rows(
            corrupt_spans(text, draw_noise_mask(len(text), self.share, self.span, random), self.vocab) for text in texts
        )


def count_spans(length: int, share: float, span: float) -> tuple[int, int]:
    """How many of so many tokens are missing, and in how many spans: no more than there are sentinels.

    >>> count_spans(568, 0.15, 3.0)
    (85, 28)
    """
    if length < 2:
        return 0, 0
    absent = min(max(round(length * share), 1), length - 1)
    return absent, min(max(round(absent / span), 1), absent, length - absent, SENTINELS)


def compute_lengths(length: int, share: float, span: float) -> tuple[int, int]:
    """How many tokens, EOS included, the source and the target of so many have.

    >>> compute_lengths(568, 0.15, 3.0)
    (512, 114)
    """
    absent, parts = count_spans(length, share, span)
    return length - absent + parts + 1, absent + max(parts, 1) + 1


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
    """Which of so many tokens are missing, (length,) bool: what stays and what does not in turn, in random lengths."""
    absent, parts = count_spans(length, share, span)
    if not parts:
        return np.zeros(length, bool)
    sizes = [draw_partition(total, parts, random) for total in (length - absent, absent)]
    return np.repeat(np.arange(2 * parts) % 2 == 1, np.column_stack(sizes).ravel())


def draw_partition(total: int, parts: int, random: np.random.Generator) -> np.ndarray:
    """`total` as a sum of so many numbers from 1 on, all such sums equally probable."""
    cuts = np.sort(random.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupt_spans(ids: np.ndarray, absent: np.ndarray, vocab: int) -> tuple[list[int], list[int]]:
    """Source and target of a text some of whose tokens are absent.

    >>> corrupt_spans(np.array([4, 5, 6, 7, 8]), np.array([0, 1, 1, 0, 0], bool), vocab=110)
    ([4, 109, 7, 8], [109, 5, 6, 108])
    """
    first = absent & ~np.concatenate([[False], absent[:-1]])
    *sentinels, final = (vocab - np.arange(1, first.sum() + 2)).tolist()
    source = ids.copy()
    source[first] = sentinels
    target = np.insert(ids[absent], np.flatnonzero(first[absent]), sentinels)
    return source[~absent | first].tolist(), [*target.tolist(), *([] if absent[-1:].any() else [final])]


def restore_text(source: Sequence[int], target: Sequence[int], vocab: int) -> list[int]:
    """The text of a source and a target. A sentinel that the target does not have stands for nothing.

    >>> restore_text([4, 109, 7, 8], [109, 5, 6, 108], vocab=110)
    [4, 5, 6, 7, 8]
    """
    found = parse_target(target, vocab)
    return [token for given in source for token in found.get(given, [given] if given < vocab - SENTINELS else [])]


def parse_target(target: Sequence[int], vocab: int) -> dict[int, list[int]]:
    """What stands behind each sentinel of a target.

    >>> parse_target([109, 5, 6, 108], vocab=110)
    {109: [5, 6], 108: []}
    """
    found: dict[int, list[int]] = {}
    last: list[int] = []
    for token in target:
        if token >= vocab - SENTINELS:
            last = found.setdefault(token, [])
        else:
            last.append(token)
    return found
