"""The config of an experiment: everything that a run depends on, as a TOML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import tomli_w
from pydantic import Field, model_validator

from headwise.blocks.tables import OUTPUT_LAYERS, PARTS, POSITIONS, TOKEN_EMBEDDINGS, WIRINGS
from headwise.catalog import MODELS, AnyModel
from headwise.config import suggestions
from headwise.config.base import Config, FolderName, Problems, Table, merge, validate
from headwise.data.config import DATA, AnyData
from headwise.decode.config import DecodeConfig
from headwise.errors import UserError, nearest
from headwise.models.config import COMBINED_TASKS
from headwise.tasks.tables import TASKS, AnyTask, task_config
from headwise.text.config import TOKENISERS, AnyTokeniser, CharactersConfig
from headwise.train.config import OPTIMIZERS, TrainConfig
from headwise.train.schedules import SCHEDULES
from headwise.tuning.config import TuningConfig, inherit_tables
from headwise.utils import files
from headwise.utils.files import parse_toml

if TYPE_CHECKING:
    from headwise.tasks.base import AnyModelTask, TaskConfig
    from headwise.text.tokenisers import Tokenisers

KINDS = {"task": TASKS, "data": DATA, "tokeniser": TOKENISERS, "model": MODELS}
PART_KINDS = {  # of nested tables
    "model": {
        "mixer": PARTS,
        "cross_attention": PARTS,
        "feedforward": PARTS,
        "positions": POSITIONS,
        "wiring": WIRINGS,
        "token_embedding": TOKEN_EMBEDDINGS,
        "output_layer": OUTPUT_LAYERS,
    },
    "train": {"schedule": SCHEDULES, "optimizer": OPTIMIZERS},
}


def check_kinds(data: Mapping[str, Any]) -> None:
    """Refuse all unknown kinds at once, before the module of a known one is imported."""
    unknown: list[tuple[tuple[str, ...], str]] = []

    def check(table: Table, value: Any, *path: str) -> None:
        try:
            table.check_kind(value)
        except Problems as problem:
            unknown.extend(((*path, *keys), text) for keys, text in problem.problems)

    for key, table in KINDS.items():
        if key in data:
            check(table, data[key], key)
    for key, parts in PART_KINDS.items():
        value = data.get(key)
        for part, table in parts.items():
            if isinstance(value, Mapping) and part in value:
                check(table, value[part], key, part)
    if unknown:
        raise Problems(unknown)


def find_config(table: Table, value: Any) -> Any:
    """The config class that a name, a table or a config names; None for an unknown kind."""
    kind = value.get("kind", table.default) if isinstance(value, Mapping) else getattr(value, "kind", value)
    try:
        return table[str(kind)]
    except Problems:
        return None


def _describe_data(task: type[TaskConfig]) -> str:
    if task.reads == "chains":
        return '[data] with families = 60, the fold families to generate, or kind = "structures" and train = "*.pdb"'
    if task.reads == "episodes":
        return '[data] with train = "folder", a log that `headwise act collect` wrote'
    if task.reads == "graphs":
        return '[data] with name = "rnnlm-2", a graph that comes with Headwise, or train = "graph.json"'
    if task.reads == "environment":
        return '[data] with name = "catch", one of our worlds or an id of Gymnasium'
    if task.reads == "images":
        return '[data] with train = "folder-of-images", or name = "digits"'
    file = 'train = "book.txt" and format = "text"' if task.unpaired else 'train = "pairs.tsv"'
    return f"[data] with {file}, or the name of a corpus"


class Experiment(Config):
    """An experiment: task, data, tokeniser, model, training and decoding."""

    place = ""

    name: FolderName = ""  # of the run; empty: the file's name
    seed: int = Field(1, ge=0)
    task: AnyTask = Field(default_factory=lambda: cast("AnyTask", TASKS.parse("transduce")))
    data: AnyData
    tokeniser: AnyTokeniser = CharactersConfig()
    model: AnyModel = Field(default_factory=lambda: cast("AnyModel", MODELS.parse("transformer")))
    train: TrainConfig
    decode: DecodeConfig = DecodeConfig()
    init_from: str = ""  # initialise from a run, RUN@step-N, a Hugging Face folder or org/name@REVISION of the Hub
    tuning: TuningConfig = TuningConfig()

    # pydantic calls the last of these validators first
    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        return inherit_tables(data) if isinstance(data, Mapping) and data.get("init_from") else data

    @model_validator(mode="before")
    @classmethod
    def _set_data_kind(cls, data: Any) -> Any:
        """Without a `kind`, data are of the kind that the task reads."""
        if not isinstance(data, Mapping) or any(key not in cls.model_fields for key in data):
            return data  # an unknown key is refused without importing a task
        if not isinstance(data.get("data"), Mapping) or "kind" in data["data"]:
            return data
        task = find_config(TASKS, data.get("task", {}))  # an unknown kind is refused by its field
        return {**data, "data": {"kind": task.reads, **data["data"]}} if task else data

    @model_validator(mode="before")
    @classmethod
    def _check_kinds(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and all(key in cls.model_fields for key in data):
            check_kinds(data)
        return data

    @model_validator(mode="before")
    @classmethod
    def _check_complete(cls, data: Any) -> Any:
        """Refuse an experiment without data or without an end of training."""
        if not isinstance(data, Mapping) or any(key not in cls.model_fields for key in data):
            return data  # an unknown key is refused first: it may be one of these
        lacking: list[tuple[tuple[str, ...], str]] = []
        if "data" not in data:
            task = find_config(TASKS, data.get("task", {})) or task_config("transduce")
            lacking.append((("data",), f"there is nothing to learn from; write {_describe_data(task)}"))
        if "train" not in data:
            text = "training needs an end; write [train] with minutes = 10 (or steps, epochs, tokens, flops), or add"
            lacking.append((("train",), f"{text} --set train.minutes=10"))
        if lacking:
            raise Problems(lacking)
        return data

    @classmethod
    def suggest(cls, key: str, data: Mapping[str, Any], place: str | None) -> str:
        def exists(target: str) -> bool:
            table, _, rest = target.partition(".")
            config = find_config(KINDS[table], data.get(table, {})) if table in KINDS else None
            return config is None or rest.partition(".")[0] in config.known_keys()

        return suggestions.suggest(key, place, cls.known_keys(), exists) or nearest(key, cls.known_keys())

    @model_validator(mode="after")
    def _check_consistent(self) -> Experiment:
        if not self.model.can(self.task.model_task):
            wanted = " and ".join(COMBINED_TASKS.get(self.task.model_task, (self.task.kind,)))
            tasks = ", ".join(self.model.tasks)
            raise Problems([(("task",), f"the model '{self.model.kind}' cannot {wanted}, it can {tasks}")])
        if self.task.reads != self.data.content:
            raise Problems(
                [(("data", "kind"), f"the task '{self.task.kind}' reads {self.task.reads}, not {self.data.kind}")]
            )
        if self.init_from and getattr(self.model, "embeddings", ""):
            raise Problems([(("model", "embeddings"), "init_from brings vectors of its own; leave one of the two out")])
        if self.tuning.lora.rank and not self.init_from:
            raise Problems([(("tuning", "lora"), "it adapts a model that exists; name one with init_from")])
        return self

    def create_task(self, tokenisers: Tokenisers) -> AnyModelTask:
        """The task with these vocabularies."""
        return self.task.for_model(self.model).build(tokenisers, self.train.label_smoothing)

    @classmethod
    def read(cls, file: str | Path, changes: Iterable[str] = ()) -> Experiment:
        """Read a file and apply `a.b=c` changes before validation."""
        path = Path(file)
        tables = merge(read_toml(path), parse_changes(changes))
        return validate(cls, merge({"name": path.stem}, tables), str(path))

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump(mode="json"))


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; syntax errors are reported with their line."""
    try:
        return files.read_toml(path)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; check the path, or copy one of experiments/*.toml") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder, not an experiment file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None


def parse_changes(changes: Iterable[str]) -> dict[str, Any]:
    """`a.b=c` assignments as nested tables; values are TOML, else plain text.

    >>> parse_changes(["train.steps=20", "model.wiring=pre"])
    {'train': {'steps': 20}, 'model': {'wiring': 'pre'}}
    """
    tables: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {change}: write it as key=value, for example train.steps=1000")
        try:
            value = parse_toml(f"value = {text}")["value"]
        except ValueError:
            value = text
        for part in reversed(key.strip().split(".")):
            value = {part: value}
        tables = merge(tables, value, later=False)
    return tables


def parse_experiment(data: Mapping[str, Any], where: str = "") -> Experiment:
    """An experiment from plain tables, such as a run folder's config.toml."""
    return validate(Experiment, data, where)
