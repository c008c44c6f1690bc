"""From a config to tokenisers and examples: the whole way from files in one call."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headwise.config.data import DataConfig, TokeniserConfig
from headwise.data import examples as ex
from headwise.data.corpora import Corpus, load_corpus
from headwise.data.examples import Examples
from headwise.data.read import Pair
from headwise.errors import UserError
from headwise.text.normalise import Normaliser
from headwise.text.tokenisers import Tokenisers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """All that training needs. The pairs are as in the files; tokenisers normalise when they encode."""

    tokenisers: Tokenisers
    train: Examples
    valid: Examples
    valid_pairs: list[Pair]
    test_pairs: list[Pair]


def prepare(data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
    """Read, tokenise and cache a corpus.

    Given a config, tokenisers are learnt from the training pairs. Given tokenisers (those of a run
    that is resumed or fine-tuned), these decide, and `data.lower` and `data.normalise` say nothing.
    """
    corpus = load_corpus(data)
    if isinstance(tokeniser, TokeniserConfig):
        normalise = Normaliser(data.normalise, data.lower)
        tokeniser = Tokenisers.train(corpus.train, tokeniser, normalise)
    root = ex.cache_root(data.cache)
    key = _key(corpus, tokeniser, data)
    train, valid = (
        _examples(part, pairs, tokeniser, data.max_length, root / f"{key}-{part}")
        for part, pairs in (("train", corpus.train), ("valid", corpus.valid))
    )
    return Prepared(tokeniser, train, valid, corpus.valid, corpus.test)


def _examples(part: str, pairs: Iterable[Pair], tokenisers: Tokenisers, limit: int, folder: Path) -> Examples:
    vocab = max(tokenisers.source.size, tokenisers.target.size)
    found = ex.cached(folder, lambda aside: ex.write(aside, ex.tokenise(pairs, tokenisers), vocab, limit))
    if not len(found):
        raise UserError(
            f"data.max_length: all {found.dropped} pairs of the {part} part are longer than {limit} tokens; "
            "raise it or choose larger units in [tokeniser]"
        )
    if found.dropped:
        log.warning(
            "%d of %d pairs of the %s part are longer than data.max_length = %d tokens and left out",
            found.dropped, found.dropped + len(found), part, limit,
        )  # fmt: skip
    return found


def _key(corpus: Corpus, tokenisers: Tokenisers, data: DataConfig) -> str:
    """A digest of all that the examples depend on."""
    files = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in corpus.files]
    settings = data.model_dump(mode="json", exclude={"root", "cache"})
    text = json.dumps([ex.VERSION, files, settings, tokenisers.to_json()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
