"""The verbs of `/api/` that a worker computes in batches: which models have them, and how they are computed.

A task declares the command that applies its runs (`TaskConfig.command`), what it reads and what it writes; a verb is
offered where these fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np
from torch import Tensor, nn

from headwise.errors import UserError
from headwise.inference.sentence_embeddings import check_pool
from headwise.inference.trained_model import TrainedModel
from headwise.serve.images import decode_base64_image
from headwise.serve.limits import MAX_MAP_VALUES
from headwise.serve.scoring import score_text

Inputs = Sequence[Any]
Parameters = dict[str, Any]


@dataclass(frozen=True)
class Verb:
    """`run` computes the outputs of a batch of inputs that have the same parameters."""

    fits: Callable[[TrainedModel], bool]
    run: Callable[[TrainedModel, Inputs, Parameters], Sequence[Any]]
    reads: str = "text"  # the field of an input that `run` gets: text, image, or all of them as an object


def has_command(*commands: str) -> Callable[[TrainedModel], bool]:
    return lambda trained: trained.experiment.task.command in commands


def generates(trained: TrainedModel) -> bool:
    """Whether it writes texts token by token."""
    task = trained.experiment.task
    return bool(task.writes) and task.reads == "texts" and hasattr(trained.model, "step")


def pools(trained: TrainedModel) -> bool:
    """Whether it has hidden states of a text."""
    if trained.experiment.task.reads != "texts" or not isinstance(trained.model, nn.Module):
        return False
    try:
        check_pool(trained.model, "mean")
    except UserError:
        return False
    return True


def classify(trained: TrainedModel, inputs: Inputs, parameters: Parameters) -> Sequence[Any]:
    if trained.experiment.task.kind == "regress":
        return [{"value": value} for value in trained.regress(list(inputs))]
    images = trained.experiment.task.reads == "images"
    rows = trained.classify_images(inputs) if images else trained.classify(list(inputs))
    return [{"label": max(row, key=row.__getitem__), "probabilities": row} for row in rows]


def tag(trained: TrainedModel, inputs: Inputs, parameters: Parameters) -> Sequence[Any]:
    return [{"words": [{"word": word, "tag": name} for word, name in row]} for row in trained.tag(list(inputs))]


def fill_mask(trained: TrainedModel, inputs: Inputs, parameters: Parameters) -> Sequence[Any]:
    rows = trained.fill_mask(list(inputs), parameters["count"])
    return [{"masks": [[asdict(word) for word in mask] for mask in masks]} for masks in rows]


def detect_replaced(trained: TrainedModel, inputs: Inputs, parameters: Parameters) -> Sequence[Any]:
    task = trained.check_command("detect-replaced")
    return [{"words": [asdict(word) for word in words]} for words in task.detect_replaced(trained.model, list(inputs))]


def answer(trained: TrainedModel, inputs: Inputs, parameters: Parameters) -> Sequence[Any]:
    return [{"answer": each} for each in trained.answer([(row["question"], row["text"]) for row in inputs])]


def embed(trained: TrainedModel, inputs: Inputs, parameters: Parameters) -> Sequence[Any]:
    vectors: Tensor = trained.embed(list(inputs), parameters["pool"], parameters["normalised"])
    return [
        {"embedding": row, "tokens": count}
        for row, count in zip(vectors.tolist(), _count(trained, inputs), strict=True)
    ]


def _count(trained: TrainedModel, texts: Inputs) -> list[int]:
    sides = trained.tokenisers
    side = sides.target if trained.experiment.task.writes == "continuation" else sides.source
    return [len(ids) for ids in side.encode_batch(list(texts))]


def detect(trained: TrainedModel, inputs: Inputs, parameters: Parameters) -> Sequence[Any]:
    found = trained.detect(inputs, parameters["above"])
    return [
        {
            "objects": [
                {"label": label, "score": score, "box": box}
                for label, score, box in zip(each.labels, each.scores.tolist(), each.corners.tolist(), strict=True)
            ]
        }
        for each in found
    ]


def complete(trained: TrainedModel, inputs: Inputs, parameters: Parameters) -> Sequence[Any]:
    return [{"words": [asdict(word) for word in trained.complete(text, parameters["count"])]} for text in inputs]


def score(trained: TrainedModel, inputs: Inputs, parameters: Parameters) -> Sequence[Any]:
    return [score_text(trained, row["text"], row["source"], row["ends"]) for row in inputs]


def attention(trained: TrainedModel, inputs: Inputs, parameters: Parameters) -> Sequence[Any]:
    return [collect_maps(trained, row["text"], row["target"], row["kind"], row["layer"]) for row in inputs]


def collect_maps(trained: TrainedModel, text: str, target: str, kind: str, layer: int | None) -> dict[str, Any]:
    """The attention maps of one kind: (layers, heads, queries, keys), or those of one layer."""
    maps = trained.inspect(text, target)
    kind = kind or maps.main
    if kind not in maps.weights:
        raise UserError(f"kind: this model has attention of kind {', '.join(maps.weights)}; name one of these")
    weights = maps.weights[kind]
    if layer is not None:
        if layer >= len(weights):
            raise UserError(f"layer: this model has layers 0 to {len(weights) - 1}")
        weights = weights[layer : layer + 1]
    if weights.size > MAX_MAP_VALUES:
        raise UserError(
            f"text: the maps have {weights.size:,} weights, and at most {MAX_MAP_VALUES:,} are sent; name one layer or "
            "shorten the text"
        )
    values = np.where(np.isnan(weights), 0, weights).round(5).tolist()
    return {"kind": kind, "kinds": list(maps.weights), "rows": maps.rows(kind), "columns": maps.columns(kind),
            "weights": values}  # fmt: skip


VERBS: dict[str, Verb] = {
    "classify": Verb(has_command("classify"), classify, "text or image"),
    "tag": Verb(has_command("tag"), tag),
    "fill-mask": Verb(has_command("fill-mask"), fill_mask),
    "detect-replaced": Verb(has_command("detect-replaced"), detect_replaced),
    "answer": Verb(has_command("answer"), answer, "object"),
    "detect": Verb(has_command("detect"), detect, "image"),
    "embed": Verb(pools, embed),
    "complete": Verb(lambda trained: generates(trained) and trained.model.continues_prompt, complete),
    "score": Verb(generates, score, "object"),
    "attention": Verb(
        lambda trained: trained.experiment.task.reads == "texts" and isinstance(trained.model, nn.Module),
        attention, "object",
    ),
}  # fmt: skip
GENERATIVE = {"generate": "continuation", "translate": "target"}  # verb -> what the task writes, of texts


def list_verbs(trained: TrainedModel) -> list[str]:
    """The verbs that a model has."""
    task = trained.experiment.task
    written = [verb for verb, kind in GENERATIVE.items() if task.writes == kind and task.reads == "texts"]
    captions = ["caption"] if task.command == "caption" else []
    return [*written, *captions, *(name for name, verb in VERBS.items() if verb.fits(trained))]


def read_input(verb: Verb, given: dict[str, Any]) -> Any:
    """An input as `run` takes it; images are decoded."""
    if verb.reads == "object":
        return given
    return decode_base64_image(given["image"]) if given.get("image") else given["text"]


def check_reads(trained: TrainedModel, verb: Verb, given: dict[str, Any]) -> None:
    """Refuse a text where the model reads images, and the other way round."""
    wants = "image" if trained.experiment.task.reads == "images" else "text"
    if verb.reads == "text or image" and not given.get(wants):
        raise UserError(f"{wants}: this model reads {trained.experiment.task.reads}; send one")


def make_finite(value: Any) -> Any:
    """JSON has no infinite numbers: None instead."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: make_finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [make_finite(each) for each in value]
    return value
