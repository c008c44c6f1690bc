"""Words of several tokens: a word's tag belongs to its first one (Devlin et al. 2019, section 5.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from headwise.data.examples import Row, tokenise
from headwise.data.read import Pair
from headwise.text import PAD, UNK
from headwise.text.base import Tokeniser
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Words

CHUNK_PAIRS = 1024  # pairs tokenised at a time


def split_words(tokeniser: Tokeniser, text: str) -> list[str]:
    """The words between spaces, which have a tag each."""
    return tokeniser.words(text) if isinstance(tokeniser, Words) else tokeniser.normalise(text).split()


def encode_words(tokeniser: Tokeniser, texts: Sequence[str]) -> list[list[list[int]]]:
    """The ids of each word of each text, at least one.

    >>> from headwise.text.vocabulary import Characters
    >>> encode_words(Characters("abc"), ["ab c"])
    [[[4, 5], [6]]]
    """
    if isinstance(tokeniser, Words):
        return [[[number] for number in ids] for ids in tokeniser.encode_batch(texts)]
    words = [split_words(tokeniser, text) for text in texts]
    return [[ids or [UNK] for ids in by_word] for by_word in tokeniser.encode_words(words)]


def tokenise_tagged(pairs: Iterable[Pair], tokenisers: Tokenisers) -> Iterator[Row]:
    """Encode words and tags to equal lengths: the label of a word's first token is its tag, of the others PAD, which
    has no loss."""
    if isinstance(tokenisers.source, Words):
        yield from tokenise(pairs, tokenisers)
        return
    remaining = iter(pairs)
    while chunk := list(islice(remaining, CHUNK_PAIRS)):
        words = encode_words(tokenisers.source, [source for source, _ in chunk])
        tags = tokenisers.target.encode_batch([target for _, target in chunk])
        for text_words, text_tags in zip(words, tags, strict=True):
            labels = [[tag] + [PAD] * (len(ids) - 1) for tag, ids in zip(text_tags, text_words, strict=True)]
            yield [number for ids in text_words for number in ids], [number for ids in labels for number in ids]
