"""The files of a folder: JSON, and safetensors that are mapped into memory and read one tensor at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from headwise.errors import UserError
from headwise.interop.folders import read_json

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
OLD = {"gamma": "weight", "beta": "bias"}
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class Weights:
    """Tensors by name, each read when it is asked for."""

    where: str
    readers: Mapping[str, Callable[[], Tensor]]

    @property
    def names(self) -> list[str]:
        return list(self.readers)

    def __getitem__(self, name: str) -> Tensor:
        return self.readers[name]()

    def under(self, stem: str) -> Weights:
        """The same with whole names: a base model that was saved alone leaves out its stem."""
        if not stem or any(name.startswith(stem) for name in self.readers):
            return self
        return Weights(self.where, {f"{stem}{name}": reader for name, reader in self.readers.items()})


def open_weights(folder: Path) -> Weights:
    """The weights of a folder, in one file or in several with an index."""
    if (folder / INDEX).is_file():
        shards = read_json(folder / INDEX).get("weight_map")
        if not isinstance(shards, dict) or any(Path(str(name)).name != name for name in shards.values()):
            raise UserError(f"{folder / INDEX}: must map tensors to files of this folder; fetch it again")
        files = [folder / name for name in sorted(set(shards.values()))]
        return Weights(str(folder / INDEX), {name: read for file in files for name, read in _readers(file).items()})
    if (folder / WEIGHTS).is_file():
        return Weights(str(folder / WEIGHTS), _readers(folder / WEIGHTS))
    for pattern in PICKLES:
        for file in folder.glob(pattern):
            raise UserError(
                f"{file}: is a pickle, which could run code, and is not read; if you trust it, convert it once: "
                f"AutoModel.from_pretrained('{folder}').save_pretrained('NEW_FOLDER') with the model's own class in "
                "transformers"
            )
    raise UserError(f"{folder}: has no {WEIGHTS}; name the folder of a model")


def modern(name: str) -> str:
    """The name that a tensor has today: the first BERTs called the weights of their norms otherwise.

    >>> modern("bert.embeddings.LayerNorm.gamma")
    'bert.embeddings.LayerNorm.weight'
    """
    stem, _, leaf = name.rpartition(".")
    return f"{stem}.{OLD[leaf]}" if leaf in OLD else name


def _readers(file: Path) -> dict[str, Callable[[], Tensor]]:
    try:
        opened: Any = safe_open(file, framework="pt")
        return {modern(name): partial(opened.get_tensor, name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file}: cannot be read ({error}); fetch it again") from None
