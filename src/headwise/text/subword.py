"""Pieces of words learnt from the corpus, by the `tokenizers` library: BPE and unigram.

Both work on bytes, so nothing is unknown and decoding gives back the very text. The library knows
no special tokens: its ids are shifted by four, so that a "</s>" in a text is four characters and
never the end of a sentence.

BPE: Sennrich et al. 2016, on bytes as in GPT-2 (Radford et al. 2019). Unigram: Kudo 2018.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headwise.config.base import Config
from headwise.text import SPECIALS, UNK
from headwise.text.base import Tokeniser
from headwise.text.config import BpeConfig, UnigramConfig
from headwise.text.normalise import Normaliser

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHIFT = len(SPECIALS)


class Subword(Tokeniser):
    """A wrapper of one `tokenizers.Tokenizer`."""

    def __init__(self, engine: Tokenizer, normalise: Normaliser):
        self.engine = engine
        self.normalise = normalise
        names = {number: piece for piece, number in engine.get_vocab().items()}
        self.vocabulary = [*SPECIALS, *(names[number] for number in range(len(names)))]

    def _prepared(self, text: str) -> str:
        # A space in front lets a word be the same piece at the start of a text and inside.
        return " " + self.normalise(text) if text else ""

    def encode(self, text: str) -> list[int]:
        return [i + SHIFT for i in self.engine.encode(self._prepared(text)).ids]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self.engine.encode_batch_fast([self._prepared(text) for text in texts])
        return [[i + SHIFT for i in item.ids] for item in encoded]

    def decode(self, ids: Iterable[int]) -> str:
        return str(self.engine.decode([i - SHIFT for i in ids if i > UNK])).removeprefix(" ")

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.engine.decode([i - SHIFT]).replace(" ", "▁") if i > UNK else SPECIALS[i] for i in ids]

    def to_json(self) -> dict[str, Any]:
        return {"engine": json.loads(self.engine.to_str())}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> Subword:
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_str(json.dumps(data["engine"])), normalise)


def _train_engine(model: Any, trainer: Any, texts: Iterable[str], normalise: Normaliser) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, pre_tokenizers

    engine = Tokenizer(model)
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.train_from_iterator((" " + normalise(text) for text in texts), trainer)
    return engine


def _list_alphabet() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


class Bpe(Subword):
    """Byte-pair encoding (Sennrich et al. 2016)."""

    kind = "bpe"

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> Bpe:
        from tokenizers import models, trainers

        assert isinstance(config, BpeConfig)
        trainer = trainers.BpeTrainer(
            vocab_size=config.size - SHIFT,
            min_frequency=config.min_count,
            initial_alphabet=_list_alphabet(),
            show_progress=False,
        )
        return cls(_train_engine(models.BPE(), trainer, texts, normalise), normalise)


class Unigram(Subword):
    """A unigram language model of subwords (Kudo 2018)."""

    kind = "unigram"

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> Unigram:
        from tokenizers import models, trainers

        assert isinstance(config, UnigramConfig)
        trainer = trainers.UnigramTrainer(
            vocab_size=config.size - SHIFT, initial_alphabet=_list_alphabet(), show_progress=False
        )
        engine = _train_engine(models.Unigram(), trainer, texts, normalise)
        pieces = json.loads(engine.to_str())["model"]["vocab"]
        engine.model = models.Unigram(_fix_order(pieces))
        return cls(engine, normalise)


def _fix_order(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The same pieces in an order that is equal in every run.

    The library orders bytes it has not seen as its hash table pleases, each 0.0001 above the last,
    from the lowest score on; they all get the lowest score.
    """
    lowest = min(score for _, score in pieces)
    unseen = lowest + 256 * 1e-4
    settled = [(piece, lowest if len(piece) == 1 and score <= unseen else round(score, 6)) for piece, score in pieces]
    return sorted(settled, key=lambda item: (-item[1], item[0]))


# Byte-level vocabularies write bytes as characters (Radford et al. 2019): visible ones as themselves, others from 256.
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = sorted(set(range(256)) - set(_VISIBLE))
CHAR_TO_BYTE = {chr(byte): byte for byte in _VISIBLE} | {chr(256 + place): byte for place, byte in enumerate(_OTHERS)}
