"""Pairs that can be iterated again and again without being held, and parts of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from headwise.data.config import UNPAIRED
from headwise.data.read import Pair, read_pairs
from headwise.data.readers.base import Columns
from headwise.data.readers.text import read_texts
from headwise.data.texts import Continuation


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts, read from the files anew at each iteration: they need not fit in memory."""

    files: tuple[Path, ...]
    format: str = "tsv"
    column: str = "upos"
    one_to_one: bool = False
    reverse: bool = False
    columns: Columns = ()

    def __iter__(self) -> Iterator[Pair]:
        if not self.files:
            return
        if self.format in UNPAIRED:
            yield from (("", text) for text in read_texts(self.files, self.format))
            return
        for first, second in read_pairs(self.files, self.format, self.column, self.one_to_one, self.columns):
            yield (second, first) if self.reverse else (first, second)


@dataclass(frozen=True)
class Split:
    """The pairs whose sources (or targets that stand alone) have fingerprints within a range."""

    pairs: Iterable[Pair]
    prints: range

    def __iter__(self) -> Iterator[Pair]:
        inside = False
        for source, target in self.pairs:
            if not isinstance(target, Continuation):  # the pieces of a text go together
                inside = fingerprint(source or target) in self.prints
            if inside:
                yield source, target


@dataclass(frozen=True)
class TextSpan:
    """The characters from `start` to `end` of one text."""

    pairs: Iterable[Pair]
    start: int
    end: int

    def __iter__(self) -> Iterator[Pair]:
        kind: type[str] = str
        at = 0
        for _, piece in self.pairs:
            if at >= self.end:
                return
            if here := piece[max(self.start - at, 0) : self.end - at]:
                yield "", kind(here)
                kind = Continuation
            at += len(piece)


@dataclass(frozen=True)
class PrefixedPairs:
    """The pairs with the same words before every source."""

    pairs: Iterable[Pair]
    prefix: str

    def __iter__(self) -> Iterator[Pair]:
        return ((self.prefix + source, target) for source, target in self.pairs)


@dataclass(frozen=True)
class Subsample:
    """Each `step`-th of the pairs."""

    pairs: Iterable[Pair]
    step: int

    def __iter__(self) -> Iterator[Pair]:
        return islice(iter(self.pairs), 0, None, self.step)


def fingerprint(source: str) -> int:
    """64 bits of a source text, letter case aside, equal on every machine."""
    return int.from_bytes(blake2b(source.casefold().encode(), digest_size=8).digest(), "little")
