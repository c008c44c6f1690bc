"""A comparison: variants of one experiment, the seeds and the budget of each, as one TOML table.

>>> table = ComparisonConfig(experiment={"data": {"train": "a.tsv"}}, budget={"steps": 9}, arm=[{"name": "a"}])
>>> table.build_experiment(table.arm[0], seed=2).train.steps
9
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from headwise.config.base import Config, FolderName, NonNegativeFloat, NonNegativeInt, Problems, merge, validate
from headwise.errors import UserError, nearest
from headwise.experiment.config import Experiment, parse_changes, read_toml

PACKAGE = Path(__file__).parents[1]
# where the tables that come with Headwise are: in the installed package, in a source checkout
SHIPPED = (PACKAGE / "experiments" / "tables", PACKAGE.parents[1] / "experiments" / "tables")

# for the scores that `evaluate` reports; for any other the table sets `lower`
LOWER_IS_BETTER = dict.fromkeys(("SER", "WER", "PER", "CER", "perplexity"), True) | dict.fromkeys(
    ("BLEU", "BLEU tokenised", "ROUGE-L", "ROUGE-1", "ROUGE-2", "accuracy", "F1", "exact match", "UAS", "LAS"), False
)


class Budget(Config):
    """The budget of each run, instead of the base experiment's; the first limit reached ends it."""

    steps: NonNegativeInt = 0
    epochs: NonNegativeInt = 0
    minutes: NonNegativeFloat = 0.0
    tokens: NonNegativeInt = 0
    flops: NonNegativeFloat = 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """The keys of `[train]`: all limits, so that those of the base are overwritten; empty if none is set."""
        return dict(self) if any(dict(self).values()) else {}


class Published(Config):
    """Published figures, printed beside ours: `{SER = 20.6, source = "..."}`; with their noise, if it is published:
    `{SER = 20.6, std = {SER = 0.2}, runs = 5}`."""

    name: str = ""
    source: str = ""
    scores: dict[str, float] = Field(default_factory=dict)
    std: dict[str, NonNegativeFloat] = Field(default_factory=dict)  # standard deviation over runs, by score
    runs: int = Field(1, ge=1)  # of which those scores are means

    @model_validator(mode="before")
    @classmethod
    def _scores_are_keys(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        figures = {key: value for key, value in data.items() if key not in cls.model_fields}
        scores = {key: value for key, value in figures.items() if isinstance(value, int | float)}
        rest = {key: value for key, value in data.items() if key not in scores}
        return rest | {"scores": scores} if scores else rest


class AnalysisConfig(Config):
    """What to print about our scores and the published ones, besides the table (headwise.compare.analysis)."""

    published: tuple[str, ...] = ()  # scores whose published figures are compared with ours; empty: no analysis
    # the published figures that a score of ours is compared with, where they have another name: {perplexity = "BLEU"}
    against: dict[str, str] = Field(default_factory=dict)
    baseline: str = ""  # the arm that others are tested against; empty: the first
    lower: bool | None = None  # whether lower is better; known for the usual scores, else as the table's `lower`
    without_worst: NonNegativeInt = 0  # correlate also without so many arms, those with the worst published figures
    # the training FLOPs, or the tokens, after which each arm reaches a validation score
    reach: Literal["", "flops", "tokens"] = ""
    reach_share: Annotated[float, Field(ge=0, le=1)] = 0.0  # of the best score; 0: the best score of the weakest run
    claim: str = "most arms do not beat the baseline"  # in the words in which the verdict quotes it
    contest: str = ""  # the arm of which the claim says that it beats the best other one; empty: no contest
    margin: NonNegativeFloat = 0.0  # the smallest gain that counts in a contest, as a share
    not_in_contest: tuple[str, ...] = ()  # arms that are no rivals, such as an upper bound

    def is_lower_better(self, score: str) -> bool | None:
        """None: not known."""
        return LOWER_IS_BETTER.get(score, self.lower)

    def get_published(self, score: str) -> str:
        """The name of the published figures that a score of ours is compared with."""
        return self.against.get(score, score)

    def get_sign(self, score: str) -> int:
        """-1 if a lower score of ours is better, but a higher published figure, or the reverse; else 1."""
        return 1 if self.is_lower_better(score) == self.is_lower_better(self.get_published(score)) else -1


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
    """The whole table. `set`, `budget`, the arm's `set` and `changes` override the experiment, in this order."""

    name: FolderName = ""  # of the folder of its runs; empty: the file's name
    title: str = ""
    base: str = ""  # an experiment file, relative to the table
    experiment: dict[str, Any] = Field(default_factory=dict)  # or its keys, or changes of the file
    # a table, relative to this one or by name: each cell is initialised from the run of its arm and seed there, and has
    # its model and tokeniser
    start_from: str = ""
    start_changes: dict[str, Any] = Field(default_factory=dict)  # `changes` of that table, if both are in one suite
    records: str = ""  # a file of outcomes measured before, relative to this one: cells with these settings are done
    seeds: tuple[NonNegativeInt, ...] = Field((1,), min_length=1)
    score: str = ""  # the one to rank by; empty: the first that `evaluate` reports
    lower: bool | None = None  # whether lower is better; known for the usual scores
    checkpoint: str = "best"  # the weights to evaluate: best, last, average or step-N
    evaluate: dict[str, Any] = Field(default_factory=dict)  # settings of the evaluation, such as language or beams
    # scores from the validation curve instead of an evaluation: name -> share of the run's steps at which to read it
    curve: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    budget: Budget = Budget()
    set: dict[str, Any] = Field(default_factory=dict)
    arm: tuple[ArmConfig, ...]
    published: tuple[Published, ...] = ()
    analysis: AnalysisConfig = AnalysisConfig()
    quick: tuple[str, ...] = ()  # arms of `--quick`, with the first seed
    changes: dict[str, Any] = Field(default_factory=dict)

    @field_validator("arm")
    @classmethod
    def _check_unique_names(cls, arms: tuple[ArmConfig, ...]) -> tuple[ArmConfig, ...]:
        if not arms:
            raise ValueError("a comparison needs at least one [[arm]]")
        slugs = [arm.slug for arm in arms]
        for number, slug in enumerate(slugs):
            if slug in slugs[:number]:
                raise Problems([((str(number), "name"), f"two arms are called '{slug}'; choose another name")])
        return arms

    @field_validator("analysis")
    @classmethod
    def _fill_direction(cls, analysis: AnalysisConfig, info: ValidationInfo) -> AnalysisConfig:
        """`lower` of the analysis is that of the table, also where results are ranked by another score."""
        return analysis if analysis.lower is not None else analysis.replace(lower=info.data.get("lower"))

    @classmethod
    def read(cls, file: str | Path, changes: Iterable[str] = ()) -> ComparisonConfig:
        """A file or a shipped table's name, with `a.b=c` changes of every arm's experiment."""
        path = find_table(file)
        data = read_toml(path)
        if base := data.get("base"):
            data["experiment"] = merge(read_toml(path.parent / str(base)), data.get("experiment", {}))
        if start := data.get("start_from"):
            beside = path.parent / str(start)
            data["start_from"] = str(find_table(beside if beside.is_file() else str(start)))
        if records := data.get("records"):
            data["records"] = str(path.parent / str(records))
        table: ComparisonConfig = validate(
            cls, {"name": path.stem, **data, "changes": parse_changes(changes)}, str(path)
        )
        table._check_references(str(path))
        return table

    def _check_references(self, place: str) -> None:
        """Refuse unknown arms and scores in `quick` and `analysis`. A selection may lack some of them."""
        names = [arm.name for arm in self.arm]
        baseline, contest = ((name,) if name else () for name in (self.analysis.baseline, self.analysis.contest))
        for key, references in (
            ("quick", self.quick),
            ("analysis.baseline", baseline),
            ("analysis.contest", contest),
            ("analysis.not_in_contest", self.analysis.not_in_contest),
        ):
            for name in references:
                if name not in names:
                    raise UserError(f"{place}: {key}: no arm is called '{name}'; {nearest(name, names)}")
        scores = dict.fromkeys(score for arm in self.arm for score in arm.published.scores)
        for score in self.analysis.against:
            if score not in self.analysis.published:
                raise UserError(f"{place}: analysis.against: '{score}' is not in analysis.published; add it there")
        for score in self.analysis.published:
            figure = self.analysis.get_published(score)
            if figure not in scores:
                raise UserError(
                    f"{place}: analysis.published: no arm has a published '{figure}'; {nearest(figure, scores)}"
                )
            for name in dict.fromkeys((score, figure)):
                if self.analysis.is_lower_better(name) is None:
                    raise UserError(
                        f"{place}: analysis.published: nothing says whether a lower '{name}' is better; set lower"
                    )

    def read_start(self) -> ComparisonConfig | None:
        """The table in `start_from`, with the arms of this one."""
        if not self.start_from:
            return None
        start = ComparisonConfig.read(self.start_from).replace(changes=self.start_changes)
        if start.start_from:
            raise UserError(
                f"{self.name}: start_from: the runs of '{start.name}' start from others; name a table that starts anew"
            )
        names = [arm.name for arm in start.arm]
        for arm in self.arm:
            if arm.name not in names:
                raise UserError(
                    f"{self.name}: start_from: '{start.name}' has no arm '{arm.name}'; {nearest(arm.name, names)}"
                )
        return start

    def build_experiment(
        self, arm: ArmConfig, seed: int, folder: Path = Path(), start: Mapping[str, Any] = MappingProxyType({})
    ) -> Experiment:
        """The experiment of one cell. `arm:NAME` in its settings is replaced by the run of another arm with the same
        seed in `folder`, for example a teacher. `start` has the keys of the run that it starts from."""
        name = {"name": f"{arm.slug}-{seed}", "seed": seed}
        changes = {key: self._resolve_arm(value, seed, folder) for key, value in arm.set.items()}
        layers = (nest_keys(self.set), {"train": self.budget.settings}, nest_keys(changes), self.changes, name)
        base = merge(dict(start), self.experiment)
        return validate(Experiment, reduce(merge, layers, base), f"{self.name}: arm '{arm.name}'")

    def _resolve_arm(self, value: Any, seed: int, folder: Path) -> Any:
        if not isinstance(value, str) or not value.startswith("arm:"):
            return value
        return str(folder / f"{ArmConfig(name=value.removeprefix('arm:')).slug}-{seed}")

    def select(self, arms: Iterable[str] = (), seeds: Iterable[int] = ()) -> ComparisonConfig:
        """A copy with some of the arms, or with other seeds."""
        arms_by_name = {arm.name: arm for arm in self.arm}
        for name in (names := tuple(arms)):
            if name not in arms_by_name:
                raise UserError(f"{self.name}: no arm is called '{name}'; {nearest(name, arms_by_name)}")
        selected = tuple(arm for arm in self.arm if not names or arm.name in names)
        return self.replace(arm=selected, seeds=tuple(seeds) or self.seeds)

    def select_quick(self, seeds: Iterable[int] = ()) -> ComparisonConfig:
        """A copy with the arms of `quick` and one seed, or with other seeds."""
        if not self.quick:
            raise UserError(f"{self.name}: the table has no quick selection; choose arms by --arm, or set quick in it")
        return self.select(self.quick, tuple(seeds) or self.seeds[:1])


class SuiteTable(Config):
    """A table of a suite: a file, and changes to it."""

    file: str
    title: str = ""
    set: dict[str, Any] = Field(default_factory=dict)


class ByTable(Config):
    """A layout with a row for each table: the gains of one arm over others, and published figures beside.

    `published` has the figures of each table by arm; `"over ARM"` is a percentage as it was printed.
    """

    arm: str  # whose gains are shown
    over: tuple[str, ...] = ()  # arms that it is compared with
    beside: tuple[str, ...] = ()  # arms with published figures beside these
    none: str = "no score"  # what a run without the ranking score means
    published: dict[str, dict[str, float | str]] = Field(default_factory=dict)


class Suite(Config):
    """Several tables by column name: the same arms on different tasks. A single table is a suite of one."""

    name: FolderName = ""
    title: str = ""
    tables: dict[str, ComparisonConfig] = Field(min_length=1)
    # scores of each table whose means are averaged over the tables, as benchmarks do: {cb = ["accuracy", "F1"]}
    average: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    # the table that is printed whole, with a column for the ranking score of each other one; empty: none
    main: str = ""
    by_table: ByTable | None = None  # a row for each table, instead of one for each arm

    @model_validator(mode="after")
    def _check_main(self) -> Suite:
        if self.main and self.main not in self.tables:
            raise Problems([(("main",), f"there is no table '{self.main}'; {nearest(self.main, self.tables)}")])
        if self.main and self.average:
            raise Problems([(("average",), "a suite with a main table has none; leave one of the two out")])
        return self

    @model_validator(mode="after")
    def _check_average(self) -> Suite:
        for name, scores in self.average.items():
            if name not in self.tables:
                raise Problems([(("average",), f"there is no table '{name}'; {nearest(name, self.tables)}")])
            if not scores:
                raise Problems([(("average", name), "name at least one score")])
        return self

    @classmethod
    def read(cls, file: str | Path, changes: Iterable[str] = ()) -> Suite:
        """A file or a shipped table's name; the tables that it names are files relative to it, or the same file several
        times, each with a `set` of its own."""
        path, changes = find_table(file), tuple(changes)
        data = read_toml(path)
        files = data.get("tables", {path.stem: path.name})
        if not isinstance(files, Mapping):
            raise UserError(f'{path}: tables: write names and files, as in tables = {{ listops = "listops.toml" }}')
        tables, own_files = {}, set()
        for name, entry in files.items():
            spec: SuiteTable = validate(
                SuiteTable, entry if isinstance(entry, Mapping) else {"file": entry}, f"{path}: {name}"
            )
            table = ComparisonConfig.read(path.parent / spec.file, changes)
            changed = {
                "name": f"{path.stem}-{name}",
                "set": {**table.set, **spec.set},
                "title": spec.title or table.title,
            }
            tables[name] = table.replace(**changed) if spec.set else table
            own_files.add((path.parent / spec.file).resolve())
        for name, table in tables.items():  # changes of all tables are those of the table that others start from, too
            if table.start_from and Path(table.start_from).resolve() in own_files:
                tables[name] = table.replace(start_changes=table.changes)
        top = data if "tables" in data else {"title": data.get("title", "")}
        return validate(cls, {"name": path.stem, **top, "tables": tables}, str(path))

    def replace_records(self, file: str) -> Suite:
        """A copy whose tables have their records in this file; none, if it is empty."""
        return self.replace(tables={name: table.replace(records=file) for name, table in self.tables.items()})

    def select(self, arms: Iterable[str] = (), seeds: Iterable[int] = ()) -> Suite:
        """A copy with some of the arms of all tables, or with other seeds."""
        wanted, seeds = tuple(arms), tuple(seeds)
        names = {name: {arm.name for arm in table.arm} for name, table in self.tables.items()}
        known = set().union(*names.values())
        for name in wanted:
            if name not in known:
                raise UserError(f"{self.name}: no arm is called '{name}'; {nearest(name, known)}")
        chosen = {
            name: table.select([arm for arm in wanted if arm in names[name]], seeds)
            for name, table in self.tables.items()
            if not wanted or names[name].intersection(wanted)
        }
        average = {name: scores for name, scores in self.average.items() if name in chosen}
        main = self.main if self.main in chosen else ""
        return self.replace(tables=chosen, average=average if len(average) == len(self.average) else {}, main=main)

    def select_quick(self, seeds: Iterable[int] = ()) -> Suite:
        """A copy with the quick selection of each table that has one."""
        seeds = tuple(seeds)
        quick = {name: table for name, table in self.tables.items() if table.quick} or self.tables
        average = self.average if len(quick) == len(self.tables) else {}
        tables = {name: table.select_quick(seeds) for name, table in quick.items()}
        return self.replace(tables=tables, average=average, main=self.main if self.main in quick else "")


def nest_keys(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested tables.

    >>> nest_keys({"model.wiring": "pre", "model": {"width": 8}})
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
