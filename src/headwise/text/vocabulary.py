"""Tokenisers with a vocabulary list: characters, words, labels and bytes."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, cast

from headwise.config.base import Config
from headwise.text import EOS, SPECIALS, UNK
from headwise.text.base import Tokeniser
from headwise.text.config import CharactersConfig, LabelsConfig, WordsConfig
from headwise.text.normalise import PLAIN, Normaliser


class VocabularyTokeniser(Tokeniser):
    """A tokeniser that splits text by a fixed rule; units outside the vocabulary become UNK."""

    separator: ClassVar[str]  # between units in a decoded text
    unknown: ClassVar[str]  # decoded for UNK

    @staticmethod
    @abstractmethod
    def split_units(text: str) -> Iterable[str]: ...

    def __init__(self, units: Iterable[str], normalise: Normaliser = PLAIN):
        self.normalise = normalise
        self.vocabulary = [*SPECIALS, *units]
        self._ids = {unit: number for number, unit in enumerate(self.vocabulary) if number > UNK}
        if len(self._ids) != len(self.vocabulary) - len(SPECIALS):
            raise ValueError("the vocabulary has duplicates")

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> VocabularyTokeniser:
        assert isinstance(config, CharactersConfig | WordsConfig | LabelsConfig)
        counts = Counter(unit for text in texts for unit in cls.split_units(normalise(text)))
        frequent = [(-n, unit) for unit, n in counts.items() if n >= config.min_count and unit not in SPECIALS]
        room = max(config.size - len(SPECIALS), 0) if config.size else len(frequent)
        return cls([unit for _, unit in sorted(frequent)[:room]], normalise)

    def encode(self, text: str) -> list[int]:
        find = self._ids.get
        return [find(unit, UNK) for unit in self.split_units(self.normalise(text))]

    def decode(self, ids: Iterable[int]) -> str:
        ids = (i for i in ids if EOS < i < self.size)  # a model may have rows of its own, such as sentinels
        return self.separator.join(self.unknown if i == UNK else self.vocabulary[i] for i in ids)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.vocabulary[i] for i in ids]

    def to_json(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary[len(SPECIALS) :]}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> VocabularyTokeniser:
        return cls(map(str, data["vocabulary"]), normalise)


class Characters(VocabularyTokeniser):
    """One token a character.

    >>> letters = Characters("abc")
    >>> letters.encode("cab!"), letters.decode([6, 4, 5, 2])
    ([6, 4, 5, 3], 'cab')
    """

    kind = "characters"
    separator = ""
    unknown = "\ufffd"

    @staticmethod
    def split_units(text: str) -> Iterable[str]:
        return text

    def encode_around_masks(self, parts: Sequence[str]) -> list[list[int]]:
        return self.encode_batch(parts)  # spaces are characters like others


class Words(VocabularyTokeniser):
    """One token a word; runs of white space count as one space.

    With classes, a word outside the vocabulary becomes the first of its classes that is in it instead of UNK, such as
    `<unk:C:ing>` for a capitalised word that ends in -ing (as in Klein and Manning 2003).

    >>> Words(["K", "AE", "T"]).decode([4, 5, 6])
    'K AE T'
    >>> Words(["cat", "<unk:C:>", "<unk:C:ing>"]).encode("Running cat Xyz zzz")
    [6, 4, 5, 3]
    """

    kind = "words"
    separator = " "
    unknown = SPECIALS[UNK]

    def __init__(self, units: Iterable[str], normalise: Normaliser = PLAIN):
        super().__init__(units, normalise)
        self.unknown_ids = {UNK} | {number for unit, number in self._ids.items() if unit.startswith(CLASS_PREFIX)}

    @staticmethod
    def split_units(text: str) -> Iterable[str]:
        return text.split()

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> Words:
        assert isinstance(config, WordsConfig)
        if not config.classes:
            return cast(Words, super().train(texts, config, normalise))
        counts = Counter(word for text in texts for word in cls.split_units(normalise(text)))
        frequent = [(-n, word) for word, n in counts.items() if n >= config.min_count and word not in SPECIALS]
        room = max(config.size - len(SPECIALS), 0) if config.size else len(frequent)
        words = [word for _, word in sorted(frequent)[:room]]
        rare = counts.keys() - set(words)
        classes = Counter(name for word in (rare or words) for name in classify_word(word))
        # A class of few words says little.
        return cls(words + sorted(name for name, n in classes.items() if n >= MIN_CLASS_WORDS), normalise)

    def encode(self, text: str) -> list[int]:
        if len(self.unknown_ids) == 1:
            return super().encode(text)
        return [self._ids.get(word) or self._find_class(word) for word in self.words(text)]

    def words(self, text: str) -> list[str]:
        """The words of a text, one for each of its ids."""
        return list(self.split_units(self.normalise(text)))

    def decode(self, ids: Iterable[int]) -> str:
        return super().decode(UNK if number in self.unknown_ids else number for number in ids)

    def _find_class(self, word: str) -> int:
        return next((self._ids[name] for name in classify_word(word) if name in self._ids), UNK)


CLASS_PREFIX, MIN_CLASS_WORDS = "<unk:", 5


def classify_word(word: str) -> list[str]:
    """The classes of a word, most specific first: capital, digit, hyphen; and its last three, two, one or no letters.

    >>> classify_word("Co-op7")
    ['<unk:Cd-:op7>', '<unk:Cd-:p7>', '<unk:Cd-:7>', '<unk:Cd-:>']
    """
    shape = "C" * word[:1].isupper() + "d" * any(letter.isdigit() for letter in word) + "-" * ("-" in word)
    ends = [word[-count:].lower() for count in (3, 2, 1) if len(word) > count]
    return [f"{CLASS_PREFIX}{shape}:{end}>" for end in (*ends, "")]


class Labels(VocabularyTokeniser):
    """One token a text: the label of a classified text, spaces included.

    >>> Labels(["very good", "bad"]).encode("very good")
    [4]
    """

    kind = "labels"
    separator = " "
    unknown = SPECIALS[UNK]

    @staticmethod
    def split_units(text: str) -> Iterable[str]:
        return [" ".join(text.split())]


class Bytes(Tokeniser):
    """One token a byte of UTF-8 (ByT5, Xue et al. 2022): there are no unknown tokens.

    >>> Bytes().decode(Bytes().encode("naïve"))
    'naïve'
    """

    kind = "bytes"
    vocabulary = [*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256))]  # noqa: RUF012

    def __init__(self, normalise: Normaliser = PLAIN):
        self.normalise = normalise

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> Bytes:
        return cls(normalise)

    def encode_around_masks(self, parts: Sequence[str]) -> list[list[int]]:
        return self.encode_batch(parts)  # spaces are bytes like others

    def encode(self, text: str) -> list[int]:
        return [byte + len(SPECIALS) for byte in self.normalise(text).encode()]

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(i - len(SPECIALS) for i in ids if UNK < i < self.size).decode(errors="replace")

    def tokens(self, ids: Iterable[int]) -> list[str]:
        readable = range(0x21, 0x7F)
        return [chr(i - len(SPECIALS)) if i - len(SPECIALS) in readable else self.vocabulary[i] for i in ids]

    def to_json(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> Bytes:
        return cls(normalise)
