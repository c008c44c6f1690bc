"""Compare an exported ONNX folder with the model of the run: answers on random inputs, and scores on its test data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.blocks.evaluation import eval_mode
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.errors import UserError
from headwise.experiment.graph_folder import read_graph_folder
from headwise.inference.trained_model import TrainedModel
from headwise.interop.graphs.forms import draw_inputs
from headwise.tasks.base import take_first

ITEMS = 200  # of the test data that are scored
ROWS, TOKENS = 32, 12  # random inputs, and tokens that are generated after each
SCORED = ("classify", "tag", "regress", "classify-images", "detect", "transduce")  # tasks that call the model alone


@dataclass(frozen=True)
class AnswerCheck:
    """How many of the most probable answers are equal."""

    what: str
    equal_count: int
    count: int

    @property
    def equal(self) -> bool:
        return self.equal_count == self.count

    def __str__(self) -> str:
        return f"{self.what}: {self.equal_count:,} of {self.count:,} are equal"


@torch.no_grad()
def compare_answers(loaded: TrainedModel, folder: Path) -> AnswerCheck:
    """The greedy outputs, or the largest output of each row, token or object query, for random inputs."""
    models = loaded.model, read_graph_folder(folder, trust=True).model
    inputs = draw_inputs(loaded.task.image, loaded.tokenisers.source.size, ROWS, TOKENS)
    with eval_mode(loaded.model):
        if hasattr(loaded.model, "step"):
            config = DecodeConfig(max_ratio=0, max_extra=TOKENS)
            sources = list(inputs) if loaded.task.image else [row[:-3].tolist() for row in inputs]
            rows = [[nbest[0].ids for nbest in decode(model, sources, config)] for model in models]
            return AnswerCheck(
                "greedy outputs", sum(ids == others for ids, others in zip(*rows, strict=True)), len(sources)
            )
        outputs = [find_largest(model, inputs) for model in models]
    return AnswerCheck("most probable outputs", int((outputs[0] == outputs[1]).sum()), outputs[0].numel())


def find_largest(model: Any, inputs: Tensor) -> Tensor:
    """The index of the largest output in the last dimension; of a single one, its sign."""
    outputs = model(inputs)
    logits: Tensor = getattr(outputs, "logits", outputs)
    return logits > 0 if logits.shape[-1] == 1 else logits.argmax(-1)


def compare_scores(loaded: TrainedModel, folder: Path) -> str:
    """The scores of both models on the first test data of the run; empty where they are not there."""
    if loaded.run is None or loaded.task.kind not in SCORED:
        return ""
    try:
        items = take_first(loaded.held_out(), ITEMS)
    except UserError:  # the data are elsewhere
        return ""
    config = loaded.build_decode_config()
    models = loaded.model, read_graph_folder(folder, trust=True).model
    before, after = (loaded.task.evaluate(model, items, config).scores for model in models)
    pairs = (f"{new} instead of {old}" for old, new in zip(before, after, strict=True))
    return f"on {len(items):,} items of the test data: " + "; ".join(pairs)
