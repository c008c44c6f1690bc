"""Settings of fine-tuning: the pretrained model (`init_from`), frozen parameters and LoRA (`[tuning]`).

A pattern matches a parameter, or a module with all its parameters; `*` matches anything, `0-5` these numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from headwise.config.base import Config, Fraction, NonNegativeInt, PositiveFloat, Problems, merge
from headwise.config.plugins import list_own_sources, use_kept_parts
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.interop.hf.hub import ModelFolder

INHERITED = ("model", "tokeniser")  # tables that an experiment inherits from the run in `init_from`


class LoraConfig(Config):
    """Low-rank adaptation (LoRA, Hu et al. 2021) of linear layers. Rank 0: no LoRA."""

    place = "tuning.lora"

    rank: NonNegativeInt = 0
    alpha: PositiveFloat = 16.0  # the low-rank product is scaled by alpha / rank
    targets: tuple[str, ...] = Field(("*.qkv", "*.out"), min_length=1)  # patterns of linear layers
    dropout: Fraction = 0.0  # on the input of the low-rank product


class TuningConfig(Config):
    """The `[tuning]` table of an experiment."""

    place = "tuning"

    freeze: tuple[str, ...] = ()  # patterns of frozen parameters
    unfreeze: tuple[str, ...] = ()  # exceptions from `freeze` and from what `lora` freezes
    layer_lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0  # learning rate of a layer / of the layer above
    lora: LoraConfig = LoraConfig()


def parse_run_reference(reference: str) -> tuple[Path, str]:
    """Split `RUN@CHECKPOINT`, or `org/name@REVISION`, into folder and checkpoint; without one, the best.

    >>> parse_run_reference("runs/words@step-200")
    (PosixPath('runs/words'), 'step-200')
    """
    folder, at, which = reference.rpartition("@")
    return (Path(folder), which) if at and not Path(reference).is_dir() else (Path(reference), "best")


def inherit_tables(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of an experiment with `init_from`: `model` and `tokeniser` without a `kind` are merged into those of
    the pretrained run. A run's config.toml names all kinds, so resuming does not need the pretrained run."""
    lacking = [key for key in INHERITED if lacks_kind(tables.get(key, {}))]
    source = read_source_tables(str(tables["init_from"])) if lacking else {}
    return {**tables, **{key: merge(source[key], tables.get(key, {})) for key in lacking if key in source}}


def find_pretrained(path: Path, which: str) -> ModelFolder:
    """The folder of a run, a Hugging Face folder, or the repository `path` at the revision `which`, downloaded."""
    from headwise.interop.hf.hub import ModelFolder, find_folder, is_repository

    if path.is_dir() or not is_repository(path):
        return ModelFolder(path)
    return find_folder(path, "" if which == "best" else which)


def lacks_kind(table: Any) -> bool:
    return isinstance(table, Mapping) and "kind" not in table


def read_source_tables(init_from: str) -> dict[str, Any]:
    """The tables of a run, a Hugging Face folder or a repository; empty if there is none: loading the model raises
    the error."""
    from headwise.interop.folders import is_native_folder, read_native_tables
    from headwise.runs import Run
    from headwise.runs.parts import read_parts

    path, which = parse_run_reference(init_from)
    try:
        path = find_pretrained(path, which).path
        if (path / "config.toml").is_file():
            use_kept_parts(read_parts(path, list_own_sources()), path)
            tables = Run.open(path).config
        elif is_native_folder(path):
            tables = read_native_tables(path)
        elif (path / "config.json").is_file():
            from headwise.interop.hf.read import read_folder

            tables = {"model": read_folder(path).config.model_dump(mode="json")}
        else:
            return {}
    except UserError as error:
        raise Problems([(("init_from",), str(error))]) from None
    tables.get("model", {}).pop("embeddings", None)  # word vectors for initialisation, which the weights replace
    return tables
