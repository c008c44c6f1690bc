"""Hugging Face tokenizers: `tokenizer.json` as a `Tokeniser`, and the map between Headwise and Hugging Face ids."""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from headwise.config.base import Config
from headwise.errors import UserError
from headwise.text import BOS, EOS, PAD, SPECIALS, UNK
from headwise.text.base import Tokeniser
from headwise.text.engine import engine_errors
from headwise.text.normalise import PLAIN, Normaliser

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NO_HF_ID = -1  # of a special token that the Hugging Face vocabulary does not have
# `clean_up_tokenization_spaces` of transformers
CLEANED_UP = {
    " .": ".", " ?": "?", " !": "!", " ,": ",", " ' ": "'", " n't": "n't", " 'm": "'m", " 's": "'s", " 've": "'ve",
    " 're": "'re",
}  # fmt: skip
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class VocabularyMap:
    """The map between Headwise ids and Hugging Face ids, the rows of an embedding table: PAD, BOS, EOS, UNK, then the
    other tokens in their order, the mask token last. The fields are the Hugging Face ids of the special tokens.

    Where several of our special tokens have one Hugging Face id (GPT-2 starts and ends texts with the same token), one
    owns its row and the others have copies; a special token without an id has zeros. Both are `suppressed_ids`: read,
    never generated.

    >>> vocabulary_map = VocabularyMap(6, pad=5, bos=5, eos=0, unk=1)
    >>> vocabulary_map.hf_ids, vocabulary_map.suppressed_ids, vocabulary_map.headwise_ids
    ((5, 5, 0, 1, 2, 3, 4), (1,), (2, 3, 4, 5, 6, 0))
    >>> VocabularyMap(3, eos=2).hf_ids
    (-1, -1, 2, -1, 0, 1)
    """

    vocab: int
    pad: int | None = None
    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    mask: int | None = None

    def __post_init__(self) -> None:
        specials = {name: number for name, number in asdict(self).items() if name != "vocab" and number is not None}
        outside = {name: number for name, number in specials.items() if not 0 <= number < self.vocab}
        if outside:
            raise UserError(
                f"{', '.join(f'{name} {number}' for name, number in outside.items())}: special tokens must be ids from "
                f"0 to {self.vocab - 1}; correct config.json"
            )

    @cached_property
    def owners(self) -> dict[int, int]:
        """Hugging Face ids of special tokens -> the Headwise id that owns the row. EOS comes first, so that a model can
        still end a text."""
        owners: dict[int, int] = {}
        for special, number in ((EOS, self.eos), (UNK, self.unk), (PAD, self.pad), (BOS, self.bos)):
            if number is not None:
                owners.setdefault(number, special)
        return owners

    @cached_property
    def hf_ids(self) -> tuple[int, ...]:
        """The Hugging Face id of each Headwise id."""
        specials = [NO_HF_ID if number is None else number for number in (self.pad, self.bos, self.eos, self.unk)]
        last = [self.mask] if self.mask is not None and self.mask not in self.owners else []
        rest = (number for number in range(self.vocab) if number not in self.owners and number not in last)
        return (*specials, *rest, *last)

    @cached_property
    def suppressed_ids(self) -> tuple[int, ...]:
        """The Headwise ids that own no row."""
        return tuple(special for special in range(len(SPECIALS)) if self.owners.get(self.hf_ids[special]) != special)

    @cached_property
    def headwise_ids(self) -> tuple[int, ...]:
        """The Headwise id of each Hugging Face id."""
        ids = {hf_id: number for number, hf_id in enumerate(self.hf_ids) if number not in self.suppressed_ids}
        return tuple(ids[hf_id] for hf_id in range(self.vocab))


class HfTokeniser(Tokeniser):
    """A `tokenizer.json` (WordPiece, BPE, unigram), run by the `tokenizers` library, with Headwise ids.

    A text that spells a special token encodes to it, unless `split_special_tokens`. DISCREPANCY: the padding, BOS, EOS
    and mask tokens are text here, with a warning; in `transformers` they are tokens.
    Decoding leaves out special tokens except UNK, as `skip_special_tokens` does; `clean_up` removes spaces before
    punctuation.
    """

    kind = "hf"

    def __init__(
        self,
        engine: dict[str, Any],
        vocabulary_map: VocabularyMap,
        normalise: Normaliser = PLAIN,
        masked: bool = False,
        clean_up: bool = False,
        split_special_tokens: bool = False,
    ):
        self.engine, self.vocabulary_map, self.normalise, self.masked = engine, vocabulary_map, normalise, masked
        self.clean_up, self.split_special_tokens = clean_up, split_special_tokens
        size = self.tokenizer.get_vocab_size()
        if size > vocabulary_map.vocab:
            raise UserError(
                f"has {size} tokens, the model's table only {vocabulary_map.vocab}; take both from one model"
            )
        # A text that spells one of these special tokens must not encode to its id.
        self._headwise_ids = [UNK if number in (PAD, BOS, EOS) else number for number in vocabulary_map.headwise_ids]
        names = {number: piece for piece, number in self.tokenizer.get_vocab().items() if piece not in SPECIALS}
        # the masked LM task adds the mask token itself
        words = vocabulary_map.hf_ids[len(SPECIALS) : -1 if masked else None]
        self.vocabulary = [*SPECIALS, *(names.get(number, f"<{number}>") for number in words)]
        self._warned: set[str] = set()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return self._build_tokenizer()

    def _build_tokenizer(self, found: Collection[int | None] = ()) -> Tokenizer:
        """The engine; special tokens with the ids `found` are found in a text, whatever else is."""
        from tokenizers import Tokenizer

        added_tokens = [
            {**token, "special": token["special"] and token["id"] not in found} for token in self._list_added_tokens()
        ]
        try:
            tokenizer = Tokenizer.from_str(json.dumps({**self.engine, "added_tokens": added_tokens}))
        except Exception as error:  # the tokenizers library raises bare Exception
            raise UserError(f"cannot be read ({error}); fetch it again") from None
        tokenizer.encode_special_tokens = True
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def _list_added_tokens(self) -> list[dict[str, Any]]:
        """The added tokens of the engine; those that a text may spell are not special to it, so that it finds them."""
        added_tokens: list[dict[str, Any]] = self.engine.get("added_tokens") or []
        if self.split_special_tokens:
            return added_tokens
        return [{**token, "special": token["id"] in self._text_only_ids} for token in added_tokens]

    @property
    def _text_only_ids(self) -> tuple[int | None, ...]:
        """The Hugging Face ids of special tokens that are text where a text spells them."""
        return (self.vocabulary_map.pad, self.vocabulary_map.bos, self.vocabulary_map.eos, self.vocabulary_map.mask)

    @cached_property
    def _text_only_tokens(self) -> list[str]:
        if self.split_special_tokens:
            return []
        added_tokens = self.engine.get("added_tokens") or []
        return [str(token["content"]) for token in added_tokens if token["id"] in self._text_only_ids]

    @cached_property
    def _skipped_ids(self) -> set[int]:
        """The Hugging Face ids that decoding leaves out: those that read as a special token does. For the library, one
        that the normaliser changes does not."""
        added_tokens = self.engine.get("added_tokens") or []
        contents = {str(token["content"]) for token in added_tokens if token["special"]}
        numbers = {int(token["id"]) for token in added_tokens} | {self.tokenizer.token_to_id(each) for each in contents}
        special_ids = {
            number for number in numbers if number is not None and self.tokenizer.id_to_token(number) in contents
        }
        return special_ids - {self.vocabulary_map.unk}

    @cached_property
    def special_ids(self) -> Sequence[int]:
        hf_ids, skipped = self.vocabulary_map.hf_ids, self._skipped_ids
        others = [number for number in range(len(SPECIALS), self.size) if hf_ids[number] in skipped]
        return (*range(len(SPECIALS)), *others)

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> HfTokeniser:
        raise UserError("tokeniser: one of kind 'hf' is imported, not trained; use bpe")

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        texts = [self.normalise(text) for text in texts]
        self._warn_of_special_tokens(texts)
        with engine_errors():
            encoded = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [[self._headwise_ids[number] for number in item.ids] for item in encoded]

    def encode_words(self, texts: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of each word, encoded with the other words of its text: a token may hold the space before it. It
        belongs to the first word that ends after its start."""
        joined = [" ".join(words) for words in texts]
        self._warn_of_special_tokens(joined)
        by_text: list[list[list[int]]] = [[[] for _ in words] for words in texts]
        for words, text, item in zip(
            texts, by_text, self.tokenizer.encode_batch(joined, add_special_tokens=False), strict=True
        ):
            ends = list(accumulate(len(word) + 1 for word in words))  # with the space after each
            for number, (start, _) in zip(item.ids, item.offsets, strict=True):
                text[min(bisect_right(ends, start + 1), len(words) - 1)].append(self._headwise_ids[number])
        return by_text

    def encode_around_masks(self, parts: Sequence[str]) -> list[list[int]]:
        """Encoded as one text with the mask token between the parts: whether a space before or after it counts is the
        tokenizer's to say."""
        mask = self.vocabulary_map.mask
        if mask is None:
            return super().encode_around_masks(parts)
        text = str(self.tokenizer.id_to_token(mask)).join(self.normalise(part) for part in parts)
        ids: list[list[int]] = [[]]
        for number in self._masking_tokenizer.encode(text, add_special_tokens=False).ids:
            if number == mask:
                ids.append([])
            else:
                ids[-1].append(self._headwise_ids[number])
        return ids

    @cached_property
    def _masking_tokenizer(self) -> Tokenizer:
        """The same, which finds the mask token in a text."""
        return self._build_tokenizer({self.vocabulary_map.mask})

    def _warn_of_special_tokens(self, texts: Sequence[str]) -> None:
        for token in self._text_only_tokens:
            if token not in self._warned and any(token in text for text in texts):
                self._warned.add(token)
                log.warning("%s: in a text it is text here, and a special token in transformers", token)

    def decode(self, ids: Iterable[int]) -> str:
        hf_ids = self.vocabulary_map.hf_ids
        text = self._decode_ids([number for number in ids if number > EOS and hf_ids[number] not in self._skipped_ids])
        if self.clean_up:
            for spaced, joined in CLEANED_UP.items():
                text = text.replace(spaced, joined)
        return text

    def tokens(self, ids: Iterable[int]) -> list[str]:
        if not self.byte_level:
            return [self.vocabulary[number] for number in ids]
        return [self._decode_ids([number]).replace(" ", "▁") if number > UNK else SPECIALS[number] for number in ids]

    def to_json(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "vocabulary_map": asdict(self.vocabulary_map),
            "masked": self.masked,
            "clean_up": self.clean_up,
            "split_special_tokens": self.split_special_tokens,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> HfTokeniser:
        flags = (data["masked"], data["clean_up"], data["split_special_tokens"])
        return cls(data["engine"], VocabularyMap(**data["vocabulary_map"]), normalise, *flags)

    @cached_property
    def appends_eos(self) -> bool:
        return self.vocabulary_map.eos in self.find_template()[1]

    def find_template(self) -> tuple[list[int], list[int]]:
        """The Hugging Face ids that the original tokenizer puts before and after a text."""
        text = next(piece for piece in ("a", "1", *self.vocabulary[len(SPECIALS) :]) if self._encode_plain(piece))
        plain, ids = self._encode_plain(text), list(self.tokenizer.encode(text).ids)
        start = next(i for i in range(len(ids)) if ids[i : i + len(plain)] == plain)
        return ids[:start], ids[start + len(plain) :]

    def find_pair_template(self) -> list[int]:
        """The Hugging Face ids of the special tokens that the original tokenizer adds to two texts."""
        return self.encode_pair_template()[0]

    def encode_pair_template(self) -> tuple[list[int], list[int]]:
        """The same with their token types."""
        encoding = self.tokenizer.encode("", "")
        return list(encoding.ids), list(encoding.type_ids)

    def _encode_plain(self, text: str) -> list[int]:
        with engine_errors():
            return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    @property
    def prepends_bos(self) -> bool:
        """Whether the original tokenizer puts BOS before a text."""
        return bool(self.tokenizer.encode("").ids[:1] == [self.vocabulary_map.bos])

    @property
    def pair_separators(self) -> int:
        """The EOS tokens that the original tokenizer puts between two texts; 1 where it adds no special tokens."""
        return max(1, sum(number == self.vocabulary_map.eos for number in self.find_pair_template()) - 1)

    @property
    def byte_level(self) -> bool:
        """Whether its tokens are bytes written as characters, which are not readable."""
        return (self.engine.get("decoder") or {}).get("type") == "ByteLevel"

    def _decode_ids(self, ids: Sequence[int]) -> str:
        hf_ids = [self.vocabulary_map.hf_ids[number] for number in ids]
        return str(
            self.tokenizer.decode([number for number in hf_ids if number != NO_HF_ID], skip_special_tokens=False)
        )
