"""The tokeniser files of a folder: `tokenizer.json` and the files that name its special tokens."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.text.hf import HfTokeniser, VocabularyMap
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels, Words

if TYPE_CHECKING:
    from headwise.interop.hf.architecture import Architecture

SPECIAL_NAMES = ("pad", "bos", "eos", "unk", "mask")
TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
NATIVE = "headwise-tokenisers.json"  # written for a tokeniser that no tokenizer.json can express
MASKING_TASKS = ("masked", "replaced-tokens")  # the last row of their vocabulary is the mask token
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
    tokenizer_json: dict[str, Any]  # empty where there is none
    special_tokens: dict[str, Any]  # `bos_token` and the like
    native: Tokenisers | None = None

    @classmethod
    def read(cls, folder: Path) -> TokeniserFiles:
        path, native = folder / TOKENIZER, folder / NATIVE
        files = [folder / name for name in (SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG) if (folder / name).is_file()]
        return cls(
            str(path),
            read_json(path) if path.is_file() else {},
            {key: value for file in files for key, value in read_json(file).items() if value is not None},
            Tokenisers.load(native) if native.is_file() else None,
        )

    def find_special_id(self, name: str, config: Mapping[str, Any]) -> int | None:
        """The id of a special token: from `config.json`, or of the token that the other files name."""
        token_id = config.get(f"{name}_token_id")
        token_id = token_id[0] if isinstance(token_id, list | tuple) and token_id else token_id
        if token_id is not None:
            if type(token_id) is not int:
                raise UserError(f"config.json: {name}_token_id is no id but {token_id!r}; correct it")
            return token_id if token_id >= 0 else None  # some files have -1 where there is none
        model = self.tokenizer_json.get("model", {})
        if name == "unk" and isinstance(model.get("unk_id"), int):
            return int(model["unk_id"])
        token = self.special_tokens.get(f"{name}_token") or model.get(f"{name}_token")
        token = token.get("content") if isinstance(token, dict) else token
        pieces = model["vocab"] if isinstance(model.get("vocab"), dict) else {}
        added = {entry["content"]: entry["id"] for entry in self.tokenizer_json.get("added_tokens", ())}
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
        if self.native or not self.tokenizer_json:
            return self.native
        try:
            tokeniser = HfTokeniser(self.tokenizer_json, vocabularies.source, masked=task in MASKING_TASKS)
        except UserError as error:
            raise UserError(f"{self.where}: {error}") from None
        target = LABELLERS[task](distinguish_labels(labels)) if task in LABELLERS else tokeniser
        return Tokenisers(tokeniser, target)


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
