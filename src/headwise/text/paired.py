"""Two texts as one source, for tasks that judge a pair: a tab stands between them."""

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
    """Another tokeniser's units; where the text has a tab, the mark that ends a text.

    >>> from headwise.text.vocabulary import Characters
    >>> Paired(Characters("ab")).encode("ab\\tb")
    [4, 5, 2, 5]
    """

    kind = "paired"

    def __init__(self, inner: Tokeniser):
        self.inner, self.normalise, self.vocabulary = inner, inner.normalise, inner.vocabulary

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> Paired:
        raise TypeError("a pair has no units of its own: train the tokeniser of its texts")

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        parts = [text.split(SEPARATOR) for text in texts]
        encoded = iter(self.inner.encode_batch([part for each in parts for part in each]))
        return [join_with_eos(islice(encoded, len(each))) for each in parts]

    @property
    def ids(self) -> int:
        return self.inner.ids

    def decode(self, ids: Iterable[int]) -> str:
        parts: list[list[int]] = [[]]
        for number in ids:
            if number == EOS:
                parts.append([])
            else:
                parts[-1].append(number)
        if not parts[-1]:
            parts.pop()  # the mark ended the last text
        return SEPARATOR.join(map(self.inner.decode, parts))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return self.inner.tokens(ids)

    def to_json(self) -> dict[str, Any]:
        return {"of": self.inner.kind, **self.inner.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> Paired:
        from headwise.text.tokenisers import get_tokeniser_class

        return cls(get_tokeniser_class(data["of"]).from_json(data, normalise))


def join_with_eos(parts: Iterable[list[int]]) -> list[int]:
    """The ids of texts in a row, an end mark between them."""
    found: list[int] = []
    for number, part in enumerate(parts):
        found += [EOS, *part] if number else part
    return found
