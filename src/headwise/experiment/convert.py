"""Trained models from and to the formats of other programs: Hugging Face folders, GGUF and ARPA files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from headwise.config.base import validate
from headwise.data.config import DataConfig, TextDataConfig
from headwise.decode.config import DecodeConfig
from headwise.decode.ensemble import Ensemble
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.experiment.graph_folder import read_graph_folder
from headwise.experiment.native_folder import read_native_folder, write_native_folder
from headwise.inference.trained_model import TrainedModel
from headwise.interop.folders import is_graph_folder, is_native_folder
from headwise.interop.gguf_llama import read_gguf
from headwise.interop.hf.hub import find_folder
from headwise.interop.hf.image_processor import PROCESSOR
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.interop.hf.refusal import InexpressibleError
from headwise.interop.hf.write import Layout, write_folder
from headwise.interop.hf.write_agent import write_agent
from headwise.models.image_fields import ImageFields
from headwise.models.ngram import BackoffConfig
from headwise.ngram.arpa import from_arpa as read_arpa
from headwise.tasks.language_model import LanguageModelConfig
from headwise.tasks.tables import task_config
from headwise.text import SPECIALS
from headwise.text.hf import HfTokeniser
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Words
from headwise.train.config import TrainConfig
from headwise.vision.config import ImagesConfig
from headwise.vision.named_sets import UNKNOWN
from headwise.worlds.config import EpisodesConfig

CONTEXT = 1024  # tokens of a block in evaluation, at most
MISSING_PROCESSOR = {  # by whether the model reads images: the missing file, and the class that writes it
    False: ("tokenizer.json (nor source.spm, target.spm and vocab.json, if it is Marian), so texts", "AutoTokenizer"),
    True: (f"{PROCESSOR}, so images", "AutoImageProcessor"),
}


def from_hf(source: Path | str, revision: str = "", trust: bool = False) -> TrainedModel:
    """The model and the tokenisers of a Hugging Face folder, or of a repository of the Hub, `org/name`, at a revision:
    `headwise.from_hf("gpt2").generate(["Once upon a time"])`. A folder of that name goes before a repository.
    `trust` is that of `load`, for a folder that was exported from a run with parts of its own; other code is never
    executed."""
    folder = find_folder(source, revision)
    if is_graph_folder(folder.path):
        loaded = read_graph_folder(folder.path, trust)
    elif is_native_folder(folder.path):
        loaded = read_native_folder(folder.path, trust)
    else:
        loaded = to_trained_model(read_folder(folder.path), folder.path)
    if not folder.origin:
        return loaded
    return replace(loaded, experiment=loaded.experiment.replace(name=folder.name), origin=folder.origin)


def from_gguf(file: Path | str) -> TrainedModel:
    """The model and the tokeniser of a GGUF file."""
    return to_trained_model(read_gguf(Path(file)), Path(file))


def from_arpa(file: Path | str) -> TrainedModel:
    """The n-gram model of an ARPA file, with a tokeniser of its words, or of characters if all are single ones."""
    path = Path(file)
    model, vocabulary = read_arpa(path)
    units = vocabulary[len(SPECIALS) :]
    tokeniser = (Characters if all(len(unit) == 1 for unit in units) else Words)(units)
    experiment = Experiment(
        name=path.stem,
        task=LanguageModelConfig(),
        data=TextDataConfig(),
        model=BackoffConfig(order=model.order),
        train=TrainConfig(epochs=1),
    )
    return TrainedModel(model, Tokenisers(tokeniser, tokeniser), experiment)


def to_trained_model(imported: ImportedModel, source: Path) -> TrainedModel:
    """An imported model with its tokenisers, and an experiment as if it had been trained here."""
    reads_images = isinstance(imported.config, ImageFields)
    if imported.tokenisers is None:
        missing, processor = MISSING_PROCESSOR[reads_images]
        raise UserError(
            f"{source}: has no {missing} cannot be read; write it with transformers: "
            f"{processor}.from_pretrained('{source}').save_pretrained('{source}')"
        )
    task: dict[str, Any] = {"kind": imported.task, **imported.task_settings}
    target = imported.tokenisers.target
    marked = target.prepends_bos if isinstance(target, HfTokeniser) else True
    tokenisers = imported.tokenisers.accept_pairs() if task_config(imported.task).pairs else imported.tokenisers
    decode = validate(
        DecodeConfig, {**imported.decode_settings, "marked": marked}, str(source / "generation_config.json")
    )
    if imported.task == "language-model":
        task["context"] = min(imported.context, CONTEXT)
        decode = decode.replace(context=imported.context)
    unknown_data: dict[str, DataConfig] = {"images": ImagesConfig(name=UNKNOWN), "episodes": EpisodesConfig()}
    experiment = Experiment(
        name=source.stem,
        task=task,
        data=unknown_data.get(task_config(imported.task).reads, TextDataConfig()),
        model=imported.config,
        train=TrainConfig(epochs=1),
        decode=decode,
    )
    return TrainedModel(imported.model, tokenisers, experiment)


def to_hf(loaded: TrainedModel, folder: Path | str, layout: Layout = "auto", model_type: str = "") -> str:
    """Write a folder that `transformers` loads, or timm, where the model is one that timm alone has or the layout is
    "timm". A model that none of their architectures can express is written with Headwise's own config, which `from_hf`
    reads; the reason is returned then, an empty text otherwise. With the layout "timm" it is refused instead, and with
    a `model_type`, which asks for one of several architectures that compute the same (xlm-roberta, mt5)."""
    if isinstance(loaded.model, Ensemble) or not isinstance(loaded.model, nn.Module):
        raise UserError("only a single model can become a folder, not an ensemble or an engine; name one run")
    function = getattr(loaded.task.config, "function", "")
    config, kind = loaded.experiment.model, loaded.task.kind
    try:
        if kind == "act" and layout != "timm":
            write_agent(loaded.model, config, kind, loaded.tokenisers, folder, model_type)
            return ""
        write_folder(
            loaded.model,
            config,
            kind,
            loaded.tokenisers,
            folder,
            function=function,
            decode=loaded.experiment.decode,
            layout=layout,
            model_type=model_type,
        )
    except InexpressibleError as error:
        if layout == "timm" or model_type:
            raise
        write_native_folder(loaded, folder, str(error))
        return str(error)
    return ""
