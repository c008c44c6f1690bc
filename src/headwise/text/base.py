"""The interface of a tokeniser."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar, NoReturn

from headwise.config.base import Config
from headwise.errors import UserError
from headwise.text import SPECIALS
from headwise.text.normalise import Normaliser


class Tokeniser(ABC):
    """The tokeniser of one side. `encode` takes any string and adds neither BOS nor EOS."""

    kind: ClassVar[str]
    normalise: Normaliser
    vocabulary: list[str]  # a distinct name for each id, the four special tokens first

    @classmethod
    @abstractmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> Tokeniser:
        """Train the vocabulary on texts, which are read once and need not fit in memory."""

    @abstractmethod
    def encode(self, text: str) -> list[int]: ...

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids, without PAD, BOS and EOS."""

    @abstractmethod
    def tokens(self, ids: Iterable[int]) -> list[str]:
        """A readable label for each id, for figures and tables."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> Tokeniser: ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_words(self, texts: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of each word of each text, which has one space between two words; here of each word by itself."""
        encoded = iter(self.encode_batch([word for words in texts for word in words]))
        return [list(islice(encoded, len(words))) for words in texts]

    def encode_around_masks(self, parts: Sequence[str]) -> list[list[int]]:
        """The ids of the parts of a text that has a mask between each two. In words and word pieces, the space before a
        unit belongs to it; one at the end would be a unit of its own."""
        return self.encode_batch([part.strip() for part in parts])

    @property
    def appends_eos(self) -> bool:
        """Whether token classifiers read EOS after a text, as every other encoder does."""
        return True

    @property
    def size(self) -> int:
        return len(self.vocabulary)

    @property
    def special_ids(self) -> Sequence[int]:
        """The ids of tokens that are no text."""
        return range(len(SPECIALS))

    @property
    def id_limit(self) -> int:
        """All ids are below this number; it exceeds `size` where an id encodes more than a token."""
        return self.size

    @property
    def pair_separators(self) -> int:
        """The number of EOS tokens between the texts of a pair."""
        return 1


class TextlessEncoder(Tokeniser):
    """Base of what stands in the place of a tokeniser where a task reads no texts: images, episodes, graphs."""

    refusal: ClassVar[str]  # of a text, and what to use instead

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> NoReturn:
        raise UserError(cls.refusal)

    def encode(self, text: str) -> NoReturn:
        raise UserError(self.refusal)

    def decode(self, ids: Iterable[int]) -> NoReturn:
        raise UserError(self.refusal)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        raise UserError(self.refusal)
