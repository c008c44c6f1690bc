"""Pairs of texts from files, one after the other, with the line number in every complaint."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

from headwise.errors import UserError

Pair = tuple[str, str]

_STRESS = re.compile(r"\d")
_VARIANT = re.compile(r"\(\d+\)$")


def read_pairs(files: tuple[Path, ...], format: str = "tsv") -> Iterator[Pair]:
    """The pairs of one file in the given format, or of two files aligned line by line.

    Lines that are empty on both sides are skipped; a line with one side only is an error.
    """
    found = False
    for number, source, target in _aligned(*files) if len(files) == 2 else FORMATS[format](files[0]):
        source, target = source.strip(), target.strip()
        if not source and not target:
            continue
        if not source or not target:
            side, file = ("source", files[0]) if not source else ("target", files[-1])
            raise UserError(f"{file}, line {number}: the {side} is empty; fill it in or remove the line")
        found = True
        yield source, target
    if not found:
        raise UserError(f"{' and '.join(map(str, files))}: no pairs in there; check that it is the right file")


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line without its end) of a UTF-8 file, plain or .gz."""
    opener: Callable = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"{path}, line {number}: not UTF-8 (byte {error.start + 1}); convert the file to UTF-8"
                    ) from None
                yield number, text.rstrip("\r\n")
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; check the path in [data]") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path}: is not a whole gzip file; copy it again, or drop the .gz") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def _tsv(path: Path) -> Iterator[tuple[int, str, str]]:
    """source TAB target; further columns are ignored."""
    for number, line in read_lines(path):
        source, tab, rest = line.partition("\t")
        if not tab and line.strip():
            raise UserError(f"{path}, line {number}: no tab; a line is source, tab, target")
        yield number, source, rest.partition("\t")[0]


def _dictionary(path: Path) -> Iterator[tuple[int, str, str]]:
    """The CMU dictionary's `WORD  P1 P2 ...`: lower-case words, phonemes without stress.

    Variants, `WORD(2)`, are further pronunciations of the same word; those that differ in stress
    alone are given once.
    """
    seen = set()
    for number, line in read_lines(path):
        if line.startswith(";;;"):
            continue
        word, _, phonemes = line.partition(" # ")[0].strip().partition(" ")
        word = _VARIANT.sub("", word).lower()
        pair = word, " ".join(_STRESS.sub("", phonemes).split())
        if pair not in seen:
            seen.add(pair)
            yield number, *pair


def _aligned(first: Path, second: Path) -> Iterator[tuple[int, str, str]]:
    for left, right in zip_longest(read_lines(first), read_lines(second)):
        if left is None or right is None:
            number, longer, shorter = (left[0], first, second) if left else (right[0], second, first)
            raise UserError(
                f"{longer}, line {number}: {shorter} ends after line {number - 1}; "
                "the two files must be aligned line by line"
            )
        yield left[0], left[1], right[1]


FORMATS: dict[str, Callable[[Path], Iterator[tuple[int, str, str]]]] = {
    "tsv": _tsv,
    "dictionary": _dictionary,
}
