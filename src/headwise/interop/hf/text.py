"""The tokeniser files of a folder: `tokenizer.json` and the files that name its special tokens."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from headwise.errors import UserError
from headwise.interop.hf.tokenizer_config import TOKENIZER, ResolvedTokenizer, resolve_tokenizer
from headwise.interop.hf.vocabulary_files import has_vocabulary_files
from headwise.models.language_model import LanguageModel
from headwise.text.hf import HfTokeniser, VocabularyMap
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels, Words

if TYPE_CHECKING:
    from headwise.interop.hf.architecture import Architecture

SPECIAL_NAMES = ("pad", "bos", "eos", "unk", "mask")
NATIVE = "headwise-tokenisers.json"  # written for a tokeniser that no tokenizer.json can express
GENERATIVE_TASKS = ("language-model", "transduce")
MASKING_TASKS = ("masked", "replaced-tokens")  # the last row of their vocabulary is the mask token
PAIR_TASKS = ("classify", "regress", "answer")  # that read two texts, too
LABELLERS: dict[str, type[Words | Labels]] = {"tag": Words, "classify": Labels, "regress": Labels}


class Vocabularies(NamedTuple):
    """The maps of the source vocabulary, and of the target vocabulary or the labels."""

    source: VocabularyMap
    target: VocabularyMap


NO_VOCABULARIES = Vocabularies(VocabularyMap(0), VocabularyMap(0))  # of an image model


@dataclass(frozen=True)
class TokeniserFiles:
    """The contents of a folder's tokeniser files."""

    where: str
    tokenizer: ResolvedTokenizer | None  # None where there is no tokenizer.json
    native: Tokenisers | None = None

    @classmethod
    def read(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        """Read the files of a folder; `config` is its `config.json`."""
        path, native = folder / TOKENIZER, folder / NATIVE
        tokenizer = resolve_tokenizer(folder, config) if path.is_file() or has_vocabulary_files(folder) else None
        return cls(str(path), tokenizer, Tokenisers.load(native) if native.is_file() else None)

    def drop_new_tokens(self, vocab: int) -> Self:
        """Without tokens that the tokenizer class adds to `tokenizer.json` beyond the model's table, which no model
        could read."""
        if self.tokenizer is None:
            return self
        data, new_tokens = self.tokenizer.tokenizer_json, self.tokenizer.new_tokens
        added = [token for token in data["added_tokens"] if token["id"] < vocab or token["content"] not in new_tokens]
        return replace(self, tokenizer=replace(self.tokenizer, tokenizer_json={**data, "added_tokens": added}))

    def find_special_id(self, name: str, config: Mapping[str, Any]) -> int | None:
        """The id of a special token: from `config.json`, or of the token that the other files name."""
        token_id = config.get(f"{name}_token_id")
        token_id = token_id[0] if isinstance(token_id, list | tuple) and token_id else token_id
        if token_id is not None:
            if type(token_id) is not int:
                raise UserError(f"config.json: {name}_token_id is no id but {token_id!r}; correct it")
            return token_id if token_id >= 0 else None  # some files have -1 where there is none
        if self.tokenizer is None:
            return None
        model = self.tokenizer.tokenizer_json["model"]
        if name == "unk" and isinstance(model.get("unk_id"), int):
            return int(model["unk_id"])
        token = self.tokenizer.special_tokens.get(f"{name}_token") or model.get(f"{name}_token")
        pieces = model["vocab"] if isinstance(model.get("vocab"), dict) else {}
        added = {entry["content"]: entry["id"] for entry in self.tokenizer.tokenizer_json.get("added_tokens") or ()}
        return added.get(token, pieces.get(token))

    def build_vocabularies(
        self, architecture: Architecture, hf_config: Any, config: Mapping[str, Any], labels: Collection[str] = ()
    ) -> Vocabularies:
        """The map of the vocabulary, and of the labels where there are any; `config` has the special ids."""
        ids = {name: self.find_special_id(architecture.special_name(name), config) for name in SPECIAL_NAMES}
        source = VocabularyMap(hf_config.vocab_size, **ids)
        return Vocabularies(source, VocabularyMap(len(labels)) if labels else source)

    def list_settings(self, vocabularies: Vocabularies) -> dict[str, Any]:
        """Settings of the model that only the tokeniser files have."""
        return {}

    def build_tokenisers(self, vocabularies: Vocabularies, labels: list[str], task: str) -> Tokenisers | None:
        """The tokenisers of texts, and of labels where the task has them; None without a `tokenizer.json`."""
        if self.native or self.tokenizer is None:
            return self.native
        try:
            tokeniser = HfTokeniser(
                self.tokenizer.tokenizer_json,
                vocabularies.source,
                masked=task in MASKING_TASKS,
                clean_up=self.tokenizer.clean_up,
                split_special_tokens=self.tokenizer.split_special_tokens,
            )
        except UserError as error:
            raise UserError(f"{self.where}: {error}") from None
        target = LABELLERS[task](distinguish_labels(labels)) if task in LABELLERS else tokeniser
        return Tokenisers(tokeniser, target)

    def have_pair_types(self, tokenisers: Tokenisers | None) -> bool:
        """Whether the texts of a pair have different token types."""
        if self.tokenizer is None or tokenisers is None or not isinstance(tokenisers.source, HfTokeniser):
            return True
        return self.tokenizer.returns_token_types and any(tokenisers.source.encode_pair_template()[1])


def check_template(tokeniser: HfTokeniser, model: Any, task: str, where: str) -> None:
    """Refuse a post-processor that puts other special tokens around texts than the model reads here."""
    if isinstance(model, LanguageModel):
        after: list[int | None] = []
        allowed: list[list[int | None]] = [[], [tokeniser.vocabulary_map.bos]]
    else:
        before, after = list_template(tokeniser.vocabulary_map, model.encoder)
        allowed = [before]
    actual = tokeniser.find_template()
    after = after if tokeniser.appends_eos or task != "tag" else []  # of a tagger that was trained without
    if actual[0] not in allowed or actual[1] != after:
        raise UserError(
            f"{where}: post_processor: transformers reads a text as {describe_template(tokeniser, *actual)}, the model "
            f"here as {describe_template(tokeniser, allowed[-1], after)}; correct the post_processor, or the special "
            "tokens of tokenizer_config.json"
        )
    separators = [tokeniser.vocabulary_map.eos] * tokeniser.pair_separators
    if task not in GENERATIVE_TASKS and after and tokeniser.find_pair_template() != [*allowed[0], *separators, *after]:
        raise UserError(f"{where}: post_processor: two texts must have EOS after each, as a pair; correct it")


def check_token_types(tokeniser: HfTokeniser, first_type: int, where: str) -> None:
    """Refuse a post-processor that gives the texts of a pair other token types than the model does here."""
    ids, types = tokeniser.encode_pair_template()
    second = len(ids) - 1  # the EOS of the second text
    expected = [int(number >= second) for number in range(len(ids))]
    expected[0] = first_type if ids[0] == tokeniser.vocabulary_map.bos else expected[0]
    if types != expected:
        raise UserError(
            f"{where}: post_processor: its special tokens of two texts have the token types {types}, the model here "
            f"gives them {expected}; correct it"
        )


def refuse_pair_types(hf_config: Any, where: str) -> None:
    """Refuse token types of pairs where the model has a table of them and reads the first alone (RoBERTa)."""
    if getattr(hf_config, "type_vocab_size", 0) > 1:
        raise UserError(
            f"{where}: gives the texts of a pair token types, and {hf_config.model_type} reads the first alone here; "
            'set "model_input_names": ["input_ids", "attention_mask"] in tokenizer_config.json if the model was '
            "trained so, else use transformers for this one"
        )


def list_template(vocabulary_map: VocabularyMap, encoder: Any) -> tuple[list[int | None], list[int | None]]:
    """The Hugging Face ids that an encoder reads before and after a text."""
    before, suffix = (
        [] if token is None else [vocabulary_map.hf_ids[token]]
        for token in (encoder.prefix_id, getattr(encoder, "suffix_id", None))
    )
    return before, [vocabulary_map.eos, *suffix]


def describe_template(tokeniser: HfTokeniser, before: Iterable[int | None], after: Iterable[int | None]) -> str:
    names = [
        [str(number if number is None else tokeniser.tokenizer.id_to_token(number)) for number in ids]
        for ids in (before, after)
    ]
    return f"'{' '.join([*names[0], '...', *names[1]])}'"


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1), encoding="utf-8")


def distinguish_labels(labels: Iterable[str]) -> list[str]:
    """Add its number to a repeated label: ImageNet has two called "crane".

    >>> distinguish_labels(["crane", "dog", "crane"])
    ['crane', 'dog', 'crane (2)']
    """
    numbers: dict[str, int] = {}
    for number, label in enumerate(labels):
        numbers[label if label not in numbers else f"{label} ({number})"] = number
    return list(numbers)
