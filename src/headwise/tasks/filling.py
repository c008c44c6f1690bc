"""Texts with [MASK] in them, and what may stand there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwise.errors import UserError
from headwise.text.base import Tokeniser
from headwise.text.listed import Bytes, Characters

MASK = "[MASK]"


@dataclass(frozen=True)
class Filling:
    """What may stand in the place of a mask."""

    word: str
    probability: float


def masked_ids(text: str, tokeniser: Tokeniser, masks: Iterable[int]) -> list[int]:
    """The ids of a text without marks, and of `masks` one for each [MASK]."""
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
