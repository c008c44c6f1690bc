"""The tokeniser of Marian models: SentencePiece (Kudo and Richardson 2018) splits, `vocab.json` has the ids.

Encoding and decoding need the extra `marian` (sentencepiece).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwise.config.base import Config
from headwise.errors import UserError
from headwise.text import EOS, UNK
from headwise.text.base import Tokeniser
from headwise.text.normalise import PLAIN, Normaliser
from headwise.utils.extras import needed_for

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

_LANGUAGE = re.compile(r">>.*?<<")  # the target language before the text, for a multilingual model


class MarianTokeniser(Tokeniser):
    """One side of a Marian model, with our ids."""

    kind = "marian"

    def __init__(self, model: bytes, vocabulary: list[str], normalise: Normaliser = PLAIN):
        self.model = model
        self.vocabulary = vocabulary
        self.normalise = normalise
        self._ids = {piece: number for number, piece in enumerate(vocabulary) if number > UNK}

    @cached_property
    def engine(self) -> SentencePieceProcessor:
        with needed_for("Marian's tokeniser"):
            from sentencepiece import SentencePieceProcessor
        try:
            return SentencePieceProcessor(model_proto=self.model)
        except RuntimeError:
            raise UserError("the SentencePiece model is damaged; fetch source.spm and target.spm again") from None

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> MarianTokeniser:
        raise UserError("tokeniser: a Marian tokeniser is imported, not trained; use unigram")

    def encode(self, text: str) -> list[int]:
        text = self.normalise(text)
        language = _LANGUAGE.match(text)
        code = [language.group()] if language else []
        pieces = self.engine.encode(text[language.end() :] if language else text, out_type=str)
        return [self._ids.get(piece, UNK) for piece in code + pieces]

    def decode(self, ids: Iterable[int]) -> str:
        return str(self.engine.decode_pieces([self.vocabulary[i] for i in ids if i > EOS])).strip()

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.vocabulary[i] for i in ids]

    def to_json(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary, "model": b64encode(self.model).decode()}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> MarianTokeniser:
        return cls(b64decode(data["model"], validate=True), list(map(str, data["vocabulary"])), normalise)
