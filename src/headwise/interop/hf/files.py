"""The checkpoint of a folder: safetensors, one file or several shards, memory-mapped and read one tensor at a time."""

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
LEGACY_LEAVES = {"gamma": "weight", "beta": "bias"}
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class LazyStateDict:
    """A state dict whose tensors are read when they are accessed."""

    where: str  # the file, for error messages
    readers: Mapping[str, Callable[[], Tensor]]

    @property
    def names(self) -> list[str]:
        return list(self.readers)

    def __getitem__(self, name: str) -> Tensor:
        return self.readers[name]()

    def add_prefix(self, prefix: str) -> LazyStateDict:
        """The same with the base model's prefix, which a base model that was saved alone leaves out."""
        if not prefix or any(name.startswith(prefix) for name in self.readers):
            return self
        return LazyStateDict(self.where, {f"{prefix}{name}": reader for name, reader in self.readers.items()})

    def rename(self, names: Mapping[str, str]) -> LazyStateDict:
        """The same with other names for some tensors; a name that is there already stays."""
        readers = {
            new if (new := names.get(name, name)) not in self.readers else name: reader
            for name, reader in self.readers.items()
        }
        return LazyStateDict(self.where, readers)


def open_state_dict(folder: Path) -> LazyStateDict:
    """Open the checkpoint of a folder, one file or shards with an index."""
    if (folder / INDEX).is_file():
        shards = read_json(folder / INDEX).get("weight_map")
        if not isinstance(shards, dict) or any(Path(str(name)).name != name for name in shards.values()):
            raise UserError(f"{folder / INDEX}: must map tensors to files of this folder; fetch it again")
        files = [folder / name for name in sorted(set(shards.values()))]
        readers = {name: reader for file in files for name, reader in _open_shard(file).items()}
        return LazyStateDict(str(folder / INDEX), readers)
    if (folder / WEIGHTS).is_file():
        return LazyStateDict(str(folder / WEIGHTS), _open_shard(folder / WEIGHTS))
    for pattern in PICKLES:
        for file in folder.glob(pattern):
            raise UserError(
                f"{file}: is a pickle, which could run code, and is not read; if you trust it, convert it once: "
                f"AutoModel.from_pretrained('{folder}').save_pretrained('NEW_FOLDER') with the model's own class in "
                "transformers"
            )
    raise UserError(f"{folder}: has no {WEIGHTS}; name the folder of a model")


def modernise_name(name: str) -> str:
    """The current name of a tensor: the first BERT checkpoints have TensorFlow's names in their layer norms.

    >>> modernise_name("bert.embeddings.LayerNorm.gamma")
    'bert.embeddings.LayerNorm.weight'
    """
    module, _, leaf = name.rpartition(".")
    return f"{module}.{LEGACY_LEAVES[leaf]}" if leaf in LEGACY_LEAVES else name


def _open_shard(file: Path) -> dict[str, Callable[[], Tensor]]:
    try:
        shard: Any = safe_open(file, framework="pt")
        return {modernise_name(name): partial(shard.get_tensor, name) for name in shard.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file}: cannot be read ({error}); fetch it again") from None
