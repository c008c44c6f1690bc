"""A Hugging Face folder as a model of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.config.base import validate
from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.interop.hf import architecture_of
from headwise.interop.hf.architecture import Architecture, Theirs
from headwise.interop.hf.files import Weights, open_weights
from headwise.interop.hf.images import Processor, TheirImages, read_pixels
from headwise.interop.hf.text import LABELLERS, NO_WORDS, Texts, Vocabularies, distinct
from headwise.interop.hf.ties import TABLES, tie_of, untie
from headwise.interop.hf.weights import fill
from headwise.models.config import ModelConfig
from headwise.tasks.base import TaskConfig
from headwise.tasks.tables import TASKS
from headwise.text.hf import Rows
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels

WRITERS = ("language-model", "transduce")
MOST_LABELS = 1_000_000


@dataclass(frozen=True)
class Imported:
    """A folder's model in evaluation mode, with our ids."""

    config: ModelConfig
    model: Any
    task: str
    words: Vocabularies
    context: int  # how many tokens it can read at once
    settings: Mapping[str, Any]  # of the task
    tokenisers: Tokenisers | None  # None where the folder has no tokenizer.json, or no preprocessor_config.json


def read_folder(folder: Path | str) -> Imported:
    """Config, tensors and tokenisers of a folder."""
    folder, where = Path(folder), str(Path(folder) / "config.json")
    data = read_json(folder / "config.json")
    kind, weights = architecture_of(str(data.get("model_type")), where), open_weights(folder)
    if issubclass(kind.theirs, TheirImages):
        return assemble_images(kind, data, weights, folder)
    return assemble(kind, data, weights, kind.texts(folder), where)


def assemble(kind: Architecture, data: Mapping[str, Any], weights: Weights, texts: Texts, where: str) -> Imported:
    """A model of its parts. What does not fit together is said before anything is made of it."""
    theirs, name, labels = kind.theirs.read(data, where), kind.class_of(data, where), label_names(data, where)
    assert isinstance(theirs, Theirs)
    shape, own = kind.classes[name], kind.for_class(name)
    task, settings_of_task = infer_classification_task(data, labels, where) if shape == "classify" else (shape, {})
    words = texts.words(kind, theirs, {**dict(theirs), **data}, labels if task in LABELLERS else ())
    if task == "regress":
        words = words._replace(target=Rows(0))
    weights = weights.under(kind.stem)
    settings = theirs.ours(shape, weights.names)
    weights, holders = untie(weights, theirs.tied(name))
    if task in TABLES:
        settings["tie"] = tie_of(task, own, holders)
    if task in WRITERS and not settings.get("output_bias"):
        settings["suppress_ids"] = words.target.spare
    config = validate(kind.config, settings, where)
    tokenisers = texts.tokenisers(words, labels, task)
    outputs = 1 if task == "regress" else 0 if words.target is words.source else len(words.target.order)
    with Unfilled():
        model = config.build(len(words.source.order), outputs, shape)
    if task not in WRITERS and model.encoder.opening is not None and None in (words.source.bos, words.source.eos):
        marks = " and ".join(f"{kind.role(mark)}_token" for mark in ("bos", "eos"))
        raise UserError(f"{where}: nothing says which marks stand around a text; add {marks} to tokenizer_config.json")
    fill(model, own, words, weights, holders)
    return Imported(config, model.eval(), task, words, theirs.context, settings_of_task, tokenisers)


def assemble_images(kind: Architecture, data: Mapping[str, Any], weights: Weights, folder: Path) -> Imported:
    """A model that reads images. Its task builds it, for the labels that `config.json` names."""
    where = str(folder / "config.json")
    name = kind.class_of(data, where)
    task, labels = kind.classes[name], label_names(data, where)
    if task == "classify-images" and infer_classification_task(data, labels, where) != ("classify", {}):
        raise UserError(f"{where}: problem_type: of images only one label of several is supported")
    config = validate(kind.config, kind.theirs.read(data, where).ours(task, weights.names), where)
    pixels = read_pixels(folder, config.image, config.channels)
    any_scale = Processor().pixels(config.image, config.channels)
    tokenisers = Tokenisers(pixels or any_scale, Labels(distinct(labels)))
    task_config = TASKS.parse(task)
    assert isinstance(task_config, TaskConfig)
    with Unfilled():
        model = task_config.build(tokenisers).build(config)
    fill(model, kind.for_class(name), NO_WORDS, weights.under(kind.stem))
    return Imported(config, model.eval(), task, NO_WORDS, 0, {}, tokenisers if pixels else None)


def label_names(config: Mapping[str, Any], where: str) -> list[str]:
    """The labels of a model that has some, in the order of their rows. As in `transformers`, `num_labels` wins over an
    `id2label` of another length."""
    named = config.get("id2label") or {}
    count = config.get("num_labels") or len(named) or 2
    if not isinstance(named, Mapping) or not all(str(key).isdecimal() for key in named):
        raise UserError(f"{where}: id2label: must name labels by their numbers, as {{'0': 'bad'}}; correct it")
    if not isinstance(count, int) or not 0 < count <= MOST_LABELS:
        raise UserError(f"{where}: num_labels: is {count!r}; it must be a number from 1 to {MOST_LABELS}")
    if len(named) != count:
        return [f"LABEL_{number}" for number in range(count)]
    return [str(named[key]) for key in sorted(named, key=int)]


def infer_classification_task(
    config: Mapping[str, Any], labels: Sequence[str], where: str
) -> tuple[str, dict[str, Any]]:
    """The task of a model that classifies texts, with its settings: what the pipeline of `transformers` makes of its
    logits. One label of which nothing more is said has a sigmoid there."""
    problem, alone = config.get("problem_type"), len(labels) == 1
    if problem == "regression" and alone:
        return "regress", {}
    if problem == "multi_label_classification" or (problem is None and alone):
        return "classify", {"function": "sigmoid"}
    if problem in (None, "single_label_classification") and not alone:
        return "classify", {}
    raise UserError(
        f"{where}: problem_type: {problem!r} with {len(labels)} labels is not supported; a regression has one label, "
        "a single_label_classification more than one"
    )


class Unfilled(TorchFunctionMode):
    """Models that are made inside get no random weights, which would take longer than reading theirs. Where numbers are
    drawn until they fit (a truncated normal), zeros fit at once."""

    FILLS = (Tensor.normal_, Tensor.uniform_)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.FILLS:
            return args[0].zero_()
        if getattr(func, "__module__", "") == nn.init.__name__:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
