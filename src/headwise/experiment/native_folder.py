"""Folders with Headwise's own `config.json`, for models that no architecture of `transformers` can express.

The layout is that of a Hugging Face folder: `config.json` (`model_type` "headwise" and the experiment), safetensors
with Headwise's tensor names, `headwise-tokenisers.json`, and `parts/` with copies of the user's parts files.
"""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save_file

from headwise.config.plugins import collect_parts, list_own_sources, use_kept_parts
from headwise.experiment.config import parse_experiment
from headwise.inference.trained_model import TrainedModel
from headwise.interop.folders import NATIVE_TYPE, create_folder, read_native_tables
from headwise.interop.hf.files import WEIGHTS, open_state_dict
from headwise.interop.hf.read import SkipInit
from headwise.interop.hf.sizes import AllocationLimit
from headwise.interop.hf.text import NATIVE, write_json
from headwise.runs.checkpoint import restore, unique_tensors
from headwise.runs.parts import read_parts, write_parts
from headwise.text.tokenisers import Tokenisers
from headwise.utils.files import apply_umask

CONFIG = "config.json"


def write_native_folder(loaded: TrainedModel, folder: Path | str, reason: str) -> None:
    """Write a model, its tokenisers and its experiment; `reason` says why `transformers` cannot load it."""
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in unique_tensors(loaded.model).items()}
    config = {
        "model_type": NATIVE_TYPE,
        "reason": reason,
        "experiment": loaded.experiment.model_dump(mode="json"),
    }
    with create_folder(folder) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary / WEIGHTS)
        apply_umask(temporary / WEIGHTS)
        write_json(temporary / CONFIG, config)
        loaded.tokenisers.save(temporary / NATIVE)
        write_parts(temporary, collect_parts(loaded.experiment))


def read_native_folder(folder: Path, trust: bool = False) -> TrainedModel:
    """Read what `write_native_folder` wrote; with `trust`, the code of parts that it keeps is executed."""
    where, weights = str(folder / CONFIG), open_state_dict(folder)
    tables = read_native_tables(folder)
    use_kept_parts(read_parts(folder, list_own_sources()), folder, trust)
    experiment = parse_experiment(tables, where)
    tokenisers = Tokenisers.load(folder / NATIVE)
    with AllocationLimit(weights, where), SkipInit():
        model = experiment.create_task(tokenisers).build(experiment.model)
    restore(model, {name: weights[name] for name in weights.names}, weights.where)
    return TrainedModel(model.eval(), tokenisers, experiment)
