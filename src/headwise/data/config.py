"""Data configs (`[data]`): the settings of all kinds of data, and those of pairs of texts.

>>> DATA.parse({"train": "pairs.tsv"}).train
('pairs.tsv',)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from headwise.config.base import Config, Table, slot

Form = Literal["", "NFC", "NFD", "NFKC", "NFKD"]
Format = Literal[
    "tsv", "dictionary", "conllu", "conllu-trees", "labelled-zip", "lines", "documents", "text", "codespell", "geonames"
]
Column = Literal["upos", "xpos", "deprel"]

UNPAIRED = ("lines", "documents", "text")  # formats without a source side: texts, read as pairs with an empty source


DATA = Table(
    "data",
    default="texts",
    place="data",
    homes={"texts": "headwise.data.config:TextDataConfig", "images": "headwise.vision.config:ImagesConfig"},
)


class DataConfig(Config):
    """The `[data]` table of an experiment: a data set by `name`, or files. Without `valid`, a part of `train` is
    held out for validation."""

    kind: str
    name: str = ""
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    root: str = ""  # the folder that names and relative paths start from
    cache: str = ""  # the folder of tokenised texts and decoded images; empty: the user's cache folder
    valid_fraction: float = Field(0.05, gt=0, lt=1)
    test_fraction: float = Field(0.0, ge=0, lt=1)

    @field_validator("train", "valid", "test", mode="before")
    @classmethod
    def _wrap_file(cls, value: object) -> object:
        return (value,) if isinstance(value, str) and value else value or ()

    def add_prefix(self, source: str) -> str:
        """A source with the prefix of all sources, as the model reads it."""
        return source


if TYPE_CHECKING:  # to a type checker, the config of what a slot holds
    AnyData: TypeAlias = DataConfig
else:
    AnyData = slot(DATA)


class TextDataConfig(DataConfig):
    """Pairs of texts: a corpus by `name`, or files.

    Each of `train`, `valid` and `test` is one file with both sides or two files aligned line by line, plain or gzip.
    Without `valid`, a part of `train` is held out for validation. Plain text (`lines`, `documents`, `text`) gives pairs
    with an empty source, from any number of files, folders and patterns such as `books/*.txt`; it need not fit in
    memory.
    """

    kind: Literal["texts"] = "texts"
    format: Format = "tsv"  # of a file: see `headwise.data.readers`
    column: Column = "upos"  # of the tags in a CoNLL-U file
    columns: tuple[str | int, ...] = ()  # of a TSV: one text or two, then the label; by name or by number from 1
    one_to_one: bool = False  # the targets are tags, one for each word of the source; the tagging task sets it
    reverse: bool = False  # swap source and target
    prefix: str = ""  # put before every source, such as "summarize: "
    valid_size: int = Field(2000, gt=0)  # pairs of a held-out validation part, at most about
    max_length: int = Field(512, gt=0)  # tokens; pairs with a longer side are dropped
    lowercase: bool = False
    normalise: Form = ""

    @model_validator(mode="after")
    def _check_consistency(self) -> TextDataConfig:
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

    def add_prefix(self, source: str) -> str:
        return self.prefix + source
