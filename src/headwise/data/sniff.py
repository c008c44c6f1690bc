"""Format sniffing: statistics of a user's pairs, and the tokeniser that suits them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from headwise.data.config import TextDataConfig
from headwise.data.corpora import open_training_pairs
from headwise.text.config import TOKENISERS, TokeniserConfig

SAMPLE = 20_000  # pairs of which the statistics are; the others are only counted


@dataclass(frozen=True)
class Side:
    """Statistics of one side of the pairs."""

    mean_words: float
    mean_characters: float
    longest: int  # characters
    distinct_words: int
    distinct_characters: int
    symbols: bool  # its words are symbols, short and few, such as phonemes


@dataclass(frozen=True)
class Facts:
    """Statistics of the pairs, the recommended tokeniser, and the reason for it on each side."""

    rows: int
    source: Side
    target: Side
    tokeniser: TokeniserConfig
    reasons: tuple[str, str]


def sniff(data: TextDataConfig) -> Facts:
    """Inspect the training pairs and recommend a tokeniser."""
    pairs = iter(open_training_pairs(data))
    sample = list(islice(pairs, SAMPLE))
    rows = len(sample) + sum(1 for _ in pairs)
    texts = list(zip(*sample, strict=True))
    source, target = map(_describe_side, texts)
    size = _choose_bpe_size(rows * (source.mean_words + target.mean_words))
    config, source_reason = _choose_tokeniser(source, size)
    target_config, target_reason = _choose_tokeniser(target, size)
    if config != target_config:
        config = {**config, "target": target_config}
    elif config["kind"] == "bpe" and _share_alphabet(*texts):
        config = {**config, "shared": True}
        target_reason += "; both sides are written in the same letters and share one vocabulary"
    tokeniser = cast(TokeniserConfig, TOKENISERS.parse(config))
    return Facts(rows, source, target, tokeniser, (source_reason, target_reason))


def _describe_side(texts: Sequence[str]) -> Side:
    words = [word for text in texts for word in text.split()]
    distinct = set(words)
    few = len(distinct) <= min(200, len(words) / 10)
    short = sum(map(len, distinct)) <= 5 * len(distinct)
    return Side(
        mean_words=len(words) / len(texts),
        mean_characters=sum(map(len, texts)) / len(texts),
        longest=max(map(len, texts)),
        distinct_words=len(distinct),
        distinct_characters=len(set().union(*texts)),
        symbols=len(words) > 1.5 * len(texts) and few and short,
    )


def _choose_tokeniser(side: Side, size: int) -> tuple[dict[str, Any], str]:
    """The tokeniser of one side and the reason for it."""
    if side.symbols:
        return {"kind": "words"}, f"{side.distinct_words} different symbols between spaces: one token each"
    if side.mean_words <= 4 and side.mean_characters <= 32:
        return (
            {"kind": "characters"},
            f"short texts of {side.mean_characters:.0f} characters on average: one token a character",
        )
    return (
        {"kind": "bpe", "size": size},
        f"sentences of {side.mean_words:.0f} words on average: {size} pieces of words fit this much text",
    )


def _choose_bpe_size(words: float) -> int:
    """About 8,000 tokens for the 0.7 million words of Multi30k, growing with the square root."""
    return min(max(round(math.sqrt(words) / 100) * 1000, 1000), 32_000)


def _share_alphabet(source: Sequence[str], target: Sequence[str]) -> bool:
    """Whether at least half of all letters occur on both sides."""
    left, right = ({letter for letter in set().union(*side) if letter.isalpha()} for side in (source, target))
    return len(left & right) >= len(left | right) / 2
