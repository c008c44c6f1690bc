"""Tokenised pairs as two flat arrays, in memory or memory-mapped from the cache.

One array has the tokens of all pairs: source 0, target 0, source 1, target 1, ...; `bounds` has the start of each side,
and the end.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, groupby
from pathlib import Path
from typing import IO, Any

import numpy as np

from headwise.data.cache import hash_files, map_array, verify_files
from headwise.data.texts import Continuation, Pair, split_pieces
from headwise.text.tokenisers import Tokenisers

Row = tuple[Sequence[int] | None, Sequence[int]]  # source and target; None: it continues the target of the row before
CHUNK_PAIRS = 10_000  # pairs tokenised at a time: enough for the library's threads, little memory
CHUNK_CHARACTERS = 2**18  # characters tokenised at a time, of long texts
FLUSH_TOKENS = 2**16  # tokens written at a time
VERSION = 1  # of the cache; another number tokenises everything anew


class Examples:
    """Pairs of token arrays without BOS and EOS; `dropped` counts pairs that were too long.

    >>> Examples.from_rows([([4, 5], [6]), ([7], [8, 9])]).lengths
    array([[2, 1],
           [1, 2]], dtype=int32)
    """

    def __init__(self, tokens: np.ndarray, bounds: np.ndarray, dropped: int = 0):
        self.tokens, self.bounds, self.dropped = tokens, bounds, dropped

    def __len__(self) -> int:
        return len(self.bounds) // 2

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        start, middle, end = self.bounds[2 * index : 2 * index + 3]
        return self.tokens[start:middle], self.tokens[middle:end]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.bounds).reshape(-1, 2).astype(np.int32)  # (2n,) -> (n, 2)

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> Examples:
        """Examples in memory."""
        pairs = ((source, [*chain.from_iterable(targets)]) for source, targets in _group_by_pair(rows))
        sides = list(chain.from_iterable(pairs))
        tokens = np.fromiter(chain.from_iterable(sides), np.int32)
        return cls(tokens, np.array([0, *accumulate(map(len, sides))], np.int64))

    @classmethod
    def load(cls, folder: Path) -> Examples:
        """Memory-map what `write_examples` wrote; raise ValueError if any byte of it has changed."""
        meta = json.loads((folder / "meta.json").read_text())
        verify_files(folder, meta["sha256"])
        tokens = map_array(folder / "tokens.bin", meta["dtype"])
        return cls(tokens, map_array(folder / "bounds.bin", "int64"), meta["dropped"])


def tokenise(pairs: Iterable[Pair], tokenisers: Tokenisers) -> Iterator[Row]:
    """Encode pairs, a chunk of texts at a time. A long target becomes several rows."""
    encode = tokenisers.target.encode
    for chunk in _chunk_pairs(pairs):
        leads = [target.lead if isinstance(target, Continuation) else "" for _, target in chunk]
        lead_sizes = {lead: len(encode(lead)) if lead else 0 for lead in set(leads)}
        sources = [source for source, _ in chunk]
        encoded = tokenisers.source.encode_batch(sources) if any(sources) else [list[int]()] * len(chunk)
        targets = tokenisers.target.encode_batch([lead + text for lead, (_, text) in zip(leads, chunk, strict=True)])
        for lead, source, target in zip(leads, encoded, targets, strict=True):
            yield None if lead else source, target[lead_sizes[lead] :]


def _chunk_pairs(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Group pairs, or pieces of them, that are tokenised at a time."""
    chunk, size = list[Pair](), 0
    for source, target in pairs:
        for piece in split_pieces(target, CHUNK_CHARACTERS) if len(target) > CHUNK_CHARACTERS else (target,):
            chunk.append((source, piece))
            size += len(source) + len(piece)
            if size >= CHUNK_CHARACTERS or len(chunk) == CHUNK_PAIRS:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk


def _group_by_pair(rows: Iterable[Row]) -> Iterator[tuple[Sequence[int], Iterator[Sequence[int]]]]:
    """Each source, and its target in one or more pieces."""
    number = 0

    def count_pairs(row: Row) -> int:
        nonlocal number
        number += row[0] is not None
        return number

    for _, group in groupby(rows, count_pairs):
        source, target = next(group)
        yield source or (), chain([target], (more for _, more in group))  # noqa: B031  (the rest of one iterator)


def write_examples(folder: Path, rows: Iterable[Row], id_limit: int, max_length: int) -> None:
    """Stream rows of ids below `id_limit` into a folder, dropping those with a side longer than `max_length`."""
    dtype, code = ("uint16", "H") if id_limit <= 2**16 else ("int32", "i")
    with open(folder / "tokens.bin", "wb") as tokens, open(folder / "bounds.bin", "wb") as bounds:
        writer = _Writer(tokens, bounds, code, max_length)
        for source, target in rows:
            if source is not None:
                writer.begin_pair(source)
            writer.extend_target(target)
        writer.finish()
    meta: dict[str, Any] = {"dtype": dtype, "dropped": writer.dropped}
    meta["sha256"] = hash_files(folder, "tokens.bin", "bounds.bin")
    (folder / "meta.json").write_text(json.dumps(meta))


class _Writer:
    """Tokens and bounds of pairs, collected in memory and written `FLUSH_TOKENS` at a time."""

    def __init__(self, tokens: IO[bytes], bounds: IO[bytes], code: str, max_length: int):
        self.file, self.bounds_file, self.max_length, self.dropped = tokens, bounds, max_length, 0
        self.tokens, self.bounds = array(code), array("q", [0])
        self.written = 0  # tokens in the file
        self.begin = self.middle = -1  # where source and target of the pair begin; -1: there is none yet

    def begin_pair(self, source: Sequence[int]) -> None:
        self.finish_pair()
        self.begin = self.written + len(self.tokens)
        self.middle = self.begin + len(source)
        self.tokens.extend(source)

    def extend_target(self, target: Sequence[int]) -> None:
        self.tokens.extend(target)
        if len(self.tokens) >= FLUSH_TOKENS:
            self.flush()

    def finish_pair(self) -> None:
        """Keep the pair, or drop it if a side is too long."""
        end = self.written + len(self.tokens)
        if self.begin < 0:
            return
        if max(self.middle - self.begin, end - self.middle) <= self.max_length:
            self.bounds.extend((self.middle, end))
            return
        self.dropped += 1
        if self.begin < self.written:  # some of it is in the file
            self.file.truncate(self.file.seek(self.begin * self.tokens.itemsize))
            self.written = self.begin
        del self.tokens[self.begin - self.written :]

    def flush(self) -> None:
        self.tokens.tofile(self.file)
        self.bounds.tofile(self.bounds_file)
        self.written += len(self.tokens)
        del self.tokens[:], self.bounds[:]

    def finish(self) -> None:
        self.finish_pair()
        self.flush()
