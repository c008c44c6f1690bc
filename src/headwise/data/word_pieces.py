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

CHUNK = 1024  # pairs that are tokenised at a time


def split_words(tokeniser: Tokeniser, text: str) -> list[str]:
    """What has a tag: the words between spaces."""
    return tokeniser.words(text) if isinstance(tokeniser, Words) else tokeniser.normalise(text).split()


def encode_words(tokeniser: Tokeniser, texts: Sequence[str]) -> list[list[list[int]]]:
    """The tokens of each word of each text, at least one.

    >>> from headwise.text.vocabulary import Characters
    >>> encode_words(Characters("abc"), ["ab c"])
    [[[4, 5], [6]]]
    """
    if isinstance(tokeniser, Words):
        return [[[number] for number in ids] for ids in tokeniser.encode_batch(texts)]
    cut = [split_words(tokeniser, text) for text in texts]
    encoded = iter(tokeniser.encode_batch([word for each in cut for word in each]))
    return [[ids or [UNK] for ids in islice(encoded, len(each))] for each in cut]


def tokenise_tagged(pairs: Iterable[Pair], tokenisers: Tokenisers) -> Iterator[Row]:
    """Tokens of the words, and as many labels: a word's tag, then PAD, which is not learnt."""
    if isinstance(tokenisers.source, Words):
        yield from tokenise(pairs, tokenisers)
        return
    rest = iter(pairs)
    while chunk := list(islice(rest, CHUNK)):
        cut = encode_words(tokenisers.source, [source for source, _ in chunk])
        tags = tokenisers.target.encode_batch([target for _, target in chunk])
        for pieces, own in zip(cut, tags, strict=True):
            labels = [[tag] + [PAD] * (len(ids) - 1) for tag, ids in zip(own, pieces, strict=True)]
            yield [number for ids in pieces for number in ids], [number for ids in labels for number in ids]
