"""What every tokeniser can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from headwise.config.base import Config
from headwise.text.normalise import Normaliser


class Tokeniser(ABC):
    """One side's units. `encode` takes any string and adds neither BOS nor EOS."""

    kind: ClassVar[str]
    normalise: Normaliser
    vocabulary: list[str]  # one distinct name for each id, the four special ones first

    @classmethod
    @abstractmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> Tokeniser:
        """Learn the vocabulary from texts, which are read once and need not fit in memory."""

    @abstractmethod
    def encode(self, text: str) -> list[int]: ...

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; PAD, BOS and EOS are left out."""

    @abstractmethod
    def tokens(self, ids: Iterable[int]) -> list[str]:
        """One readable label for each id, for pictures and tables."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> Tokeniser: ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    @property
    def size(self) -> int:
        return len(self.vocabulary)

    @property
    def ids(self) -> int:
        """Ids are below this number; above `size` where they carry more than a word."""
        return self.size
