"""Data preparation: from a config to trained tokenisers and cached examples, in one call."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar

from headwise.data import examples as ex
from headwise.data.cache import load_or_build, resolve_cache_root
from headwise.data.config import DataConfig, TextDataConfig
from headwise.data.corpora import Corpus, load_corpus
from headwise.data.examples import Examples
from headwise.data.read import Pair
from headwise.data.splits import truncate_sources
from headwise.errors import UserError
from headwise.text.config import TokeniserConfig
from headwise.text.normalise import Normaliser
from headwise.text.tokenisers import Tokenisers

log = logging.getLogger(__name__)

Data = TypeVar("Data")  # Examples, or Images
Pairs = TypeVar("Pairs")  # list[Pair], or Images
Tokenise = Callable[[Iterable[Pair], Tokenisers], Iterable[ex.Row]]
REPORT_SECONDS = 10.0  # between lines of progress
REPORT_ROWS = 64  # between looks at the clock; a row has up to 2**18 characters


@dataclass(frozen=True)
class Prepared(Generic[Data, Pairs]):
    """Tokenisers and data for training. Pairs are as in the files; tokenisers normalise when they encode."""

    tokenisers: Tokenisers
    train: Data
    valid: Data
    valid_pairs: Pairs
    test_pairs: Pairs
    files: tuple[Path, ...] = ()  # that were read


def prepare(
    data: DataConfig, tokeniser: TokeniserConfig | Tokenisers, tokenise: Tokenise = ex.tokenise
) -> Prepared[Examples, list[Pair]]:
    """Read, tokenise and cache a corpus.

    Given a config, tokenisers are trained on the training pairs, or on a sample of a large corpus. Given tokenisers
    (those of a run that is resumed or fine-tuned), these are used, and `data.lowercase` and `data.normalise` have no
    effect.
    """
    assert isinstance(data, TextDataConfig)
    corpus = load_corpus(data)
    if isinstance(tokeniser, TokeniserConfig):
        normalise = Normaliser(data.normalise, data.lowercase)
        tokeniser = Tokenisers.train(corpus.sample, tokeniser, normalise)
    root = resolve_cache_root(data.cache)
    key = _compute_key(corpus, tokeniser, data)
    train, valid = (
        _load_examples(
            part, _cut_sources(tokenise(pairs, tokeniser), data), tokeniser, data.max_length, root / f"{key}-{part}"
        )
        for part, pairs in (("train", corpus.train), ("valid", corpus.valid))
    )
    valid_pairs, test_pairs = (truncate_sources(pairs, tokeniser.source, data) for pairs in (corpus.valid, corpus.test))
    return Prepared(tokeniser, train, valid, valid_pairs, test_pairs, corpus.files)


def _cut_sources(rows: Iterable[ex.Row], data: TextDataConfig) -> Iterable[ex.Row]:
    """With `data.truncate`, the rows without what is beyond `data.max_length` of their sources."""
    if not data.truncate:
        return rows
    return ((source and source[: data.max_length], target) for source, target in rows)


def _load_examples(
    part: str, rows: Iterable[ex.Row], tokenisers: Tokenisers, max_length: int, folder: Path
) -> Examples:
    id_limit = max(tokenisers.source.id_limit, tokenisers.target.id_limit)

    def build(temporary: Path) -> None:
        ex.write_examples(temporary, _report_progress(rows, part), id_limit, max_length)

    examples = load_or_build(folder, build, Examples.load)
    if not len(examples):
        raise UserError(
            f"data.max_length: all {examples.dropped} pairs of the {part} part are longer than {max_length} tokens; "
            "raise it or choose larger units in [tokeniser]"
        )
    if examples.dropped:
        log.warning(
            "%d of %d pairs of the %s part are longer than data.max_length = %d tokens and left out",
            examples.dropped, examples.dropped + len(examples), part, max_length,
        )  # fmt: skip
    return examples


def _report_progress(rows: Iterable[ex.Row], part: str) -> Iterator[ex.Row]:
    """Yield the rows, and print a line on stderr every `REPORT_SECONDS`."""
    start = last = monotonic()
    tokens = 0
    for number, row in enumerate(rows):
        yield row
        tokens += len(row[1])
        if number % REPORT_ROWS == 0 and (now := monotonic()) - last >= REPORT_SECONDS:
            last = now
            rate = f"{tokens / (now - start):,.0f} a second"
            print(f"tokenising the {part} part: {tokens:,} tokens, {rate}", file=sys.stderr, flush=True)


def _compute_key(corpus: Corpus, tokenisers: Tokenisers, data: TextDataConfig) -> str:
    """A digest of all that the examples depend on."""
    files = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in corpus.files]
    settings = data.model_dump(mode="json", exclude={"root", "cache"})
    text = json.dumps([ex.VERSION, files, settings, tokenisers.to_json()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
