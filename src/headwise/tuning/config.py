"""Training a model that exists further: where it comes from (`init_from`), what stays and what learns (`[tuning]`).

A pattern chooses names: it stands for all that is inside what it names, `*` for anything, `0-5` for these numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from headwise.config.base import Config, Fraction, NonNegativeInt, PositiveFloat, Problems, merge
from headwise.errors import UserError

INHERITED = ("model", "tokeniser")  # tables that an experiment has from the run it begins with


class LoraConfig(Config):
    """Low-rank adaptation (Hu et al. 2021) of some linear maps. Rank 0 adapts none."""

    place = "tuning.lora"

    rank: NonNegativeInt = 0
    alpha: PositiveFloat = 16.0  # the change counts alpha / rank times
    targets: tuple[str, ...] = Field(("*.qkv", "*.out"), min_length=1)  # patterns of linear maps
    dropout: Fraction = 0.0  # of what the low-rank maps read


class TuningConfig(Config):
    """The `[tuning]` table of an experiment."""

    place = "tuning"

    freeze: tuple[str, ...] = ()  # patterns of parameters that stay as they are
    unfreeze: tuple[str, ...] = ()  # of these, or of what `lora` freezes, those that learn after all
    layer_lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0  # of the learning rate, from each layer to the one below
    lora: LoraConfig = LoraConfig()


def folder_of(init_from: str) -> tuple[Path, str]:
    """A folder and which of its checkpoints is meant.

    >>> folder_of("runs/words@step-200")
    (PosixPath('runs/words'), 'step-200')
    """
    folder, at, which = init_from.rpartition("@")
    return (Path(folder), which) if at and not Path(init_from).is_dir() else (Path(init_from), "best")


def inherited(tables: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's tables with `model` and `tokeniser` of the run it begins with, where it names no `kind` of its
    own; what it does say is laid over them. A run's config names all kinds, so nobody looks for the other run again."""
    lacking = [key for key in INHERITED if unnamed(tables.get(key, {}))]
    theirs = described(str(tables["init_from"])) if lacking else {}
    return {**tables, **{key: merge(theirs[key], tables.get(key, {})) for key in lacking if key in theirs}}


def unnamed(table: Any) -> bool:
    return isinstance(table, Mapping) and "kind" not in table


def described(init_from: str) -> dict[str, Any]:
    """The experiment behind a run or a foreign folder; empty where there is none, which training will say."""
    from headwise.runs import Run

    path, _ = folder_of(init_from)
    try:
        if (path / "config.toml").is_file():
            found = Run.open(path).config
        elif (path / "config.json").is_file():
            from headwise.interop.hf.read import read_folder

            found = {"model": read_folder(path).config.model_dump(mode="json")}
        else:
            return {}
    except UserError as error:
        raise Problems([(("init_from",), str(error))]) from None
    found.get("model", {}).pop("embeddings", None)  # its vectors were a beginning too, and the weights are newer
    return found
