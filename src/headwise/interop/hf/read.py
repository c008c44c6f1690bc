"""A Hugging Face folder as a model of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.config.base import validate
from headwise.config.model import ModelConfig
from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.interop.hf import architecture_of
from headwise.interop.hf.architecture import Architecture
from headwise.interop.hf.files import Weights, open_weights
from headwise.interop.hf.text import LABELLERS, Texts, Vocabularies
from headwise.interop.hf.weights import fill
from headwise.text.tokenisers import Tokenisers

WRITERS = ("language-model", "transduce")


@dataclass(frozen=True)
class Imported:
    """A folder's model in evaluation mode, with our ids."""

    config: ModelConfig
    model: Any
    task: str
    words: Vocabularies
    context: int  # how many tokens it can read at once
    tokenisers: Tokenisers | None  # None where the folder has no tokenizer.json


def read_folder(folder: Path | str) -> Imported:
    """Config, tensors and tokenisers of a folder."""
    folder = Path(folder)
    data = read_json(folder / "config.json")
    kind = architecture_of(str(data.get("model_type")), str(folder / "config.json"))
    return assemble(kind, data, open_weights(folder), kind.texts(folder), str(folder / "config.json"))


def assemble(kind: Architecture, data: Mapping[str, Any], weights: Weights, texts: Texts, where: str) -> Imported:
    """A model of its parts. What does not fit together is said before anything is made of it."""
    theirs, task, labels = kind.theirs.read(data, where), kind.task(data, where), label_names(data)
    words = texts.words(kind, theirs, {**dict(theirs), **data}, labels if task in LABELLERS else ())
    settings = theirs.ours(task, weights.names)
    if task in WRITERS and not settings.get("output_bias"):
        settings["unwritten"] = words.target.spare
    config = validate(kind.config, settings, where)
    tokenisers = texts.tokenisers(words, labels, task)
    outputs = 0 if words.target is words.source else len(words.target.order)
    with Unfilled():
        model = config.build(len(words.source.order), outputs, task)
    if task not in WRITERS and model.encoder.opening is not None and None in (words.source.bos, words.source.eos):
        marks = " and ".join(f"{kind.role(mark)}_token" for mark in ("bos", "eos"))
        raise UserError(f"{where}: nothing says which marks stand around a text; add {marks} to tokenizer_config.json")
    fill(model, kind.for_task(task), words, weights)
    return Imported(config, model.eval(), task, words, theirs.context, tokenisers)


def label_names(config: Mapping[str, Any]) -> list[str]:
    """The labels of a model that has some, in the order of their rows."""
    named: Mapping[Any, Any] = config.get("id2label") or {0: "LABEL_0", 1: "LABEL_1"}
    return [str(named[key]) for key in sorted(named, key=int)]


class Unfilled(TorchFunctionMode):
    """Models that are made inside get no random weights, which would take longer than reading theirs."""

    FILLS = (Tensor.normal_, Tensor.uniform_)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.FILLS or getattr(func, "__module__", "") == nn.init.__name__:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
