"""ARPA files as runs, and runs as ARPA files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwise.config.experiment import Experiment
from headwise.config.tasks import LanguageModelConfig
from headwise.data.config import DataConfig
from headwise.errors import UserError
from headwise.models.ngram import BackoffConfig
from headwise.ngram.arpa import from_arpa, to_arpa
from headwise.ngram.backoff import Backoff
from headwise.text import SPECIALS
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Words
from headwise.train.config import TrainConfig

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel


def import_arpa(path: Path) -> TrainedModel:
    """The model of a file, with a tokeniser of its words; of characters, where all its words are single ones."""
    from headwise.inference.trained_model import TrainedModel

    model, vocabulary = from_arpa(path)
    units = vocabulary[len(SPECIALS) :]
    tokeniser = (Characters if all(len(unit) == 1 for unit in units) else Words)(units)
    experiment = Experiment(
        name=path.stem,
        task=LanguageModelConfig(),
        data=DataConfig(),
        model=BackoffConfig(order=model.order),
        train=TrainConfig(epochs=1),
    )
    return TrainedModel(model, Tokenisers(tokeniser, tokeniser), experiment)


def export_arpa(loaded: TrainedModel, path: Path) -> None:
    """Write an n-gram run; another model has no table of n-grams to write."""
    if not isinstance(loaded.model, Backoff):
        raise UserError("--to arpa: only n-gram models can be written so; name a run of kind 'ngram'")
    if path.exists():
        raise UserError(f"{path}: exists already; choose another name")
    to_arpa(loaded.model, path, loaded.tokenisers.target.vocabulary)
