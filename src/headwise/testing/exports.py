"""Which models of the catalogue can be exported: `python -m headwise.testing.exports` prints the table of
docs/export.md, over which `make test-export` walks."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from headwise.catalog import CATALOG
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.experiment.convert import to_hf
from headwise.inference.backends import explain_unsupported_model, list_graphs_of
from headwise.inference.trained_model import TrainedModel
from headwise.interop.graphs.write import check_outputs, measure_difference, quantize, save_models, to_onnx
from headwise.tasks.tables import task_config
from headwise.testing.assertions import perturb_parameters
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Labels
from headwise.vision.pixels import Pixels

TARGETS = ("torch-export", "onnx", "onnx int8", "ctranslate2", "hf")
LETTERS = Characters("abcdefgh ")
IMAGES = ("classify-images", "detect", "caption")
LABELLED = ("classify", "tag", "classify-images", "detect")
DATA = {"texts": {"train": "none.tsv"}, "images": {"name": "digits"}}
INT8_DIFFERENCE = 0.5  # relative, of a tiny random model: a broken one is far above


def list_models() -> list[tuple[str, str]]:
    """Each neural model of texts or images, with the task that it was made for."""
    pairs = [(name, entry.configure("tiny").tasks[0]) for name, entry in sorted(CATALOG.items())]
    return [
        (name, task) for name, task in pairs if task_config(task).reads in DATA and CATALOG[name].family != "counts"
    ]


def build_trained(name: str, task: str) -> TrainedModel:
    """A tiny model whose weights are random enough that answers differ."""
    torch.manual_seed(0)
    source = Pixels(32, 32, 3, (0.5,) * 3, (0.2,) * 3) if task in IMAGES else LETTERS
    tokenisers = Tokenisers(source, Labels(["x", "y", "z"]) if task in LABELLED else LETTERS)
    data = DATA[task_config(task).reads]
    experiment = Experiment.model_validate({"task": task, "model": f"{name}-tiny", "data": data, "train": {"steps": 1}})
    model = experiment.create_task(tokenisers).build(experiment.model)
    return TrainedModel(perturb_parameters(model).float().eval(), tokenisers, experiment)


def try_exports(name: str, task: str) -> dict[str, str]:
    """For each target why the model cannot be exported; empty if it can."""
    trained = build_trained(name, task)
    reasons = {"ctranslate2": explain_unsupported_model(trained), **try_graphs(trained)}
    with TemporaryDirectory() as folder:
        reasons["hf"] = to_hf(trained, Path(folder, "hf"))
    return {target: reasons[target] for target in TARGETS}


def try_graphs(trained: TrainedModel) -> dict[str, str]:
    """The same for graphs."""
    targets = [target for target in TARGETS if target not in ("ctranslate2", "hf")]
    reasons = dict.fromkeys(targets, "")
    done = 0
    with TemporaryDirectory() as parent:
        try:
            form = list_graphs_of(trained, "graphs")
            for graph in form.graphs:
                torch.export.save(graph.trace("graphs"), Path(parent, f"{graph.name}.pt2"))
            done = 1
            models = {graph.name: to_onnx(graph) for graph in form.graphs}
            quantized = {key: quantize(model) for key, model in models.items()}
            folders = [Path(parent, each) for each in ("float", "int8")]
            for folder, these in zip(folders, (models, quantized), strict=True):
                folder.mkdir()
                save_models(these, folder)
            check_outputs(form, folders[0])
            done = 2
            if not (difference := measure_difference(form, folders[1])[1]) < INT8_DIFFERENCE:
                raise UserError(f"int8: relative difference {difference:.1e}")
        except UserError as error:
            reasons |= dict.fromkeys(targets[done:], str(error).partition(": ")[2])
    return reasons


def main() -> None:
    print("| model | task |", " | ".join(TARGETS), "|")
    print("|---|---|", "---|" * len(TARGETS), sep="")
    notes: dict[str, list[str]] = {}
    for name, task in list_models():
        reasons = try_exports(name, task)
        print(f"| `{name}` | {task} |", " | ".join("no" if reasons[target] else "yes" for target in TARGETS), "|")
        sys.stdout.flush()
        for target in TARGETS[:3]:
            if reasons[target]:
                notes.setdefault(reasons[target], []).append(name)
                break
    for reason, names in notes.items():
        print(f"- {', '.join(f'`{name}`' for name in names)}: {reason}")


if __name__ == "__main__":
    main()
