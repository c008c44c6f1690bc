"""The checkpoint of a folder: safetensors, one file or several shards, memory-mapped one tensor at a time.

The format (https://github.com/huggingface/safetensors): 8 bytes with the length of a JSON header, the header (tensor ->
dtype, shape, first and last byte), then the tensors. It is read here instead of with the package `safetensors`, which
maps a whole file at once: every page that was read then stays resident, beside the copies of the weights in the model.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.utils.files import open_regular, parse_json

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LEGACY_LEAVES = {"gamma": "weight", "beta": "bias"}
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
UNQUANTISED = "take a checkpoint that is not quantised"
LENGTH_BYTES = 8
MAX_HEADER = 16 * 2**20  # bytes
MAX_TENSORS = 50_000
CHUNK = 2**20  # bytes of a tensor that is read in parts
WEIGHT_DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
DTYPES = {**WEIGHT_DTYPES, "I64": torch.int64}  # integers: the counts of batch norms
READ_DTYPES = {  # of any tensor, such as masks, position ids and the counts of n-grams
    **DTYPES, "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "U16": torch.uint16,
    "I32": torch.int32, "U32": torch.uint32, "U64": torch.uint64, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
ITEM_SIZES = {name: dtype.itemsize for name, dtype in READ_DTYPES.items()}  # bytes of an element


class TensorInfo(NamedTuple):
    """What the header says of a tensor."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class LazyStateDict:
    """A state dict whose tensors are read when they are accessed. `info` has their dtypes and shapes; it is empty
    where these were compared elsewhere (GGUF)."""

    where: str  # the file, for error messages
    readers: Mapping[str, Callable[[], Tensor]]
    info: Mapping[str, TensorInfo] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return list(self.readers)

    def __getitem__(self, name: str) -> Tensor:
        return self.readers[name]()

    def iterate_rows(self, name: str) -> Iterator[Tensor]:
        """The rows of a tensor in order, a megabyte at a time; all at once where they are not in a file."""
        reader = self.readers[name]
        if not isinstance(reader, TensorReader) or not reader.info.shape:
            yield reader()
            return
        rows = reader.info.shape[0]
        step = max(1, CHUNK * rows // max(1, reader.size))
        yield from (reader.read_rows(first, min(first + step, rows)) for first in range(0, rows, step))

    def are_equal(self, one: str, other: str) -> bool:
        """Whether two tensors have the same values; they are compared in parts, as both may be large."""
        if self.info.get(one) != self.info.get(other):
            return False
        return one == other or all(map(torch.equal, self.iterate_rows(one), self.iterate_rows(other)))

    def rename(self, names: Mapping[str, str]) -> LazyStateDict:
        """The same under other names: new name -> old name."""
        info = {new: self.info[old] for new, old in names.items() if old in self.info}
        return LazyStateDict(self.where, {new: self.readers[old] for new, old in names.items()}, info)

    def add_prefix(self, prefix: str) -> LazyStateDict:
        """The same with the base model's prefix, which a base model that was saved alone leaves out."""
        if not prefix or any(name.startswith(prefix) for name in self.readers):
            return self
        return self.rename({f"{prefix}{name}": name for name in self.readers})


def open_state_dict(folder: Path) -> LazyStateDict:
    """Open the checkpoint of a folder: one file or, where there is none, shards with an index."""
    if (folder / WEIGHTS).is_file():
        return open_safetensors(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _open_shards(folder)
    for pattern in PICKLES:
        for file in folder.glob(pattern):
            raise UserError(
                f"{file}: is a pickle, which could run code, and is not read; if you trust it, convert it once: "
                f"AutoModel.from_pretrained('{folder}').save_pretrained('NEW_FOLDER') with the model's own class in "
                "transformers"
            )
    raise UserError(f"{folder}: has no {WEIGHTS}; name the folder of a model")


def _open_shards(folder: Path) -> LazyStateDict:
    """Open the files that an index names. Of a tensor in two of them, transformers reads the last, not the one that the
    index says: it is refused."""
    index = read_json(folder / INDEX).get("weight_map")
    if not isinstance(index, dict) or any(Path(str(file)).name != file for file in index.values()):
        raise UserError(f"{folder / INDEX}: must map tensors to files of this folder; fetch it again")
    shards = {file: open_safetensors(folder / file) for file in sorted(set(index.values()))}
    readers: dict[str, Callable[[], Tensor]] = {}
    info: dict[str, TensorInfo] = {}
    for name, file in index.items():
        current = modernise_name(name)
        if current not in shards[file].readers:
            raise UserError(f"{folder / INDEX}: {file} has no {name:.200}; fetch both again")
        readers[current], info[current] = shards[file].readers[current], shards[file].info[current]
    for file, shard in shards.items():
        if unlisted := [name for name, reader in shard.readers.items() if readers.get(name) is not reader]:
            raise UserError(f"{folder / INDEX}: does not list {min(unlisted):.200} of {file}; fetch both again")
    return LazyStateDict(str(folder / INDEX), readers, info)


def modernise_name(name: str) -> str:
    """The current name of a tensor: the first BERT checkpoints have TensorFlow's names in their layer norms.

    >>> modernise_name("bert.embeddings.LayerNorm.gamma")
    'bert.embeddings.LayerNorm.weight'
    """
    module, _, leaf = name.rpartition(".")
    return f"{module}.{LEGACY_LEAVES[leaf]}" if leaf in LEGACY_LEAVES else name


def open_safetensors(file: Path) -> LazyStateDict:
    """Read the header of a file, and check it against the file's size."""
    try:
        with os.fdopen(open_regular(file), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
            start = LENGTH_BYTES + length
            if start > size:
                raise ValueError("it ends before its header does")
            if length > MAX_HEADER:
                raise ValueError(f"its header has {length:,} bytes, more than {MAX_HEADER:,}")
            header = parse_json(stream.read(length).decode("utf-8"))
        return _read_header(file, header, start, size)
    except UserError:
        raise
    except (ValueError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{file}: cannot be read ({reason}); fetch it again") from None


def _read_header(file: Path, header: Any, start: int, size: int) -> LazyStateDict:
    """The tensors of a header; raises ValueError."""
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    if len(header) > MAX_TENSORS:
        raise ValueError(f"it has {len(header):,} tensors, more than {MAX_TENSORS:,}")
    readers: dict[str, TensorReader] = {}
    info: dict[str, TensorInfo] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        values: list[Any] = [entry.get(key) if isinstance(entry, dict) else None for key in _KEYS]
        dtype, shape, offsets = values
        if isinstance(dtype, str) and dtype not in ITEM_SIZES:
            raise UserError(f"{file}: {name:.200} has the unknown dtype {dtype:.20}; {UNQUANTISED}")
        if (
            not isinstance(dtype, str)
            or dtype not in ITEM_SIZES
            or not _are_sizes(shape)
            or not _are_sizes(offsets)
            or len(offsets) != 2
        ):
            raise ValueError(f"its header does not describe {name:.200}")
        first, last = start + offsets[0], start + offsets[1]
        if last > size or last - first != math.prod(shape) * ITEM_SIZES[dtype]:
            raise ValueError(f"{name:.200} is not where its header says")
        current = modernise_name(name)
        info[current] = TensorInfo(dtype, tuple(shape))
        readers[current] = TensorReader(file, current, info[current], first)
    _check_contiguous(readers, start)
    return LazyStateDict(str(file), readers, info)


def _check_contiguous(readers: Mapping[str, TensorReader], start: int) -> None:
    """Refuse tensors that overlap or leave gaps, as the format does; raises ValueError."""
    for reader in sorted(readers.values(), key=lambda reader: (reader.offset, reader.size)):
        if reader.offset != start:
            raise ValueError(f"{reader.name:.200} does not begin where the tensor before it ends")
        start += reader.size


_KEYS = ("dtype", "shape", "data_offsets")


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


@dataclass(frozen=True)
class TensorReader:
    """Maps one tensor of a file, or some of its rows, into memory; the mapping lasts as long as the tensor."""

    file: Path
    name: str
    info: TensorInfo
    offset: int  # of its first byte in the file

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.info.shape) * ITEM_SIZES[self.info.dtype]

    def __call__(self) -> Tensor:
        return self._map(0, self.info.shape)

    def read_rows(self, first: int, last: int) -> Tensor:
        """Some rows, which alone are mapped."""
        row = self.info.shape[1:]
        return self._map(first * math.prod(row) * ITEM_SIZES[self.info.dtype], (last - first, *row))

    def _map(self, start: int, shape: tuple[int, ...]) -> Tensor:
        """A tensor of this shape, `start` bytes after the first."""
        dtype, count = READ_DTYPES[self.info.dtype], math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        offset = self.offset + start
        skipped = offset % mmap.ALLOCATIONGRANULARITY
        try:
            with os.fdopen(open_regular(self.file), "rb") as stream:
                pages = mmap.mmap(
                    stream.fileno(),
                    skipped + count * dtype.itemsize,
                    access=mmap.ACCESS_COPY,  # torch warns of read-only memory
                    offset=offset - skipped,
                )
        except (OSError, ValueError) as error:
            raise UserError(f"{self.file}: {self.name} cannot be read ({error}); fetch it again") from None
        if offset % dtype.itemsize:  # headers of old files have any length
            content = torch.frombuffer(pages, dtype=torch.uint8, count=count * dtype.itemsize, offset=skipped)
            return content.clone().view(dtype).view(shape)
        return torch.frombuffer(pages, dtype=dtype, count=count, offset=skipped).view(shape)
