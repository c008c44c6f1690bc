"""Mask filling: texts with [MASK], and predictions for each mask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headwise.errors import UserError
from headwise.tasks.base import Sample
from headwise.text.base import Tokeniser
from headwise.text.vocabulary import Bytes, Characters

MASK = "[MASK]"


@dataclass(frozen=True)
class FilledMask:
    """A prediction for a mask."""

    word: str
    probability: float


Fill = Callable[[Sequence[str]], list[list[list[FilledMask]]]]  # of each text and mask, most probable first


def encode_masked(text: str, tokeniser: Tokeniser, masks: Iterable[int]) -> list[int]:
    """The ids of a text without special tokens, with one id of `masks` for each [MASK]."""
    if MASK not in text:
        raise UserError(f"there is no {MASK} in '{text}'; write one where a word is missing")
    ids, *others = tokeniser.encode_around_masks(text.split(MASK))
    for piece, mask in zip(others, masks, strict=False):
        ids = [*ids, mask, *piece]
    return ids


def hide_word(text: str, tokeniser: Tokeniser, max_words: int = 24) -> tuple[str, str]:
    """The first words of a text with one of them masked, and that word; a character where tokens are characters.

    >>> from headwise.text.vocabulary import Words
    >>> hide_word("we must cross the river", Words([]))
    ('we must [MASK] the river', 'cross')
    """
    letters = isinstance(tokeniser, Characters | Bytes)
    units = list(text[: 4 * max_words]) if letters else text.split()[:max_words]
    middle = len(units) // 2
    gap = "" if letters else " "
    return gap.join([*units[:middle], MASK, *units[middle + 1 :]]), gap.join(units[middle : middle + 1])


def sample_fills(texts: Sequence[str], tokeniser: Tokeniser, fill: Fill) -> list[Sample]:
    """Mask one word of each text, and predict it."""
    masked = [hide_word(text, tokeniser) for text in texts]
    fills = fill([source for source, _ in masked])
    return [Sample(source, best.word, word) for (source, word), ((best, *_), *_) in zip(masked, fills, strict=True)]
