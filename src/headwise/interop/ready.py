"""Imported models, ready to use, and used ones to be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from headwise.config.experiment import Experiment
from headwise.data.config import DataConfig
from headwise.decode.config import DecodeConfig
from headwise.decode.ensemble import Ensemble
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.interop.hf.images import PROCESSOR
from headwise.interop.hf.read import Imported
from headwise.interop.hf.write import write_folder
from headwise.models.image_fields import ImageFields
from headwise.text.hf import HfTokeniser
from headwise.train.config import TrainConfig
from headwise.vision.config import ImagesConfig
from headwise.vision.named_sets import UNKNOWN

CONTEXT = 1024  # tokens that are read at once in evaluation, of models that could read more
LACKING = {
    False: ("tokenizer.json (nor source.spm, target.spm and vocab.json, if it is Marian), so texts", "AutoTokenizer"),
    True: (f"{PROCESSOR}, so images", "AutoImageProcessor"),
}


def ready(imported: Imported, source: Path) -> TrainedModel:
    """An imported model with its tokenisers as if it had been trained here."""
    pictures = isinstance(imported.config, ImageFields)
    if imported.tokenisers is None:
        lacking, maker = LACKING[pictures]
        raise UserError(
            f"{source}: has no {lacking} cannot be read; write it with transformers: "
            f"{maker}.from_pretrained('{source}').save_pretrained('{source}')"
        )
    task: dict[str, Any] = {"kind": imported.task, **imported.settings}
    writes = imported.tokenisers.target
    decode = DecodeConfig(marked=writes.opens if isinstance(writes, HfTokeniser) else True)
    if imported.task == "language-model":
        task["context"] = min(imported.context, CONTEXT)
        decode = decode.changed(context=imported.context)
    experiment = Experiment(
        name=source.stem,
        task=task,
        data=ImagesConfig(name=UNKNOWN) if pictures else DataConfig(),
        model=imported.config,
        train=TrainConfig(epochs=1),
        decode=decode,
    )
    return TrainedModel(imported.model, imported.tokenisers, experiment)


def write(loaded: TrainedModel, folder: Path | str) -> None:
    """A used model as a folder."""
    if isinstance(loaded.model, Ensemble) or not isinstance(loaded.model, nn.Module):
        raise UserError("only a single model can become a folder, not an ensemble or an engine; name one run")
    function = getattr(loaded.task.config, "function", "")
    write_folder(loaded.model, loaded.experiment.model, loaded.task.kind, loaded.tokenisers, folder, function=function)
