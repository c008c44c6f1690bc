"""Other programs' models in and out: Hugging Face folders, GGUF files, CTranslate2, ARPA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel


def from_hf(folder: Path | str) -> TrainedModel:
    """The model and the tokenisers of a folder: `headwise.from_hf("gpt2").generate(["Once upon a time"])`."""
    from headwise.interop.hf.read import read_folder
    from headwise.interop.ready import ready

    return ready(read_folder(folder), Path(folder))


def to_hf(loaded: TrainedModel, folder: Path | str) -> None:
    """Write a folder that `transformers` loads; what no architecture there can say is refused."""
    from headwise.interop.ready import write

    write(loaded, folder)


def from_gguf(file: Path | str) -> TrainedModel:
    """The model and the tokeniser of a GGUF file."""
    from headwise.interop.gguf_llama import read_gguf
    from headwise.interop.ready import ready

    return ready(read_gguf(Path(file)), Path(file))


def from_arpa(file: Path | str) -> TrainedModel:
    """The n-grams of an ARPA file."""
    from headwise.interop.arpa import import_arpa

    return import_arpa(Path(file))
