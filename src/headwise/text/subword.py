"""Subword tokenisers trained by the `tokenizers` library: BPE and unigram.

Both work on bytes, so there are no unknown tokens and decoding restores the exact text. The library is given no special
tokens: its ids are shifted by four, so that a "</s>" in a text is four characters and never EOS.

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
from headwise.text.engine import engine_errors
from headwise.text.normalise import Normaliser

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import Model
    from tokenizers.trainers import Trainer

SHIFT = len(SPECIALS)


class Subword(Tokeniser):
    """A wrapper of a `tokenizers.Tokenizer`."""

    def __init__(self, engine: Tokenizer, normalise: Normaliser):
        self.engine = engine
        self.normalise = normalise
        names = {number: piece for piece, number in engine.get_vocab().items()}
        self.vocabulary = [*SPECIALS, *(names[number] for number in range(len(names)))]

    def _add_space(self, text: str) -> str:
        # With a space before it, a word at the start of a text has the same tokens as inside.
        return " " + self.normalise(text) if text else ""

    def encode(self, text: str) -> list[int]:
        with engine_errors():
            return [i + SHIFT for i in self.engine.encode(self._add_space(text)).ids]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        with engine_errors():
            encoded = self.engine.encode_batch_fast([self._add_space(text) for text in texts])
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


def _train_engine(model: Model, trainer: Trainer, texts: Iterable[str], normalise: Normaliser) -> Tokenizer:
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
    """Sort pieces in an order that is the same in every run.

    The library scores bytes it has not seen in the order of its hash table, each 0.0001 above the last, from the lowest
    score up; here they all get the lowest score.
    """
    lowest = min(score for _, score in pieces)
    unseen = lowest + 256 * 1e-4
    scored = [(piece, lowest if len(piece) == 1 and score <= unseen else round(score, 6)) for piece, score in pieces]
    return sorted(scored, key=lambda item: (-item[1], item[0]))


# Byte-level BPE writes bytes as characters (Radford et al. 2019): visible ones as themselves, the rest from 256.
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = sorted(set(range(256)) - set(_VISIBLE))
CHAR_TO_BYTE = {chr(byte): byte for byte in _VISIBLE} | {chr(256 + index): byte for index, byte in enumerate(_OTHERS)}
