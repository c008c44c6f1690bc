"""Texts with [MASK] in them, and what may stand there."""

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
    """What may stand in the place of a mask."""

    word: str
    probability: float


Fill = Callable[[Sequence[str]], list[list[list[FilledMask]]]]  # for each text, for each mask, the best first


def masked_ids(text: str, tokeniser: Tokeniser, masks: Iterable[int]) -> list[int]:
    """The ids of a text without special tokens, and of `masks` one for each [MASK]."""
    first, *others = text.split(MASK)
    if not others:
        raise UserError(f"there is no {MASK} in '{text}'; write one where a word is missing")
    # Where units are words or pieces of them, a space before one belongs to it, and one after it to nobody.
    letters = isinstance(tokeniser, Characters | Bytes)
    pieces = [tokeniser.encode(piece if letters else piece.strip()) for piece in (first, *others)]
    ids = pieces[0]
    for piece, mask in zip(pieces[1:], masks, strict=False):
        ids = [*ids, mask, *piece]
    return ids


def check_one_mask(text: str, tokeniser: Tokeniser, most: int = 24) -> tuple[str, str]:
    """The first words of a text with one of them hidden, and this one; a letter where units are letters.

    >>> from headwise.text.vocabulary import Words
    >>> check_one_mask("we must cross the river", Words([]))
    ('we must [MASK] the river', 'cross')
    """
    letters = isinstance(tokeniser, Characters | Bytes)
    units = list(text[: 4 * most]) if letters else text.split()[:most]
    middle = len(units) // 2
    gap = "" if letters else " "
    return gap.join([*units[:middle], MASK, *units[middle + 1 :]]), gap.join(units[middle : middle + 1])


def fill_masks(texts: Sequence[str], tokeniser: Tokeniser, fill: Fill) -> list[Sample]:
    """What a model that fills gaps puts in the place of a hidden word of each text."""
    hidden = [check_one_mask(text, tokeniser) for text in texts]
    ways = fill([source for source, _ in hidden])
    return [
        Sample(source, best.word, reference) for (source, reference), ((best, *_), *_) in zip(hidden, ways, strict=True)
    ]
