"""Folders of exported graphs, which work without the run: a file for each graph (`.onnx` with `weights.bin`, or
`.pt2`), `config.json` with the experiment, and the tokenisers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwise.config.plugins import collect_parts, list_own_sources, use_kept_parts
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.inference.backends import list_graphs_of
from headwise.inference.trained_model import TrainedModel
from headwise.interop.folders import ONNX_TYPE, TORCH_EXPORT_TYPE, create_folder, read_json
from headwise.interop.graphs.engine import open_model
from headwise.interop.graphs.write import Target, check_outputs, write_graphs
from headwise.interop.hf.text import NATIVE, write_json
from headwise.runs.parts import read_parts, write_parts
from headwise.text.tokenisers import Tokenisers

CONFIG = "config.json"
TYPES: dict[str, str] = {"onnx": ONNX_TYPE, "torch-export": TORCH_EXPORT_TYPE}


def write_graph_folder(loaded: TrainedModel, folder: Path | str, target: Target, int8: bool = False) -> float:
    """Write the graphs of a model, its tokenisers and its experiment. Returns the largest relative difference between
    outputs of onnxruntime and of torch, on random inputs; it is 0 for `torch-export`, and not limited for int8."""
    form = list_graphs_of(loaded, f"--to {target}")
    config = {
        "model_type": TYPES[target],
        "graphs": form.table,
        "experiment": loaded.experiment.model_dump(mode="json"),
    }
    with create_folder(folder) as temporary:
        write_graphs(form, temporary, target, int8)
        difference = check_outputs(form, temporary, exact=not int8) if target == "onnx" else 0.0
        write_json(temporary / CONFIG, config)
        loaded.tokenisers.save(temporary / NATIVE)
        write_parts(temporary, collect_parts(loaded.experiment))
    return difference


def read_graph_folder(folder: Path, trust: bool = False, threads: int = 1) -> TrainedModel:
    """The model of a folder of ONNX graphs, which onnxruntime runs; with `trust`, the code of parts that it keeps is
    executed, which read their settings."""
    config = read_json(folder / CONFIG)
    if config.get("model_type") == TORCH_EXPORT_TYPE:
        raise UserError(
            f"{folder}: has torch.export programs, which are for other programs: torch.export.load unpickles, so "
            "Headwise does not open them; name the run"
        )
    use_kept_parts(read_parts(folder, list_own_sources()), folder, trust)
    experiment = parse_experiment(_read_table(config, "experiment", folder), str(folder / CONFIG))
    model = open_model(folder, _read_table(config, "graphs", folder), threads)
    return TrainedModel(model.eval(), Tokenisers.load(folder / NATIVE), experiment)


def _read_table(config: dict[str, Any], name: str, folder: Path) -> dict[str, Any]:
    table = config.get(name)
    if not isinstance(table, dict):
        raise UserError(f"{folder / CONFIG}: {name}: must be a table of settings; export the run again")
    return table
