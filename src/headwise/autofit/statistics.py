"""Statistics of a user's examples: sizes, labels, lengths, and the tokeniser that suits each side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from headwise.data.config import TextDataConfig
from headwise.data.corpora import open_training_pairs
from headwise.data.splits import fingerprint
from headwise.data.texts import Continuation, Pair

SAMPLE = 20_000  # pairs whose words and characters are counted; the others are only counted
MAX_LABELS = 10_000  # different targets that are counted


@dataclass(frozen=True)
class Side:
    """Statistics of one side of the pairs."""

    mean_words: float
    mean_characters: float
    longest: int  # characters
    most_words: int  # of a text; of all sources, not of a sample
    distinct_words: int
    distinct_characters: int
    symbols: bool  # its words are symbols, short and few, such as phonemes


@dataclass(frozen=True)
class Statistics:
    """Statistics of all training pairs; words and characters are those of a sample."""

    rows: int
    distinct_sources: int  # or texts, where there are no sources
    characters: int  # of the targets
    source: Side
    target: Side
    labels: Counter[str]  # how often each target occurs; empty if there are too many
    examples: tuple[Pair, ...]
    same_alphabet: bool  # of both sides


def compute_statistics(data: TextDataConfig) -> Statistics:
    """Read the training pairs once."""
    sample: list[Pair] = []
    sources: set[int] = set()
    labels: Counter[str] = Counter()
    rows = characters = most_words = 0
    for source, target in open_training_pairs(data):
        characters += len(target)
        if len(sample) < SAMPLE:
            sample.append((source, target))
        if isinstance(target, Continuation):
            continue
        rows += 1
        most_words = max(most_words, len(source.split()))
        sources.add(fingerprint(source or target))
        if len(labels) <= MAX_LABELS:
            labels[target] += 1
    texts = list(zip(*sample, strict=True))
    source_side, target_side = map(_describe_side, texts)
    source_side = replace(source_side, most_words=most_words)
    examples = tuple(dict.fromkeys(islice(sample, 200)))[:3]
    counted = Counter(dict(labels.most_common())) if len(labels) <= MAX_LABELS else Counter[str]()
    same = _share_alphabet(*texts)
    return Statistics(rows, len(sources), characters, source_side, target_side, counted, examples, same)


def _describe_side(texts: Sequence[str]) -> Side:
    words = [word for text in texts for word in text.split()]
    distinct = set(words)
    few = len(distinct) <= min(200, len(words) / 10)
    short = sum(map(len, distinct)) <= 5 * len(distinct)
    return Side(
        mean_words=len(words) / len(texts),
        mean_characters=sum(map(len, texts)) / len(texts),
        longest=max(map(len, texts)),
        most_words=max(len(text.split()) for text in texts),
        distinct_words=len(distinct),
        distinct_characters=len(set().union(*texts)),
        symbols=len(words) > 1.5 * len(texts) and few and short,
    )


def choose_tokeniser(side: Side, size: int) -> tuple[dict[str, Any], str]:
    """The tokeniser of one side of pairs and the reason for it; `size` is that of a vocabulary of word pieces."""
    if side.symbols:
        return {"kind": "words"}, f"{side.distinct_words} different symbols between spaces: one token each"
    if side.mean_words <= 4 and side.mean_characters <= 32:
        return (
            {"kind": "characters"},
            f"short texts of {side.mean_characters:.0f} characters on average: one token a character",
        )
    return (
        {"kind": "bpe", "size": size},
        f"sentences of {side.mean_words:.0f} words on average: {size:,} word pieces (BPE) for this much text",
    )


def choose_bpe_size(words: float) -> int:
    """About 8,000 tokens for the 0.7 million words of Multi30k, growing with the square root.

    >>> choose_bpe_size(700_000), choose_bpe_size(1000)
    (8000, 1000)
    """
    return min(max(round(math.sqrt(words) / 100) * 1000, 1000), 32_000)


def _share_alphabet(source: Sequence[str], target: Sequence[str]) -> bool:
    """Whether at least half of all letters occur on both sides."""
    left, right = ({letter for letter in set().union(*side) if letter.isalpha()} for side in (source, target))
    return bool(left) and len(left & right) >= len(left | right) / 2
