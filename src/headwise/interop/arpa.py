"""Export n-gram models as ARPA files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwise.errors import UserError
from headwise.ngram.arpa import to_arpa
from headwise.ngram.backoff import Backoff

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel


def export_arpa(loaded: TrainedModel, path: Path) -> None:
    """Write the ARPA file of an n-gram run; any other model is refused."""
    if not isinstance(loaded.model, Backoff):
        raise UserError("--to arpa: only n-gram models can be written so; name a run of kind 'ngram'")
    if path.exists():
        raise UserError(f"{path}: exists already; choose another name")
    to_arpa(loaded.model, path, loaded.tokenisers.target.vocabulary)
