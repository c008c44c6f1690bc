"""Text pairs as one source, with a tab between the two texts: for sentence-pair tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from headwise.config.base import Config
from headwise.text import EOS
from headwise.text.base import Tokeniser
from headwise.text.normalise import Normaliser

SEPARATOR = "\t"


class Paired(Tokeniser):
    """A tokeniser of text pairs: encodes each text with an inner tokeniser and puts EOS for the tab between them, as
    often as the inner tokeniser's model expects (RoBERTa: twice).

    >>> from headwise.text.vocabulary import Characters
    >>> Paired(Characters("ab")).encode("ab\\tb")
    [4, 5, 2, 5]
    """

    kind = "paired"

    def __init__(self, inner: Tokeniser):
        self.inner, self.normalise, self.vocabulary = inner, inner.normalise, inner.vocabulary

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> Paired:
        raise TypeError("a tokeniser of pairs has no vocabulary of its own: train the inner one")

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if not any(SEPARATOR in text for text in texts):
            return self.inner.encode_batch(texts)
        pairs = [text.split(SEPARATOR) for text in texts]
        encoded = iter(self.inner.encode_batch([part for pair in pairs for part in pair]))
        return [join_with_eos(islice(encoded, len(pair)), self.pair_separators) for pair in pairs]

    @property
    def pair_separators(self) -> int:
        return self.inner.pair_separators

    @property
    def id_limit(self) -> int:
        return self.inner.id_limit

    def decode(self, ids: Iterable[int]) -> str:
        parts: list[list[int]] = [[]]
        ends = 0  # EOS tokens so far
        for number in ids:
            if number != EOS:
                parts[-1].append(number)
            elif ends % self.pair_separators == 0:
                parts.append([])
            ends += number == EOS
        if not parts[-1]:
            parts.pop()  # EOS ended the last text
        return SEPARATOR.join(map(self.inner.decode, parts))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return self.inner.tokens(ids)

    def to_json(self) -> dict[str, Any]:
        return {"of": self.inner.kind, **self.inner.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> Paired:
        from headwise.text.tokenisers import get_tokeniser_class

        return cls(get_tokeniser_class(data["of"]).from_json(data, normalise))


def join_with_eos(parts: Iterable[list[int]], separators: int = 1) -> list[int]:
    """Concatenate the ids of texts, with EOS tokens between them."""
    ids: list[int] = []
    for number, part in enumerate(parts):
        ids += [*[EOS] * separators, *part] if number else part
    return ids
