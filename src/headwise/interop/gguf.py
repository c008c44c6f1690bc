"""Read GGUF, the one-file format of llama.cpp (version 3; https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

A header, metadata, a table of tensor names, shapes and offsets, then the tensors, mostly quantised (gguf_quants.py).
The file is memory-mapped; nothing in it is executed. It may be damaged or hostile: every size in it is compared with
the file's size before anything of that size is read or allocated.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.errors import UserError
from headwise.interop.gguf_quants import TYPES, TensorType
from headwise.utils.files import open_regular

MAGIC, VERSIONS = b"GGUF", (2, 3)
NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
TEXT, ARRAY = 8, 9
MAX_DIMENSIONS = 4
MAX_NAME = 255  # characters of a key, a tensor name or a setting
MAX_TEXTS = 2**20  # in one array; the largest vocabularies have half as many merges
MAX_ENTRIES = 2**15  # metadata keys, and tensors; the largest models have some thousand tensors
# Bytes that the shortest entry takes: a key without letters and a value of one byte; a name and no dimension.
MIN_METADATA, MIN_TENSOR_INFO = 8 + 4 + 1, 8 + 4 + 4 + 8
DEFAULT_ALIGNMENT = 32
UINT64 = struct.Struct("<Q")
DAMAGED = "fetch it again"


class Cursor:
    """A position in the bytes of a file; reading beyond the end is a `UserError`."""

    def __init__(self, path: Path, data: mmap.mmap):
        self.path, self.data, self.position = path, data, 0

    def fail(self, problem: str) -> UserError:
        return UserError(f"{self.path}: {problem}; {DAMAGED}")

    def take(self, size: int, what: str) -> int:
        """Advance by `size` bytes; the position before them."""
        start = self.position
        if size > len(self.data) - start:
            raise self.fail(f"ends within {what}, which has {size:,} bytes from byte {start:,} on")
        self.position += size
        return start

    def read_uint32(self, what: str) -> int:
        return int(struct.unpack_from("<I", self.data, self.take(4, what))[0])

    def read_uint64(self, what: str) -> int:
        return int(UINT64.unpack_from(self.data, self.take(8, what))[0])

    def read_count(self, what: str, min_bytes: int, limit: int | None = None) -> int:
        """A number of entries that each take at least `min_bytes`."""
        count = self.read_uint64(what)
        if count * min_bytes > len(self.data) - self.position:
            raise self.fail(f"has no room for {what} of {count:,}")
        if limit is not None and count > limit:
            raise self.fail(f"{what} has {count:,} entries, more than the {limit:,} that are supported")
        return count

    def read_text(self, what: str) -> str:
        size = self.read_uint64(what)
        start = self.take(size, what)
        try:
            return self.data[start : start + size].decode()
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not UTF-8") from None

    def read_texts(self, what: str, count: int) -> list[str]:
        """Many texts: `read_text` without a call for each of them."""
        data, position, end, texts = self.data, self.position, len(self.data), []
        for _ in range(count):
            if position + 8 > end:
                break
            start = position + 8
            position = start + UINT64.unpack_from(data, position)[0]
            if position > end:
                break
            texts.append(data[start:position])
        if len(texts) < count:
            raise self.fail(f"ends within text {len(texts):,} of {what}")
        self.position = position
        try:
            return [text.decode() for text in texts]
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not UTF-8") from None

    def read_name(self, what: str) -> str:
        """A metadata key or a tensor name, which error messages repeat."""
        name = self.read_text(what)
        if len(name) > MAX_NAME or not name.isprintable():
            raise self.fail(f"{what} has {len(name):,} characters or unprintable ones")
        return name

    def read_numbers(self, code: int, count: int, what: str) -> np.ndarray:
        dtype = np.dtype(NUMBERS[code])
        start = self.take(count * dtype.itemsize, what)
        return np.frombuffer(self.data, dtype, count, start)

    def read_value(self, key: str) -> Any:
        """A metadata value: a number, a text, a list of texts, or an array of numbers."""
        code = self.read_uint32(key)
        if code == TEXT:
            return self.read_text(key)
        if code in NUMBERS:
            return self.read_numbers(code, 1, key)[0].item()
        if code != ARRAY:
            raise self.fail(f"{key} has the unknown type {code}")
        code = self.read_uint32(key)
        if code in NUMBERS:
            return self.read_numbers(code, self.read_count(key, np.dtype(NUMBERS[code]).itemsize), key)
        if code != TEXT:
            raise self.fail(f"{key} is an array of type {code}; only numbers and texts are supported")
        return self.read_texts(key, self.read_count(key, 8, MAX_TEXTS))


@dataclass(frozen=True)
class TensorInfo:
    """The shape of a tensor, its storage format and its place in the file."""

    shape: tuple[int, ...]  # outermost axis first, as in PyTorch
    type: TensorType
    start: int
    size: int  # bytes


class GgufFile:
    """The metadata and the tensors of a file."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with os.fdopen(open_regular(path), "rb") as file:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}); name a GGUF file") from None
        cursor = Cursor(path, self.data)
        if self.data[:4] != MAGIC:
            raise UserError(f"{path}: is no GGUF file; name one, or fetch it again")
        cursor.take(4, "the header")
        version = cursor.read_uint32("the header")
        if version not in VERSIONS:
            order = "big-endian" if version >= 2**16 else f"version {version}"
            raise UserError(f"{path}: is GGUF of {order}, only version 2 and 3 are read; convert the model anew")
        tensor_count = cursor.read_count("the table of tensors", MIN_TENSOR_INFO, MAX_ENTRIES)
        self.metadata = self._read_metadata(cursor)
        self.tensors = self._read_tensor_infos(cursor, tensor_count)

    def _read_metadata(self, cursor: Cursor) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for _ in range(cursor.read_count("the metadata", MIN_METADATA, MAX_ENTRIES)):
            key = cursor.read_name("a metadata key")
            if key in metadata:
                raise cursor.fail(f"has the metadata key {key!r} twice")
            metadata[key] = cursor.read_value(key)
        return metadata

    def _read_tensor_infos(self, cursor: Cursor, count: int) -> dict[str, TensorInfo]:
        entries: dict[str, tuple[tuple[int, ...], TensorType, int]] = {}
        for _ in range(count):
            name = cursor.read_name("a tensor name")
            if name in entries:
                raise cursor.fail(f"has the tensor {name!r} twice")
            entries[name] = self._read_entry(cursor, name)
        alignment = self.get_int("general.alignment", DEFAULT_ALIGNMENT)
        if alignment & (alignment - 1):
            raise UserError(f"{self.path}: general.alignment is {alignment}, no power of two; {DAMAGED}")
        data_start = -(-cursor.position // alignment) * alignment
        infos = {}
        for name, (shape, tensor_type, offset) in entries.items():
            if offset % alignment:
                raise cursor.fail(f"{name} begins at byte {offset:,} of the data, no multiple of {alignment}")
            size = math.prod(shape) // tensor_type.numbers * tensor_type.bytes
            if data_start + offset + size > len(self.data):
                raise cursor.fail(f"ends before {name} does")
            infos[name] = TensorInfo(shape, tensor_type, data_start + offset, size)
        self._check_overlaps(infos)
        return infos

    def _read_entry(self, cursor: Cursor, name: str) -> tuple[tuple[int, ...], TensorType, int]:
        """Shape, type and offset of a tensor."""
        dimensions = cursor.read_uint32(name)
        if not 0 < dimensions <= MAX_DIMENSIONS:
            raise cursor.fail(f"{name} has {dimensions} dimensions, not 1 to {MAX_DIMENSIONS}")
        shape = tuple(cursor.read_uint64(name) for _ in range(dimensions))[::-1]
        code, offset = cursor.read_uint32(name), cursor.read_uint64(name)
        tensor_type = TYPES.get(code)
        if tensor_type is None:
            known = ", ".join(each.name for each in TYPES.values())
            raise UserError(f"{self.path}: {name} is stored as ggml type {code}, which is not read; convert to {known}")
        if not all(shape) or shape[-1] % tensor_type.numbers:
            raise cursor.fail(f"{name} is {shape}, which are no whole blocks of {tensor_type.name}")
        return shape, tensor_type, offset

    def _check_overlaps(self, infos: dict[str, TensorInfo]) -> None:
        ordered = sorted(infos.items(), key=lambda item: item[1].start)
        for (name, info), (next_name, next_info) in pairwise(ordered):
            if info.start + info.size > next_info.start:
                raise UserError(f"{self.path}: {name} and {next_name} overlap; {DAMAGED}")

    def get_value(self, key: str, default: Any = None) -> Any:
        """A metadata value; without a default it must exist."""
        if key not in self.metadata and default is None:
            raise UserError(f"{self.path}: has no {key}; convert the model anew with llama.cpp")
        return self.metadata.get(key, default)

    def get_int(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self.get_value(key, default)
        if type(value) is not int or value < least:
            raise self._describe_wrong(key, value, f"an integer from {least} on")
        return value

    def get_float(self, key: str, default: float | None = None) -> float:
        value = self.get_value(key, default)
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise self._describe_wrong(key, value, "a number above 0")
        return float(value)

    def get_bool(self, key: str, default: bool) -> bool:
        value = self.get_value(key, default)
        if type(value) is not bool:
            raise self._describe_wrong(key, value, "true or false")
        return value

    def get_text(self, key: str, default: str | None = None) -> str:
        value = self.get_value(key, default)
        if not isinstance(value, str) or len(value) > MAX_NAME or not value.isprintable():
            raise self._describe_wrong(key, value, "a short text")
        return value

    def get_texts(self, key: str) -> list[str]:
        value = self.get_value(key)
        if not isinstance(value, list):
            raise self._describe_wrong(key, value, "an array of texts")
        return value

    def _describe_wrong(self, key: str, value: Any, expected: str) -> UserError:
        shown = "an array" if isinstance(value, list | np.ndarray) else f"{value!r:.50}"
        return UserError(f"{self.path}: {key} is {shown}, not {expected}; convert the model anew with llama.cpp")

    def load_tensor(self, name: str) -> Tensor:
        """A tensor as float32."""
        info = self.tensors[name]
        stored = np.frombuffer(self.data, np.uint8, info.size, info.start)
        with np.errstate(all="ignore"):  # scales that are no numbers are reported below
            tensor = torch.from_numpy(info.type.dequantise(stored).reshape(info.shape))
        if not tensor.isfinite().all():
            raise UserError(f"{self.path}: {name} has values that are not finite; {DAMAGED}")
        return tensor
