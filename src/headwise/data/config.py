"""Data configs (`[data]`): the settings of all kinds of data, and those of pairs of texts.

>>> DATA.parse({"train": "pairs.tsv"}).train
('pairs.tsv',)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from headwise.config.base import Config, Table, slot
from headwise.data.readers.base import ReadOptions

Form = Literal["", "NFC", "NFD", "NFKC", "NFKD"]
Format = Literal[
    "tsv", "csv", "jsonl", "json", "parquet", "arrow", "conll", "conllu", "conllu-trees", "conllu-brackets", "squad",
    "labelled-zip", "labelled-folders", "lines", "documents", "text", "dictionary", "codespell", "geonames", "residues",
]  # fmt: skip
Column = Literal["upos", "xpos", "deprel"]

TABLES = ("csv", "tsv", "jsonl", "json", "parquet", "arrow")  # formats whose columns are chosen by `columns`
UNPAIRED = ("lines", "documents", "text")  # formats without a source side: texts, read as pairs with an empty source

Content = Literal["texts", "images", "chains", "episodes", "environment"]

DATA = Table(
    "data",
    default="texts",
    place="data",
    homes={
        "texts": "headwise.data.config:TextDataConfig",
        "images": "headwise.vision.config:ImagesConfig",
        "chains": "headwise.proteins.chain_sets:ChainsConfig",
        "structures": "headwise.proteins.structure_sets:StructuresConfig",
        "episodes": "headwise.worlds.config:EpisodesConfig",
        "environment": "headwise.worlds.config:EnvironmentConfig",
    },
)


class DataConfig(Config):
    """The `[data]` table of an experiment: a data set by `name`, or files. Without `valid`, a part of `train` is
    held out for validation."""

    content: ClassVar[Content] = "texts"  # what tasks read (`TaskConfig.reads`)
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

    Each of `train`, `valid` and `test` is any number of files, folders and patterns such as `data/*.parquet`, plain or
    compressed; or two plain texts aligned line by line. Without `valid`, a part of `train` is held out for validation.
    Plain text (`lines`, `documents`, `text`) and a table of which one column is read give pairs with an empty source.
    """

    kind: Literal["texts"] = "texts"
    format: Format = "tsv"  # of a file: see `headwise.data.readers`
    column: Column = "upos"  # of the tags in a CoNLL-U file
    columns: tuple[str | int, ...] = ()  # of a table: the texts, then the target; by name or by number from 1
    separator: str = ""  # of CSV: between cells; empty: found from the content
    header: bool | Literal["auto"] = "auto"  # of CSV and TSV: the first row has the names; auto: if `columns` are names
    group: str | int = ""  # of a table: the column, such as a document's id, whose equal values are held out together
    stratify: bool | Literal["auto"] = "auto"  # hold out the same share of each label; auto: to classify texts
    one_to_one: bool = False  # the targets are tags, one for each word of the source; the tagging task sets it
    skip_incomplete: bool = False  # leave out rows of which a text or the target is blank, instead of an error
    reverse: bool = False  # swap source and target
    prefix: str = ""  # put before every source, such as "summarize: "
    source_words: int = Field(0, ge=0)  # keep so many words of each source, in all parts; 0: all
    valid_size: int = Field(2000, gt=0)  # pairs of a held-out validation part, at most about
    max_length: int = Field(512, gt=0)  # tokens; pairs with a longer side are dropped
    truncate: bool = False  # cut the end of longer sources instead, of which a label can be told from the start
    lowercase: bool = False
    normalise: Form = ""

    @model_validator(mode="after")
    def _check_consistency(self) -> TextDataConfig:
        if self.name and (self.train or self.valid or self.test):
            raise ValueError("give either the `name` of a corpus or files, not both")
        for part in ("train", "valid", "test"):
            paths = getattr(self, part)
            shards = self.columns or self.format != "tsv" or any(set(path) & set("*?[") for path in paths)
            if len(paths) > 2 and not shards:
                raise ValueError(f"`{part}` takes one file or two aligned files; name shards as in 'pairs-*.tsv'")
        self._check_columns()
        if self.reverse and self.unpaired:
            raise ValueError(f"the format '{self.format}' has one side, which nothing can `reverse`; leave it out")
        if self.prefix and self.unpaired:
            raise ValueError(f"the format '{self.format}' has no sources to put a `prefix` before; leave it out")
        if self.source_words and self.unpaired:
            raise ValueError(f"the format '{self.format}' has no sources to keep `source_words` of; leave it out")
        if self.valid_fraction + self.test_fraction >= 1:
            raise ValueError("valid_fraction and test_fraction leave nothing to train on; make them smaller")
        return self

    def _check_columns(self) -> None:
        tables = ", ".join(TABLES)
        if self.columns and self.format not in (*TABLES, "conll"):
            raise ValueError(f"the format '{self.format}' has no `columns` to choose from; those with some: {tables}")
        if any(isinstance(column, int) and column < 1 for column in (*self.columns, self.group)):
            raise ValueError("columns are numbered from 1")
        if any(isinstance(column, int) for column in self.columns) and any(
            isinstance(column, str) for column in self.columns
        ):
            raise ValueError("name all `columns`, or number all of them")
        if self.group != "" and not (self.format in TABLES and self.columns):
            raise ValueError(f"`group` is a column of a file with `columns`, in one of these formats: {tables}")
        if self.separator and (self.format != "csv" or len(self.separator) != 1 or self.separator in '"\r\n'):
            raise ValueError("`separator` is the one character between the cells of a file whose format is 'csv'")
        if self.header != "auto" and self.format not in ("csv", "tsv"):
            raise ValueError("`header` is for the formats csv and tsv; leave it out")

    @property
    def unpaired(self) -> bool:
        """Whether there are texts without sources."""
        return self.format in UNPAIRED or (self.format in TABLES and len(self.columns) == 1)

    @property
    def read_options(self) -> ReadOptions:
        """The settings of the readers."""
        header = None if self.header == "auto" else self.header
        return ReadOptions(
            self.column, self.columns, self.group, self.separator, header, self.one_to_one, self.skip_incomplete
        )

    def add_prefix(self, source: str) -> str:
        return self.prefix + source
