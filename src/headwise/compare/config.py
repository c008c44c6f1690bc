"""A comparison: variants of one experiment, the seeds and the budget of each, as one TOML table.

>>> table = ComparisonConfig(experiment={"data": {"train": "a.tsv"}}, budget={"steps": 9}, arm=[{"name": "a"}])
>>> table.experiment_of(table.arm[0], seed=2).train.steps
9
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from headwise.config.base import Amount, Config, Count, FolderName, Problems, merge, validate
from headwise.errors import UserError, nearest
from headwise.experiment.config import Experiment, parse_changes, read_toml

PACKAGE = Path(__file__).parents[1]
# where the tables that come with Headwise are: in the installed package, in a source checkout
SHIPPED = (PACKAGE / "experiments" / "tables", PACKAGE.parents[1] / "experiments" / "tables")

# of the scores that `evaluate` reports; of any other the table says whether lower is better
LOWER = dict.fromkeys(("SER", "WER", "PER", "CER", "perplexity"), True) | dict.fromkeys(
    ("BLEU", "BLEU tokenised", "accuracy", "F1"), False
)


class Budget(Config):
    """What each run may spend, instead of the base experiment's own budget; the first one reached ends it."""

    steps: Count = 0
    epochs: Count = 0
    minutes: Amount = 0.0
    tokens: Count = 0

    @property
    def settings(self) -> dict[str, Any]:
        """The keys of `[train]`: all of them, so that nothing of another budget is left; none where none is set."""
        return dict(self) if any(dict(self).values()) else {}


class Published(Config):
    """Figures of others, to be printed beside ours: `{SER = 20.6, source = "..."}`."""

    name: str = ""
    source: str = ""
    scores: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _scores_are_keys(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        scores = {key: value for key, value in data.items() if isinstance(value, int | float)}
        rest = {key: value for key, value in data.items() if key not in scores}
        return rest | {"scores": scores} if scores else rest


class ArmConfig(Config):
    """One variant: its differences from the base experiment."""

    name: str = Field(min_length=1)
    set: dict[str, Any] = Field(default_factory=dict)
    published: Published = Published()

    @property
    def slug(self) -> str:
        """The name as a part of folder names."""
        return re.sub(r"[^\w.+]+", "-", self.name).strip("-.") or "arm"


class ComparisonConfig(Config):
    """The whole table. `set`, `budget`, the arm's `set` and `changes` are laid over the experiment, in this order."""

    name: FolderName = ""  # of the folder of its runs; empty: the file's name
    title: str = ""
    base: str = ""  # an experiment file, relative to the table
    experiment: dict[str, Any] = Field(default_factory=dict)  # or its keys, or changes of the file
    seeds: tuple[Count, ...] = Field((1,), min_length=1)
    score: str = ""  # the one to rank by; empty: the first that `evaluate` reports
    lower: bool | None = None  # whether less of it is better; known for the usual scores
    checkpoint: str = "best"  # the weights to evaluate: best, last, average or step-N
    evaluate: dict[str, Any] = Field(default_factory=dict)  # settings of the evaluation, such as language or beams
    budget: Budget = Budget()
    set: dict[str, Any] = Field(default_factory=dict)
    arm: tuple[ArmConfig, ...]
    published: tuple[Published, ...] = ()
    changes: dict[str, Any] = Field(default_factory=dict)

    @field_validator("arm")
    @classmethod
    def _own_names(cls, arms: tuple[ArmConfig, ...]) -> tuple[ArmConfig, ...]:
        if not arms:
            raise ValueError("a comparison needs at least one [[arm]]")
        slugs = [arm.slug for arm in arms]
        for number, slug in enumerate(slugs):
            if slug in slugs[:number]:
                raise Problems([((str(number), "name"), f"two arms are called '{slug}'; choose another name")])
        return arms

    @classmethod
    def read(cls, file: str | Path, changes: Iterable[str] = ()) -> ComparisonConfig:
        """A file or a shipped table's name, with `a.b=c` changes of every arm's experiment."""
        path = find_table(file)
        found = read_toml(path)
        if base := found.get("base"):
            found["experiment"] = merge(read_toml(path.parent / str(base)), found.get("experiment", {}))
        return validate(cls, {"name": path.stem, **found, "changes": parse_changes(changes)}, str(path))

    def experiment_of(self, arm: ArmConfig, seed: int, folder: Path = Path()) -> Experiment:
        """What one cell of the table trains. `arm:NAME` among its settings is the run of another arm with the same seed
        in `folder`, such as its teacher."""
        name = {"name": f"{arm.slug}-{seed}", "seed": seed}
        own = {key: self._run_of(value, seed, folder) for key, value in arm.set.items()}
        layers = (nested(self.set), {"train": self.budget.settings}, nested(own), self.changes, name)
        return validate(Experiment, reduce(merge, layers, self.experiment), f"{self.name}: arm '{arm.name}'")

    def _run_of(self, value: Any, seed: int, folder: Path) -> Any:
        if not isinstance(value, str) or not value.startswith("arm:"):
            return value
        return str(folder / f"{ArmConfig(name=value.removeprefix('arm:')).slug}-{seed}")

    def only(self, arms: Iterable[str] = (), seeds: Iterable[int] = ()) -> ComparisonConfig:
        """The same with some of the arms, or with other seeds."""
        known = {arm.name: arm for arm in self.arm}
        for name in (wanted := tuple(arms)):
            if name not in known:
                raise UserError(f"{self.name}: no arm is called '{name}'; {nearest(name, known)}")
        chosen = tuple(arm for arm in self.arm if not wanted or arm.name in wanted)
        return self.changed(arm=chosen, seeds=tuple(seeds) or self.seeds)


class Table(Config):
    """One of a suite: a file, and what differs from it."""

    file: str
    title: str = ""
    set: dict[str, Any] = Field(default_factory=dict)


class Suite(Config):
    """Tables that are read as one, by the name of their column: the same arms on different tasks. A table alone is a
    suite of itself."""

    name: FolderName = ""
    title: str = ""
    tables: dict[str, ComparisonConfig] = Field(min_length=1)

    @classmethod
    def read(cls, file: str | Path, changes: Iterable[str] = ()) -> Suite:
        """A file or a shipped table's name; the tables that it names are files relative to it, or the same file several
        times, each with a `set` of its own."""
        path, changes = find_table(file), tuple(changes)
        found = read_toml(path)
        named = found.get("tables", {path.stem: path.name})
        if not isinstance(named, Mapping):
            raise UserError(f'{path}: tables: write names and files, as in tables = {{ listops = "listops.toml" }}')
        tables = {}
        for name, each in named.items():
            told: Table = validate(Table, each if isinstance(each, Mapping) else {"file": each}, f"{path}: {name}")
            table = ComparisonConfig.read(path.parent / told.file, changes)
            own = {"name": f"{path.stem}-{name}", "set": {**table.set, **told.set}, "title": told.title or table.title}
            tables[name] = table.changed(**own) if told.set else table
        given = found if "tables" in found else {"title": found.get("title", "")}
        return validate(cls, {"name": path.stem, **given, "tables": tables}, str(path))

    def only(self, arms: Iterable[str] = (), seeds: Iterable[int] = ()) -> Suite:
        """The same with some of the arms, wherever they stand, or with other seeds."""
        wanted, seeds = tuple(arms), tuple(seeds)
        own = {name: {arm.name for arm in table.arm} for name, table in self.tables.items()}
        known = set().union(*own.values())
        for name in wanted:
            if name not in known:
                raise UserError(f"{self.name}: no arm is called '{name}'; {nearest(name, known)}")
        chosen = {
            name: table.only([arm for arm in wanted if arm in own[name]], seeds)
            for name, table in self.tables.items()
            if not wanted or own[name].intersection(wanted)
        }
        return self.changed(tables=chosen)


def nested(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested tables.

    >>> nested({"model.wiring": "pre", "model": {"width": 8}})
    {'model': {'wiring': 'pre', 'width': 8}}
    """
    tables: dict[str, Any] = {}
    for key, value in changes.items():
        change = reduce(lambda inner, part: {part: inner}, reversed(key.split(".")), value)
        tables = merge(tables, change, later=False)
    return tables


def find_table(name: str | Path) -> Path:
    """A file, or the table of that name that comes with Headwise."""
    path = Path(name)
    if path.exists():
        return path
    shipped = {file.stem: file for folder in SHIPPED for file in sorted(folder.glob("*.toml"))}
    if str(name) not in shipped:
        raise UserError(f"{name}: there is no such file, nor a table of that name; {nearest(str(name), shipped)}")
    return shipped[str(name)]
