"""What a folder says about its tokens: `tokenizer.json` and the files beside it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.text.hf import HfTokeniser, Rows
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels, Words

if TYPE_CHECKING:
    from headwise.interop.hf.architecture import Architecture

MARKS = ("pad", "bos", "eos", "unk", "mask")
TOKENIZER, SETTINGS, NAMES = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
OURS = "headwise-tokenisers.json"  # in folders that we wrote with a tokeniser that no tokenizer.json can express
LABELLERS: dict[str, type[Words | Labels]] = {"tag": Words, "classify": Labels, "regress": Labels}


class Vocabularies(NamedTuple):
    """The rows of the words that are read, and of the words or labels that are written."""

    source: Rows
    target: Rows


NO_WORDS = Vocabularies(Rows(0), Rows(0))  # of a model that reads images


@dataclass(frozen=True)
class Texts:
    """What is known about the tokens of a model."""

    where: str
    engine: dict[str, Any]  # tokenizer.json; empty where there is none
    names: dict[str, Any]  # `bos_token` and the like
    ours: Tokenisers | None = None

    @classmethod
    def of(cls, folder: Path) -> Texts:
        """From the files of a folder."""
        path, ours = folder / TOKENIZER, folder / OURS
        files = [folder / name for name in (NAMES, SETTINGS) if (folder / name).is_file()]
        return cls(
            str(path),
            read_json(path) if path.is_file() else {},
            {key: value for file in files for key, value in read_json(file).items() if value is not None},
            Tokenisers.load(ours) if ours.is_file() else None,
        )

    def mark(self, role: str, config: Mapping[str, Any]) -> int | None:
        """The id of a mark: as `config.json` says, or of the token that the other files name."""
        given = config.get(f"{role}_token_id")
        given = given[0] if isinstance(given, list | tuple) and given else given
        if given is not None:
            if type(given) is not int:
                raise UserError(f"config.json: {role}_token_id is no id but {given!r}; correct it")
            return given if given >= 0 else None  # some files say -1 where there is none
        model = self.engine.get("model", {})
        if role == "unk" and isinstance(model.get("unk_id"), int):
            return int(model["unk_id"])
        name = self.names.get(f"{role}_token") or model.get(f"{role}_token")
        name = name.get("content") if isinstance(name, dict) else name
        pieces = model["vocab"] if isinstance(model.get("vocab"), dict) else {}
        added = {token["content"]: token["id"] for token in self.engine.get("added_tokens", ())}
        return added.get(name, pieces.get(name))

    def words(
        self, kind: Architecture, theirs: Any, config: Mapping[str, Any], labels: Collection[str] = ()
    ) -> Vocabularies:
        """The rows of words; a model that labels has some of labels beside."""
        source = Rows(theirs.vocab_size, **{mark: self.mark(kind.role(mark), config) for mark in MARKS})
        return Vocabularies(source, Rows(len(labels)) if labels else source)

    def tokenisers(self, words: Vocabularies, labels: list[str], task: str) -> Tokenisers | None:
        """Of texts, and of labels where the task has them."""
        if self.ours or not self.engine:
            return self.ours
        try:
            texts = HfTokeniser(self.engine, words.source, masked=task == "masked")
        except UserError as error:
            raise UserError(f"{self.where}: {error}") from None
        return Tokenisers(texts, LABELLERS[task](distinct(labels)) if task in LABELLERS else texts)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1), encoding="utf-8")


def distinct(names: Iterable[str]) -> list[str]:
    """Labels that are told apart: ImageNet has two called "crane".

    >>> distinct(["crane", "dog", "crane"])
    ['crane', 'dog', 'crane (2)']
    """
    found: dict[str, int] = {}
    for number, name in enumerate(names):
        found[name if name not in found else f"{name} ({number})"] = number
    return list(found)
