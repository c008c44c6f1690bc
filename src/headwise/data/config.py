"""What to learn from (`[data]`) and in which units (`[tokeniser]`).

>>> TOKENISERS.parse({"kind": "characters", "target": {"kind": "words"}}).target.kind
'words'
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from headwise.config.base import Config, Table, slot

Form = Literal["", "NFC", "NFD", "NFKC", "NFKD"]
Format = Literal[
    "tsv", "dictionary", "conllu", "conllu-trees", "labelled-zip", "lines", "documents", "text", "codespell", "geonames"
]
Column = Literal["upos", "xpos", "deprel"]

UNPAIRED = ("lines", "documents", "text")  # formats that have a target side alone: the source is empty


DATA = Table("data", default="texts", place="data")


@DATA.add
class DataConfig(Config):
    """Pairs of texts: a corpus by `name`, or files.

    Each of `train`, `valid` and `test` is one file that holds both sides or two files aligned line
    by line, plain or gzip. Where `valid` is not given, it is held out of `train`. Plain text (`lines`,
    `documents`, `text`) makes pairs with an empty source, from any number of files, folders and patterns
    such as `books/*.txt`; it need not fit in memory.
    """

    kind: Literal["texts"] = "texts"
    name: str = ""
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    root: str = ""  # where names and relative files are looked for
    cache: str = ""  # where tokenised examples are kept; empty: the user's cache folder
    format: Format = "tsv"  # how one file holds both sides
    column: Column = "upos"  # which column of a CoNLL-U file has the tags
    columns: tuple[str | int, ...] = ()  # of a TSV: one text or two and what is to be told, by name or counted from 1
    one_to_one: bool = False  # the targets are tags, one for each word of the source; the tagging task sets it
    reverse: bool = False  # learn the second side -> the first
    prefix: str = ""  # put before every source, such as "summarize: "
    valid_fraction: float = Field(0.05, gt=0, lt=1)
    valid_size: int = Field(2000, gt=0)  # a held-out validation part has at most about this many pairs
    test_fraction: float = Field(0.0, ge=0, lt=1)
    max_length: int = Field(512, gt=0)  # tokens; pairs with a longer side are left out of training
    lowercase: bool = False
    normalise: Form = ""

    @field_validator("train", "valid", "test", mode="before")
    @classmethod
    def _files(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) and value else value or ()

    @model_validator(mode="after")
    def _consistent(self) -> DataConfig:
        if self.name and (self.train or self.valid or self.test):
            raise ValueError("give either the `name` of a corpus or files, not both")
        for part in ("train", "valid", "test"):
            if len(getattr(self, part)) > 2 and self.format not in UNPAIRED:
                raise ValueError(f"`{part}` takes one file or two aligned files")
        if self.columns and (self.format != "tsv" or len(self.columns) < 2):
            raise ValueError("`columns` names at least a text and a label, of a file whose format is 'tsv'")
        if self.reverse and self.format in UNPAIRED:
            raise ValueError(f"the format '{self.format}' has one side, which nothing can `reverse`; leave it out")
        if self.prefix and self.format in UNPAIRED:
            raise ValueError(f"the format '{self.format}' has no sources to put a `prefix` before; leave it out")
        if self.valid_fraction + self.test_fraction >= 1:
            raise ValueError("valid_fraction and test_fraction leave nothing to train on; make them smaller")
        return self


TOKENISERS = Table("tokeniser", default="characters", place="tokeniser")
TARGETS = Table("target tokeniser", default="same")


@TARGETS.add
class SameTokeniser(Config):
    """The target side is treated like the source side."""

    kind: Literal["same"] = "same"


class TokeniserConfig(Config):
    """The units of the source side, and of the target side unless `target` says otherwise.

    Each side has a vocabulary of its own; with `shared` there is one over both.
    """

    kind: str
    shared: bool = False
    pairs: bool = False  # a source may be two texts with a tab between them; the classifying task sets it
    target: slot(TARGETS) = SameTokeniser()  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _consistent(self) -> TokeniserConfig:
        if self.shared and self.target.kind != "same":
            raise ValueError("a shared vocabulary needs the same kind on both sides; leave out `target`")
        if isinstance(self.target, TokeniserConfig) and (self.target.shared or self.target.target.kind != "same"):
            raise ValueError("`target` is one side: it has no `shared` and no `target` of its own")
        return self

    @property
    def target_side(self) -> TokeniserConfig:
        """The config of the target side."""
        return self.target if isinstance(self.target, TokeniserConfig) else self


@TARGETS.add
@TOKENISERS.add
class CharactersConfig(TokeniserConfig):
    """One token a character seen `min_count` times; the most frequent, `size` tokens in all (0: no limit)."""

    kind: Literal["characters"] = "characters"
    size: int = Field(0, ge=0)
    min_count: int = Field(1, ge=1)


@TARGETS.add
@TOKENISERS.add
class WordsConfig(TokeniserConfig):
    """One token a word between spaces, otherwise as characters."""

    kind: Literal["words"] = "words"
    size: int = Field(32_000, ge=0)
    min_count: int = Field(1, ge=1)
    classes: bool = False  # rare words are not all alike: they are classed by capitals, digits and their last letters


@TOKENISERS.add
class ParsedConfig(WordsConfig):
    """Words with their heads in a dependency tree, `dogs|2 bark|0`: what the format conllu-trees gives."""

    kind: Literal["parsed"] = "parsed"  # type: ignore[assignment]


@TARGETS.add
class LabelsConfig(TokeniserConfig):
    """One token a text: the targets are labels. The classifying task sets it."""

    kind: Literal["labels"] = "labels"
    size: int = Field(0, ge=0)
    min_count: int = Field(1, ge=1)


@TARGETS.add
@TOKENISERS.add
class BytesConfig(TokeniserConfig):
    """One token a UTF-8 byte: 260 of them for any language."""

    kind: Literal["bytes"] = "bytes"


@TARGETS.add
@TOKENISERS.add
class BpeConfig(TokeniserConfig):
    """Byte-level pair encoding (Sennrich et al. 2016; Radford et al. 2019), `size` tokens in all."""

    kind: Literal["bpe"] = "bpe"
    size: int = Field(8000, ge=260)
    min_count: int = Field(2, ge=1)


@TARGETS.add
@TOKENISERS.add
class UnigramConfig(TokeniserConfig):
    """A byte-level unigram language model of pieces (Kudo 2018), `size` tokens in all."""

    kind: Literal["unigram"] = "unigram"
    size: int = Field(8000, ge=260)
