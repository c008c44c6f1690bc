"""Words with their heads in a dependency tree: in `dogs|2 bark|0` the second word is the head of the first."""

from __future__ import annotations

from collections.abc import Iterable

from headwise.errors import UserError
from headwise.text import SPECIALS
from headwise.text.vocabulary import Words

HEAD_SEPARATOR = "|"


class Parsed(Words):
    """A word tokeniser for dependency trees. An id encodes word and head: word + size * head.

    >>> words = Parsed(["bark", "dogs"])
    >>> words.encode("dogs|2 bark|0"), words.decode([17, 4])
    ([17, 4], 'dogs bark')
    """

    kind = "parsed"

    @property
    def id_limit(self) -> int:
        return 2**31 - 1  # a head may be any word of a text of any length

    @staticmethod
    def split_units(text: str) -> Iterable[str]:
        return [word for word, _ in split_heads(text)]

    def encode(self, text: str) -> list[int]:
        parsed = split_heads(self.normalise(text))
        words = super().encode(" ".join(f"{word}{HEAD_SEPARATOR}{head}" for word, head in parsed))
        return [number + self.size * head for number, (_, head) in zip(words, parsed, strict=True)]

    def words(self, text: str) -> list[str]:
        return list(self.split_units(self.normalise(text)))

    def decode(self, ids: Iterable[int]) -> str:
        return super().decode(number % self.size for number in ids)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return super().tokens(number % self.size for number in ids)


def split_heads(text: str) -> list[tuple[str, int]]:
    """Split a text into words and their heads."""
    pairs = []
    cells = text.split()
    for cell in cells:
        word, separator, head = cell.rpartition(HEAD_SEPARATOR)
        if cell in SPECIALS:
            word, head = cell, "0"
        elif not separator or not head.isdecimal() or int(head) > len(cells):
            raise UserError(f"'{cell}': a parsed word is written with its head, as in dogs|2 bark|0")
        pairs.append((word, int(head)))
    return pairs
