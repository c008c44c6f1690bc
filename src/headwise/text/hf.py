"""Hugging Face tokenizers: `tokenizer.json` as a `Tokeniser`, and the map between its ids and ours."""

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

NO_ROW = -1  # the row of a special token that the other model does not have


@dataclass(frozen=True)
class Rows:
    """The map from our ids to the rows of another model's embedding table: PAD, BOS, EOS, UNK, then the other tokens in
    their order, the mask token last. The fields are the rows of the special tokens.

    Where several of our special tokens are one row (GPT-2 starts and ends texts with the same token), one owns it and
    the others have copies; a special token without a row has zeros. Both are `spare` ids: read, never generated.

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
        outside = {name: row for name, row in specials.items() if not 0 <= row < self.vocab}
        if outside:
            raise UserError(
                f"{', '.join(f'{name} {row}' for name, row in outside.items())}: special tokens must be ids from 0 to "
                f"{self.vocab - 1}; correct config.json"
            )

    @cached_property
    def owners(self) -> dict[int, int]:
        """Rows of special tokens -> our id that owns each. EOS comes first, so that a model can still end a text."""
        owners: dict[int, int] = {}
        for special, row in ((EOS, self.eos), (UNK, self.unk), (PAD, self.pad), (BOS, self.bos)):
            if row is not None:
                owners.setdefault(row, special)
        return owners

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Our ids -> rows."""
        specials = [NO_ROW if row is None else row for row in (self.pad, self.bos, self.eos, self.unk)]
        last = [self.mask] if self.mask is not None and self.mask not in self.owners else []
        rest = (row for row in range(self.vocab) if row not in self.owners and row not in last)
        return (*specials, *rest, *last)

    @cached_property
    def spare(self) -> tuple[int, ...]:
        """Our ids that own no row."""
        return tuple(special for special in range(len(SPECIALS)) if self.owners.get(self.order[special]) != special)

    @cached_property
    def back(self) -> tuple[int, ...]:
        """Rows -> our ids."""
        ids = {row: number for number, row in enumerate(self.order) if number not in self.spare}
        return tuple(ids[row] for row in range(self.vocab))


class HfTokeniser(Tokeniser):
    """A `tokenizer.json` (WordPiece, BPE, unigram), run by the `tokenizers` library, with our ids.

    DISCREPANCY: `transformers` parses a "</s>" in a text as the special token; here it is text.
    """

    kind = "hf"

    def __init__(self, engine: dict[str, Any], rows: Rows, normalise: Normaliser = PLAIN, masked: bool = False):
        self.engine, self.rows, self.normalise, self.masked = engine, rows, normalise, masked
        size = self.tokenizer.get_vocab_size()
        if size > rows.vocab:
            raise UserError(f"has {size} tokens, the model's table only {rows.vocab}; take both from one model")
        # A text that spells a special token must not encode to its id.
        self._row_to_id = [UNK if number in (PAD, BOS, EOS) else number for number in rows.back]
        names = {number: piece for piece, number in self.tokenizer.get_vocab().items() if piece not in SPECIALS}
        words = rows.order[len(SPECIALS) : -1 if masked else None]  # the masked LM task adds the mask token itself
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
        return [[self._row_to_id[row] for row in item.ids] for item in encoded]

    def decode(self, ids: Iterable[int]) -> str:
        return self._decode_ids([number for number in ids if number > EOS])

    def tokens(self, ids: Iterable[int]) -> list[str]:
        if not self.byte_level:
            return [self.vocabulary[number] for number in ids]
        return [self._decode_ids([number]).replace(" ", "▁") if number > UNK else SPECIALS[number] for number in ids]

    def to_json(self) -> dict[str, Any]:
        return {"engine": self.engine, "rows": asdict(self.rows), "masked": self.masked}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> HfTokeniser:
        return cls(data["engine"], Rows(**data["rows"]), normalise, data["masked"])

    def find_template(self) -> tuple[list[int], list[int]]:
        """The rows that the original tokenizer puts before and after a text."""
        text = next(piece for piece in ("a", "1", *self.vocabulary[len(SPECIALS) :]) if self._encode_rows(piece))
        bare, rows = self._encode_rows(text), list(self.tokenizer.encode(text).ids)
        start = next(i for i in range(len(rows)) if rows[i : i + len(bare)] == bare)
        return rows[:start], rows[start + len(bare) :]

    def _encode_rows(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    @property
    def prepends_bos(self) -> bool:
        """Whether the original tokenizer puts BOS before a text."""
        return bool(self.tokenizer.encode("").ids[:1] == [self.rows.bos])

    @property
    def pair_separators(self) -> int:
        """The EOS tokens that the original tokenizer puts between two texts; 1 where it adds no special tokens."""
        special_ids = self.tokenizer.encode("", "").ids
        return max(1, sum(number == self.rows.eos for number in special_ids) - 1)

    @property
    def byte_level(self) -> bool:
        """Whether its tokens are bytes written as characters, which are not readable."""
        return (self.engine.get("decoder") or {}).get("type") == "ByteLevel"

    def _decode_ids(self, ids: Sequence[int]) -> str:
        rows = [self.rows.order[number] for number in ids]
        return str(self.tokenizer.decode([row for row in rows if row != NO_ROW], skip_special_tokens=False))
