"""Dequantisation of GGUF tensors: the block formats of ggml (https://github.com/ggml-org/ggml, ggml-common.h).

A block holds 32 numbers with one scale, or, in the K formats, 256 numbers in sub-blocks: Q4_K and Q5_K have 8 of 32,
each with a 6-bit scale and a 6-bit minimum, Q6_K has 16 of 16, each with an 8-bit scale. Operations and their order are
those of the package `gguf`, so that results are equal bit by bit.

Letters: N blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Bytes = np.ndarray  # uint8
Floats = np.ndarray  # float32
BLOCK, K_BLOCK = 32, 256  # numbers in a block


def read_halves(data: Bytes) -> Floats:
    """(N, 2k) bytes -> (N, k) numbers stored as float16."""
    return np.ascontiguousarray(data).view("<f2").astype(np.float32)


def unpack_nibbles(packed: Bytes, group: int) -> Bytes:
    """Groups of bytes: the lower halves of a group, then its upper halves. (N, n) -> (N, 2n)."""
    groups = packed.reshape(len(packed), -1, 1, group)  # (N, n / group, 1, group)
    shifts = np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    return (groups >> shifts & 15).reshape(len(packed), -1)


def unpack_bits(packed: Bytes, width: int, group: int) -> Bytes:
    """Groups of bytes: the lowest `width` bits of a group, then the next ones. (N, n) -> (N, 8n / width)."""
    groups = packed.reshape(len(packed), -1, 1, group)  # (N, n / group, 1, group)
    shifts = np.arange(0, 8, width, dtype=np.uint8).reshape(1, 1, -1, 1)
    return (groups >> shifts & (2**width - 1)).reshape(len(packed), -1)


def unpack_scales(packed: Bytes) -> tuple[Floats, Floats]:
    """The 6-bit scales and minima of Q4_K and Q5_K: (N, 12) -> 2 x (N, 8).

    Bytes 0 to 3 and 4 to 7 have the first four scales and minima in their lower 6 bits; bytes 8 to 11 have the lower 4
    bits of the last four, whose upper 2 bits are the upper bits of bytes 0 to 7.
    """
    scales, minima, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    last_scales, last_minima = rest & 15 | scales >> 6 << 4, rest >> 4 | minima >> 6 << 4
    return (
        np.concatenate((scales & 63, last_scales), axis=1).astype(np.float32),
        np.concatenate((minima & 63, last_minima), axis=1).astype(np.float32),
    )


def read_float32(data: Bytes) -> Floats:
    return data.view("<f4").astype(np.float32)


def read_float16(data: Bytes) -> Floats:
    return data.view("<f2").astype(np.float32)


def read_bfloat16(data: Bytes) -> Floats:
    """bfloat16 is the upper half of a float32."""
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)


def dequantise_q4_0(data: Bytes) -> Floats:
    """scale * (nibble - 8)."""
    blocks = data.reshape(-1, 2 + 16)
    numbers = unpack_nibbles(blocks[:, 2:], 16).astype(np.float32)
    return read_halves(blocks[:, :2]) * (numbers - 8)


def dequantise_q4_1(data: Bytes) -> Floats:
    """scale * nibble + minimum."""
    blocks = data.reshape(-1, 4 + 16)
    scale, minimum = np.hsplit(read_halves(blocks[:, :4]), 2)
    return scale * unpack_nibbles(blocks[:, 4:], 16).astype(np.float32) + minimum


def unpack_five_bits(high: Bytes, low: Bytes) -> Floats:
    """Fifth bits (N, 4) in the order of the numbers, nibbles (N, 16) -> (N, 32) from 0 to 31."""
    fifth = np.unpackbits(high, axis=1, bitorder="little")
    return (unpack_nibbles(low, 16) | fifth << 4).astype(np.float32)


def dequantise_q5_0(data: Bytes) -> Floats:
    """scale * (number - 16)."""
    blocks = data.reshape(-1, 2 + 4 + 16)
    return read_halves(blocks[:, :2]) * (unpack_five_bits(blocks[:, 2:6], blocks[:, 6:]) - 16)


def dequantise_q5_1(data: Bytes) -> Floats:
    """scale * number + minimum."""
    blocks = data.reshape(-1, 4 + 4 + 16)
    scale, minimum = np.hsplit(read_halves(blocks[:, :4]), 2)
    return scale * unpack_five_bits(blocks[:, 4:8], blocks[:, 8:]) + minimum


def dequantise_q8_0(data: Bytes) -> Floats:
    """scale * byte."""
    blocks = data.reshape(-1, 2 + BLOCK)
    return read_halves(blocks[:, :2]) * blocks[:, 2:].view(np.int8)


def scale_sub_blocks(header: Bytes, numbers: Bytes) -> Floats:
    """scale * number - minimum in 8 sub-blocks; header: the float16 scale of scales and of minima, then both packed."""
    scales, minima = unpack_scales(header[:, 4:])
    scale, minimum = np.hsplit(read_halves(header[:, :4]), 2)
    factor, offset = (scale * scales)[..., None], (minimum * minima)[..., None]  # (N, 8, 1)
    return factor * numbers.reshape(-1, 8, 32).astype(np.float32) - offset


def dequantise_q4_k(data: Bytes) -> Floats:
    blocks = data.reshape(-1, 16 + 128)
    return scale_sub_blocks(blocks[:, :16], unpack_nibbles(blocks[:, 16:], 32))


def dequantise_q5_k(data: Bytes) -> Floats:
    blocks = data.reshape(-1, 16 + 32 + 128)
    fifth = unpack_bits(blocks[:, 16:48], 1, 32)
    return scale_sub_blocks(blocks[:, :16], unpack_nibbles(blocks[:, 48:], 32) | fifth << 4)


def dequantise_q6_k(data: Bytes) -> Floats:
    """scale * sub-scale * (number - 32)."""
    blocks = data.reshape(-1, 128 + 64 + 16 + 2)
    upper = unpack_bits(blocks[:, 128:192], 2, 32)
    numbers = (unpack_nibbles(blocks[:, :128], 64) | upper << 4).astype(np.float32) - 32
    scales = read_halves(blocks[:, 208:]) * blocks[:, 192:208].view(np.int8).astype(np.float32)  # (N, 16)
    return scales[..., None] * numbers.reshape(-1, 16, 16)


@dataclass(frozen=True)
class TensorType:
    """A storage format: `numbers` in a block of `bytes`."""

    name: str
    numbers: int
    bytes: int
    dequantise: Callable[[Bytes], Floats]


TYPES = {
    0: TensorType("F32", 1, 4, read_float32),
    1: TensorType("F16", 1, 2, read_float16),
    2: TensorType("Q4_0", BLOCK, 18, dequantise_q4_0),
    3: TensorType("Q4_1", BLOCK, 20, dequantise_q4_1),
    6: TensorType("Q5_0", BLOCK, 22, dequantise_q5_0),
    7: TensorType("Q5_1", BLOCK, 24, dequantise_q5_1),
    8: TensorType("Q8_0", BLOCK, 34, dequantise_q8_0),
    12: TensorType("Q4_K", K_BLOCK, 144, dequantise_q4_k),
    13: TensorType("Q5_K", K_BLOCK, 176, dequantise_q5_k),
    14: TensorType("Q6_K", K_BLOCK, 210, dequantise_q6_k),
    30: TensorType("BF16", 1, 2, read_bfloat16),
}
