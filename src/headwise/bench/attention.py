"""Plain products against the fused kernel over length: what `auto` in blocks/kernels.py rests on."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from headwise.blocks.kernels import KERNELS
from headwise.blocks.look import Look, Sight
from headwise.blocks.terms import Causal

LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 256)


def compare(
    lengths: Sequence[int] = LENGTHS, tokens: int = 1024, heads: int = 8, head_width: int = 64, repeats: int = 9
) -> list[dict[str, float]]:
    """Milliseconds of a causal look, forward and backward, at `tokens` in all for each length."""
    rows = []
    for length in lengths:
        shape = (max(1, tokens // length), heads, length, head_width)
        q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
        times: dict[str, list[float]] = {"plain": [], "sdpa": []}
        for _ in range(repeats + 1):
            for kernel, seconds in times.items():
                seconds.append(once(kernel, q, k, v))
        row = {kernel: 1e3 * median(seconds[1:]) for kernel, seconds in times.items()}
        rows.append({"length": length, **row, "ratio": row["sdpa"] / row["plain"]})
    return rows


def once(kernel: str, q: Tensor, k: Tensor, v: Tensor) -> float:
    length = q.shape[2]
    begin = perf_counter()
    look = Look(q, k, v, q.shape[3] ** -0.5, Sight(length, length), (Causal(),))
    KERNELS[kernel](look).sum().backward()
    return perf_counter() - begin
