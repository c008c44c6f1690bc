"""GGUF, the one-file format of llama.cpp (version 3; https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

Metadata, then the names, shapes and places of tensors, then their numbers, mostly in blocks of 32 with a scale each.
The file is mapped into memory; nothing in it is executed.

Letters: N blocks.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.errors import UserError

MAGIC, VERSIONS = b"GGUF", (2, 3)
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
BLOCK = 32  # numbers that share a scale


def plain(dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda data: data.view(dtype).astype(np.float32)


def brain(data: np.ndarray) -> np.ndarray:
    """bfloat16: the upper half of a float32."""
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)


def eights(data: np.ndarray) -> np.ndarray:
    """Q8_0: scale * byte."""
    blocks = data.reshape(-1, 2 + BLOCK)
    return blocks[:, :2].copy().view("<f2").astype(np.float32) * blocks[:, 2:].view(np.int8)


def nibbles(packed: np.ndarray) -> np.ndarray:
    """The lower halves of 16 bytes, then their upper halves: (N, 16) -> (N, 32)."""
    return np.concatenate((packed & 15, packed >> 4), axis=1).astype(np.float32)


def fours(data: np.ndarray) -> np.ndarray:
    """Q4_0: scale * (nibble - 8)."""
    blocks = data.reshape(-1, 2 + BLOCK // 2)
    return blocks[:, :2].copy().view("<f2").astype(np.float32) * (nibbles(blocks[:, 2:]) - 8)


def shifted_fours(data: np.ndarray) -> np.ndarray:
    """Q4_1: scale * nibble + least."""
    blocks = data.reshape(-1, 4 + BLOCK // 2)
    scale, least = blocks[:, :4].copy().view("<f2").astype(np.float32).T[..., None]  # (N, 2) -> 2 x (N, 1)
    return scale * nibbles(blocks[:, 4:]) + least


@dataclass(frozen=True)
class Kind:
    """How numbers are stored: so many in so many bytes."""

    name: str
    numbers: int
    bytes: int
    read: Callable[[np.ndarray], np.ndarray]


KINDS = {
    0: Kind("F32", 1, 4, plain("<f4")),
    1: Kind("F16", 1, 2, plain("<f2")),
    2: Kind("Q4_0", BLOCK, 18, fours),
    3: Kind("Q4_1", BLOCK, 20, shifted_fours),
    8: Kind("Q8_0", BLOCK, 34, eights),
    30: Kind("BF16", 1, 2, brain),
}


@dataclass(frozen=True)
class Stored:
    """Where a tensor is."""

    shape: tuple[int, ...]
    kind: int
    start: int


class Gguf:
    """The metadata and the tensors of a file."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with path.open("rb") as file:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}); name a GGUF file") from None
        self.place = 4
        if self.data[:4] != MAGIC or (version := self._number("I")) not in VERSIONS:
            raise UserError(f"{path}: is no GGUF file of version 2 or 3; fetch it again or convert it anew")
        try:
            count, facts = self._number("Q"), self._number("Q")
            self.facts: dict[str, Any] = {self._string(): self._value(self._number("I")) for _ in range(facts)}
            found = [(self._string(), *self._info()) for _ in range(count)]
        except (struct.error, KeyError, UnicodeDecodeError):
            raise UserError(f"{path}: is damaged in its first part (version {version}); fetch it again") from None
        align = int(self.facts.get("general.alignment", 32))
        start = -(-self.place // align) * align
        self.stored = {name: Stored(shape, kind, start + offset) for name, shape, kind, offset in found}

    def fact(self, key: str, default: Any = None) -> Any:
        """One of the facts, where there is no default a needed one."""
        if key not in self.facts and default is None:
            raise UserError(f"{self.path}: does not say {key}; convert the model anew with llama.cpp")
        return self.facts.get(key, default)

    def tensor(self, name: str) -> Tensor:
        """A tensor as float32."""
        stored = self.stored[name]
        kind = KINDS.get(stored.kind)
        if kind is None:
            known = ", ".join(each.name for each in KINDS.values())
            raise UserError(
                f"{self.path}: {name} is stored in a way (number {stored.kind}) that is not read; of {known}"
            )
        size = prod(stored.shape) // kind.numbers * kind.bytes
        if stored.start + size > len(self.data):
            raise UserError(f"{self.path}: ends before {name} does; fetch it again")
        data = np.frombuffer(self.data, np.uint8, size, stored.start)
        return torch.from_numpy(kind.read(data).reshape(stored.shape))

    def _number(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self.data, self.place)
        self.place += struct.calcsize(f"<{code}")
        return value

    def _string(self) -> str:
        length = self._number("Q")
        self.place += length
        return self.data[self.place - length : self.place].decode()

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            inner, count = self._number("I"), self._number("Q")
            return [self._value(inner) for _ in range(count)]
        return self._number(NUMBERS[kind])

    def _info(self) -> tuple[tuple[int, ...], int, int]:
        """Shape, with the axis first that changes slowest; kind; place among the tensors."""
        shape = tuple(self._number("Q") for _ in range(self._number("I")))[::-1]
        return shape, self._number("I"), self._number("Q")
