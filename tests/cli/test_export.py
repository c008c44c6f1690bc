"""Whatever a run is, an export writes it or says in a sentence why not."""

import numpy as np
import pytest
import torch

from headwise.catalog import CATALOG
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.tasks.tables import task_config
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Labels
from headwise.vision.pixels import Pixels

LETTERS = Characters("abcdefgh ")
LABELLED = ("classify", "tag", "classify-images", "detect")
IMAGES = ("classify-images", "detect", "caption")
DATA = {  # by what tasks read; chains are generated
    "texts": {"train": "none.tsv"}, "images": {"name": "digits"}, "chains": {}, "episodes": {"train": "log"},
    "environment": {"name": "catch"}, "graphs": {"name": "rnnlm-2"},
}  # fmt: skip
TASKS = {name: entry.configure("tiny").tasks for name, entry in CATALOG.items()}
PAIRS = [  # each model at what it was made for, and some of them at all that they can
    *((name, tasks[0]) for name, tasks in TASKS.items()),
    *((name, task) for name in ("lstm", "t5", "deberta", "perceiver") for task in TASKS[name][1:]),
]
TARGETS = ("hf", "ctranslate2", "arpa")


def save_run(path, name: str, task: str) -> None:
    """A run of random weights, or of a few counts."""
    torch.manual_seed(0)
    source = Pixels(32, 32, 3, (0.5,) * 3, (0.2,) * 3) if task in IMAGES else LETTERS
    data = DATA[task_config(task).reads]
    tokenisers = Tokenisers(source, Labels(["x", "y"]) if task in LABELLED else LETTERS)
    experiment = Experiment.model_validate({"task": task, "model": f"{name}-tiny", "data": data, "train": {"steps": 1}})
    model = experiment.create_task(tokenisers).build(experiment.model).eval()
    if name == "ngram":
        model.fit(np.array(LETTERS.encode(text)) for text in ("abcd", "bad", "fed ab"))
    TrainedModel(model, tokenisers, experiment).save(path)


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_every_model_to_every_target(headwise, tmp_path, name: str, task: str) -> None:
    save_run(tmp_path / "run", name, task)
    for target in TARGETS:
        outcome = headwise("export", "run", f"to-{target}", "--to", target)
        if outcome.status == 0:
            assert (tmp_path / f"to-{target}").exists()
        else:
            assert outcome.status == 2 and outcome.err.startswith("headwise: ") and outcome.err.count("\n") == 1
            assert not (tmp_path / f"to-{target}").exists()
    expected = (
        {"arpa"} if name == "ngram" else {"ctranslate2"} if (name, task) == ("transformer", "transduce") else set()
    )
    assert {target for target in TARGETS[1:] if (tmp_path / f"to-{target}").exists()} == expected
