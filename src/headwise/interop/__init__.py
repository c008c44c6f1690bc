"""Other programs' models in and out: Hugging Face Marian folders, CTranslate2."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.loaded import Loaded


def from_hf(folder: Path | str) -> Loaded:
    """The model and the tokenisers of a MarianMT folder: `headwise.from_hf("opus-mt-en-de").translate(["Hello"])`."""
    from headwise.config.data import DataConfig
    from headwise.config.experiment import Experiment
    from headwise.config.train import TrainConfig
    from headwise.errors import UserError
    from headwise.interop.marian import import_marian
    from headwise.loaded import Loaded

    config, model, tokenisers = import_marian(folder)
    if tokenisers is None:
        raise UserError(f"{folder}: has no source.spm, target.spm and vocab.json, so texts cannot be read; add them")
    experiment = Experiment(name=Path(folder).name, data=DataConfig(), model=config, train=TrainConfig(epochs=1))
    return Loaded(model, tokenisers, experiment)


def to_hf(loaded: Loaded, folder: Path | str) -> None:
    """Write a MarianMT folder; what Marian cannot express is refused."""
    from headwise.blocks.stack import EncoderDecoder
    from headwise.errors import UserError
    from headwise.interop.marian import export_marian
    from headwise.models.transformer import TransformerConfig

    config = loaded.experiment.model
    if not (isinstance(loaded.model, EncoderDecoder) and isinstance(config, TransformerConfig)):
        raise UserError("only a single Transformer can become a Marian folder; name one run of that kind")
    export_marian(loaded.model, config, loaded.tokenisers, folder)
