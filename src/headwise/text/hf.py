"""Vocabularies of Hugging Face folders: their rows in our order, and `tokenizer.json` as a tokeniser of ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwise.config.base import Config
from headwise.errors import UserError
from headwise.text import BOS, EOS, PAD, SPECIALS, UNK
from headwise.text.base import Tokeniser
from headwise.text.normalise import PLAIN, Normaliser

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NO_ROW = -1  # the row of a mark that the other program does not have


@dataclass(frozen=True)
class Rows:
    """Which row of a foreign table each of our ids has: PAD, BOS, EOS, UNK, then the others as they stand there, the
    mask last. Marks are named by the rows that they have there.

    Where several of our special tokens are one row there (GPT-2 begins and ends with the same), one owns it and the
    others get copies; a mark that is not there at all gets a row of zeros. Both are `spare`: read, never to be written.

    >>> rows = Rows(6, pad=5, bos=5, eos=0, unk=1)
    >>> rows.order, rows.spare, rows.back
    ((5, 5, 0, 1, 2, 3, 4), (1,), (2, 3, 4, 5, 6, 0))
    >>> Rows(3, eos=2).order
    (-1, -1, 2, -1, 0, 1)
    """

    vocab: int
    pad: int | None = None
    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    mask: int | None = None

    def __post_init__(self) -> None:
        specials = {name: row for name, row in asdict(self).items() if name != "vocab" and row is not None}
        wrong = {name: row for name, row in specials.items() if not 0 <= row < self.vocab}
        if wrong:
            raise UserError(
                f"{', '.join(f'{name} {row}' for name, row in wrong.items())}: special tokens must be ids from 0 to "
                f"{self.vocab - 1}; correct config.json"
            )

    @cached_property
    def owners(self) -> dict[int, int]:
        """Their rows of special tokens -> the one mark of ours that owns each: what ends a text must stay able to end
        it."""
        owners: dict[int, int] = {}
        for ours, row in ((EOS, self.eos), (UNK, self.unk), (PAD, self.pad), (BOS, self.bos)):
            if row is not None:
                owners.setdefault(row, ours)
        return owners

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Our ids -> their rows."""
        specials = [NO_ROW if row is None else row for row in (self.pad, self.bos, self.eos, self.unk)]
        last = [self.mask] if self.mask is not None and self.mask not in self.owners else []
        rest = (row for row in range(self.vocab) if row not in self.owners and row not in last)
        return (*specials, *rest, *last)

    @cached_property
    def spare(self) -> tuple[int, ...]:
        """Our ids without a row of their own."""
        return tuple(ours for ours in range(len(SPECIALS)) if self.owners.get(self.order[ours]) != ours)

    @cached_property
    def back(self) -> tuple[int, ...]:
        """Their rows -> our ids."""
        ours = {row: number for number, row in enumerate(self.order) if number not in self.spare}
        return tuple(ours[row] for row in range(self.vocab))


class HfTokeniser(Tokeniser):
    """`tokenizer.json` of a folder, by the `tokenizers` library, with our ids.

    DISCREPANCY: `transformers` takes a "</s>" in a text for the mark; here text is only ever text.
    """

    kind = "hf"

    def __init__(self, engine: dict[str, Any], rows: Rows, normalise: Normaliser = PLAIN, masked: bool = False):
        self.engine, self.rows, self.normalise, self.masked = engine, rows, normalise, masked
        size = self.tokenizer.get_vocab_size()
        if size > rows.vocab:
            raise UserError(f"has {size} tokens, the model's table only {rows.vocab}; take both from one model")
        # Marks that a text spells, with pieces that are called like them, are words that nobody knows.
        self._ours = [UNK if ours in (PAD, BOS, EOS) else ours for ours in rows.back]
        names = {number: piece for piece, number in self.tokenizer.get_vocab().items() if piece not in SPECIALS}
        words = rows.order[len(SPECIALS) : -1 if masked else None]  # a task that masks adds the mask itself
        self.vocabulary = [*SPECIALS, *(names.get(row, f"<{row}>") for row in words)]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_str(json.dumps(self.engine))
        except Exception as error:  # the tokenizers library raises bare Exception
            raise UserError(f"cannot be read ({error}); fetch it again") from None
        tokenizer.encode_special_tokens = True
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> HfTokeniser:
        raise UserError("tokeniser: one of kind 'hf' is imported, not trained; use bpe")

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        texts = [self.normalise(text) for text in texts]
        encoded = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [[self._ours[row] for row in item.ids] for item in encoded]

    def decode(self, ids: Iterable[int]) -> str:
        return self._decoded([number for number in ids if number > EOS])

    def tokens(self, ids: Iterable[int]) -> list[str]:
        if not self.byte_level:
            return [self.vocabulary[number] for number in ids]
        return [self._decoded([number]).replace(" ", "▁") if number > UNK else SPECIALS[number] for number in ids]

    def to_json(self) -> dict[str, Any]:
        return {"engine": self.engine, "rows": asdict(self.rows), "masked": self.masked}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> HfTokeniser:
        return cls(data["engine"], Rows(**data["rows"]), normalise, data["masked"])

    @property
    def prepends_bos(self) -> bool:
        """Whether its own program puts the start mark before a text."""
        return bool(self.tokenizer.encode("").ids[:1] == [self.rows.bos])

    @property
    def byte_level(self) -> bool:
        """Whether pieces are bytes in disguise, which say nothing to people."""
        return (self.engine.get("decoder") or {}).get("type") == "ByteLevel"

    def _decoded(self, ids: Sequence[int]) -> str:
        rows = [self.rows.order[number] for number in ids]
        return str(self.tokenizer.decode([row for row in rows if row != NO_ROW], skip_special_tokens=False))
