"""Re-iterable pairs that are not held in memory, and views of them: held-out parts, spans, samples.

Which pairs are held out depends on a hash of their sources (or of their groups, such as documents), not on a seed or
the order of the files, so that it is the same on every machine.
"""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from headwise.data.config import UNPAIRED, TextDataConfig
from headwise.data.read import PLAIN, Pair, read_records
from headwise.data.readers.base import ReadOptions
from headwise.data.readers.text import read_texts
from headwise.data.texts import Continuation
from headwise.errors import UserError
from headwise.text.base import Tokeniser

SORT_BLOCK = 2**20  # fingerprints sorted at a time
MIN_GROUPS = 10  # documents; with fewer, records are held out one by one
Row = tuple[str, Pair]  # the group, empty if there is none, and the pair


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts, read from the files at each iteration: they need not fit in memory."""

    files: tuple[Path, ...]
    format: str = "tsv"
    options: ReadOptions = PLAIN
    reverse: bool = False
    aligned: bool = False

    def __iter__(self) -> Iterator[Pair]:
        return (pair for _, pair in self.iterate_rows())

    def iterate_rows(self) -> Iterator[Row]:
        """Each pair with its group."""
        if not self.files:
            return
        if self.format in UNPAIRED:
            yield from (("", ("", text)) for text in read_texts(self.files, self.format))
            return
        for _, source, target, group in read_records(self.files, self.format, self.options, self.aligned):
            yield group, ((target, source) if self.reverse else (source, target))


@dataclass(frozen=True)
class Rows:
    """The pairs with their groups, read at each iteration; without groups where they are not `grouped`."""

    pairs: Pairs
    grouped: bool = True

    def __iter__(self) -> Iterator[Row]:
        rows = self.pairs.iterate_rows()
        return rows if self.grouped else (("", pair) for _, pair in rows)


@dataclass(frozen=True)
class Sizes:
    """How much is held out: shares of the pairs, and at most about `valid_size` pairs for validation."""

    valid_fraction: float = 0.0
    test_fraction: float = 0.0
    valid_size: int = 2000

    def count(self, pairs: int) -> tuple[int, int]:
        """The sizes of the test and the validation part."""
        valid = min(math.ceil(self.valid_fraction * pairs), self.valid_size)
        return math.ceil(self.test_fraction * pairs), valid


@dataclass(frozen=True)
class Others:
    """All fingerprints but these."""

    fingerprints: Container[int]

    def __contains__(self, fingerprint: object) -> bool:
        return fingerprint not in self.fingerprints


@dataclass(frozen=True)
class Split:
    """The pairs whose groups, sources or targets (the first that is not empty) have one of these fingerprints; without
    those whose texts are `excluded`, as they occur in a held-out group."""

    rows: Iterable[Row]
    fingerprints: Container[int]
    excluded: frozenset[int] = frozenset()

    def __iter__(self) -> Iterator[Pair]:
        selected = False
        for group, pair in self.rows:
            if not isinstance(pair[1], Continuation):  # the pieces of a text stay together
                selected = fingerprint(group or pair[0] or pair[1]) in self.fingerprints
                if selected and self.excluded:
                    selected = fingerprint(pair[0] or pair[1]) not in self.excluded
            if selected:
                yield pair


@dataclass(frozen=True)
class TextSpan:
    """The characters from `start` to `end` of a single text."""

    pairs: Iterable[Pair]
    start: int
    end: int

    def __iter__(self) -> Iterator[Pair]:
        kind: type[str] = str
        position = 0
        for _, piece in self.pairs:
            if position >= self.end:
                return
            if part := piece[max(self.start - position, 0) : self.end - position]:
                yield "", kind(part)
                kind = Continuation
            position += len(piece)


_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class CutPairs:
    """Re-iterable pairs with the first `words` words of each source."""

    pairs: Iterable[Pair]
    words: int

    def __iter__(self) -> Iterator[Pair]:
        for source, target in self.pairs:
            ends = [0, *(word.end() for word in islice(_WORD.finditer(source), self.words))]
            yield source[: ends[-1]], target  # tabs between texts stay


def truncate_sources(pairs: Iterable[Pair], tokeniser: Tokeniser, data: TextDataConfig) -> list[Pair]:
    """The pairs; with `data.truncate`, sources without what is beyond `data.max_length` tokens."""
    if not data.truncate or data.one_to_one:
        return list(pairs)
    return [(truncate_text(source, tokeniser, data.max_length), target) for source, target in pairs]


def truncate_text(text: str, tokeniser: Tokeniser, length: int) -> str:
    """The start of a text that has at most `length` tokens.

    >>> from headwise.text.vocabulary import Words
    >>> truncate_text("a cat sat", Words(["a", "cat", "sat"]), 2)
    'a cat '
    """
    if len(tokeniser.encode(text)) <= length:
        return text
    ends = range(1, len(text))
    return text[: bisect_right(ends, length, key=lambda end: len(tokeniser.encode(text[:end])))]


@dataclass(frozen=True)
class PrefixedPairs:
    """The pairs with a prefix before every source."""

    pairs: Iterable[Pair]
    prefix: str

    def __iter__(self) -> Iterator[Pair]:
        return ((self.prefix + source, target) for source, target in self.pairs)


@dataclass(frozen=True)
class Subsample:
    """Every `step`-th pair."""

    pairs: Iterable[Pair]
    step: int

    def __iter__(self) -> Iterator[Pair]:
        return islice(iter(self.pairs), 0, None, self.step)


def hold_out(rows: Iterable[Row], sizes: Sizes, stratify: bool, name: str) -> tuple[Split, list[Pair], list[Pair]]:
    """Stratified split and group split: a training part, read at each iteration, a validation and a test part.

    All pairs of a source are in one part, and all pairs of a group; a training pair whose source is in a held-out group
    is left out. With `stratify`, each label (target) has the same share in all parts. `name` is for errors.
    """
    choose = _choose_stratified if stratify else _choose_lowest
    if (chosen := choose(rows, sizes)) is None:
        raise UserError(
            f"{name}: too few different sources to hold some out; add pairs, or name other files in data.valid"
        )
    test_keys, valid_keys, train_keys = chosen
    test, valid = list[Pair](), list[Pair]()
    excluded: set[int] = set()
    part: list[Pair] | None = None
    for group, pair in rows:
        if not isinstance(pair[1], Continuation):
            key = fingerprint(group or pair[0] or pair[1])
            part = test if key in test_keys else valid if key in valid_keys else None
            if group and part is not None:
                excluded.add(fingerprint(pair[0] or pair[1]))
        if part is not None:
            part.append(pair)
    return Split(rows, train_keys, frozenset(excluded)), valid, test


def has_groups(rows: Iterable[Row]) -> bool:
    """Whether there are enough groups to hold some out."""
    groups: set[str] = set()
    for group, _ in rows:
        if group:
            groups.add(group)
            if len(groups) == MIN_GROUPS:
                return True
    return False


Keys = tuple[Container[int], Container[int], Container[int]]  # fingerprints of the test, valid and training parts


def _choose_lowest(rows: Iterable[Row], sizes: Sizes) -> Keys | None:
    """The lowest fingerprints are the test part, the next the validation part, the rest the training part."""
    lowest, highest, count = _lowest_fingerprints(rows, 0 if sizes.test_fraction else sizes.valid_size)
    cuts, start = [0], 0
    for size in sizes.count(count):
        # All pairs of a source are in one part, so it may be a little larger than its size.
        last = lowest[min(start + size, len(lowest)) - 1]
        start = int(np.searchsorted(lowest, last, side="right")) if size else start
        cuts.append(int(last) + 1 if size else cuts[-1])
    if cuts[-1] > highest:
        return None
    test, valid, train = (range(*ends) for ends in pairwise([*cuts, 2**64]))
    return test, valid, train


def _lowest_fingerprints(rows: Iterable[Row], limit: int) -> tuple[np.ndarray, int, int]:
    """The sorted fingerprints, only the `limit` lowest unless it is 0; the highest of all; and their number."""
    fingerprints = (
        fingerprint(group or source or target)
        for group, (source, target) in rows
        if not isinstance(target, Continuation)
    )
    lowest, highest, count = np.empty(0, np.uint64), 0, 0
    while len(block := np.fromiter(islice(fingerprints, SORT_BLOCK if limit else None), np.uint64)):
        highest, count = max(highest, int(block.max())), count + len(block)
        lowest = np.sort(np.concatenate([lowest, block]))[: limit or None]
    return lowest, highest, count


def _choose_stratified(rows: Iterable[Row], sizes: Sizes) -> Keys | None:
    """Of each label, the lowest fingerprints; a label has at least one source in the training part."""
    by_label, weights = _group_by_label(rows)
    parts: list[frozenset[int]] = []
    starts = [0] * len(by_label)
    for size in sizes.count(sum(weights)):
        part: list[int] = []
        for label, quota in enumerate(apportion(size, weights)):
            keys, counts = by_label[label]
            start = starts[label]
            needed = int(np.searchsorted(counts[start:].cumsum(), quota)) + 1 if quota else 0
            starts[label] = max(min(start + needed, len(keys) - 1), start)
            part += keys[start : starts[label]].tolist()
        if size and not part:
            return None
        parts.append(frozenset(part))
    test, valid = parts
    return test, valid, Others(test | valid)


def _group_by_label(rows: Iterable[Row]) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[int]]:
    """For each label, in alphabetical order: the sorted fingerprints of its sources with the number of pairs of each,
    and the number of all its pairs. A source with several labels counts as one with the first of them."""
    fingerprints, codes, names = array("Q"), array("q"), dict[str, int]()
    for group, (source, target) in rows:
        fingerprints.append(fingerprint(group or source))
        codes.append(names.setdefault(target, len(names)))
    ranks = np.empty(len(names), np.int64)
    ranks[[names[name] for name in sorted(names)]] = np.arange(len(names))
    labels = ranks[np.frombuffer(codes, np.int64)]
    order = np.lexsort((labels, np.frombuffer(fingerprints, np.uint64)))
    keys, firsts, counts = np.unique(
        np.frombuffer(fingerprints, np.uint64)[order], return_index=True, return_counts=True
    )
    labels = labels[order][firsts]
    by_label = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[by_label], np.arange(len(names) + 1)).tolist()
    groups = [by_label[start:end] for start, end in pairwise(bounds)]
    return [(keys[group], counts[group]) for group in groups], [int(counts[group].sum()) for group in groups]


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Integers in proportion to the weights whose sum is `total`, by largest remainders.

    >>> apportion(10, [70, 25, 5])
    [7, 3, 0]
    """
    shares = [total * weight / sum(weights) for weight in weights]
    quotas = [math.floor(share) for share in shares]
    by_remainder = sorted(range(len(weights)), key=lambda index: quotas[index] - shares[index])
    for index in by_remainder[: total - sum(quotas)]:
        quotas[index] += 1
    return quotas


def fingerprint(source: str) -> int:
    """A 64-bit hash of a text, ignoring letter case, the same on every machine."""
    return int.from_bytes(blake2b(source.casefold().encode(), digest_size=8).digest(), "little")
