"""A ladder: one language model in several sizes, each trained on several numbers of tokens, as one TOML file.

>>> sizes = [{"name": f"w{width}", "set": {"model.width": width}} for width in (16, 32, 64)]
>>> ladder = ScalingConfig(experiment={"data": {"train": "a.txt"}}, size=sizes, tokens=(1000, 4000))
>>> [arm.name for arm in ladder.comparison.arm]
['w16 1000', 'w16 4000', 'w32 1000', 'w32 4000', 'w64 1000', 'w64 4000']
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from headwise.compare.config import ArmConfig, Budget, ComparisonConfig
from headwise.config.base import (
    Config,
    FolderName,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Problems,
    merge,
    validate,
)
from headwise.experiment.config import parse_changes, read_toml

MIN_POINTS = 3  # points of a power law: two would always fit


class SizeConfig(Config):
    """One size: its differences from the base experiment."""

    name: str = Field(min_length=1)
    set: dict[str, Any] = Field(min_length=1)


class ScalingConfig(Config):
    """The whole ladder. A rung is a size and a number of tokens; of several learning `rates` the best one counts."""

    name: FolderName = ""  # of the folder of its runs; empty: the file's name
    title: str = ""
    base: str = ""  # an experiment file, relative to the ladder
    experiment: dict[str, Any] = Field(default_factory=dict)  # or its keys, or changes of the file
    seeds: tuple[NonNegativeInt, ...] = Field((1,), min_length=1)
    set: dict[str, Any] = Field(default_factory=dict)
    size: tuple[SizeConfig, ...]
    tokens: tuple[PositiveInt, ...] = ()  # to train on; none: every size spends the same budget
    rates: tuple[PositiveFloat, ...] = ()  # learning rates to try; none: the experiment's own
    budget: Budget = Budget()
    changes: dict[str, Any] = Field(default_factory=dict)

    @field_validator("size")
    @classmethod
    def _check_size_count(cls, sizes: tuple[SizeConfig, ...]) -> tuple[SizeConfig, ...]:
        if len(sizes) < MIN_POINTS:
            raise ValueError(f"a law needs at least {MIN_POINTS} sizes, there is {len(sizes)}; add [[size]] tables")
        return sizes

    @model_validator(mode="after")
    def _check_budget(self) -> ScalingConfig:
        if self.tokens and self.budget.settings:
            raise Problems([(("budget",), "the tokens of the ladder are its budget; leave one of them out")])
        return self

    @classmethod
    def read(cls, file: str | Path, changes: Iterable[str] = ()) -> ScalingConfig:
        """A file, with `a.b=c` changes of every rung's experiment."""
        path = Path(file)
        data = read_toml(path)
        if base := data.get("base"):
            data["experiment"] = merge(read_toml(path.parent / str(base)), data.get("experiment", {}))
        return validate(cls, {"name": path.stem, **data, "changes": parse_changes(changes)}, str(path))

    @property
    def rungs(self) -> list[tuple[str, tuple[ArmConfig, ...]]]:
        """The name of the size and an arm for each rate, of each size and number of tokens."""
        return [
            (size.name, tuple(_build_arm(size, tokens, rate) for rate in self.rates or (0.0,)))
            for size, tokens in product(self.size, self.tokens or (0,))
        ]

    @property
    def comparison(self) -> ComparisonConfig:
        """The table whose cells are the runs of the ladder."""
        arms = tuple(arm for _, each in self.rungs for arm in each)
        fields = dict(self)
        common = {key: fields[key] for key in ComparisonConfig.model_fields if key in fields}
        return validate(ComparisonConfig, {**common, "arm": arms}, self.name)


def _build_arm(size: SizeConfig, tokens: int, rate: float) -> ArmConfig:
    """The arm of a rung; zero keeps the experiment's tokens or rate."""
    budget = {f"train.{key}": value for key, value in Budget(tokens=tokens).settings.items()}
    schedule = {"train.schedule.lr": rate} if rate else {}
    name = " ".join([size.name, *(str(value) for value in (tokens, rate) if value)])
    return ArmConfig(name=name, set={**size.set, **budget, **schedule})
