"""Recurrence against attention: sequential operations and wall time over the length of a sequence.

A recurrent layer of n tokens is a chain of n matrix products, each waiting for the one before; an attention layer has
four whatever n is: projections, scores, mixture, output (Vaswani et al. 2017, table 1, "sequential operations"). The
chain is counted on the autograd graph. In exchange attention does n² work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor

from headwise.bench.contest import Result
from headwise.blocks.attention.kernels import get_kernel
from headwise.blocks.attention.multihead import Attention
from headwise.blocks.mixers.recurrent import Elman, Lstm, Recurrent
from headwise.errors import UserError
from headwise.explain.chart import COLOURS, Chart, Line

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
PRODUCTS = ("AddmmBackward", "MmBackward", "BmmBackward")  # as torch's autograd calls matrix products

Layer = Recurrent | Attention
LAYERS: dict[str, Callable[[int], Layer]] = {
    "rnn": lambda width: Recurrent(width, Elman(width, width)),
    "lstm": lambda width: Recurrent(width, Lstm(width, width)),
    "attention": lambda width: Attention(width, heads=max(1, width // 64)),
}


@dataclass
class Timing(Result):
    """One layer (`engine`) at one length; `chain` counts the matrix products that depend on one another."""

    length: int = 0
    chain: int = 0

    @property
    def milliseconds(self) -> float:
        return 1e3 * median(self.seconds)


def measure(
    lengths: Sequence[int] = LENGTHS, width: int = 256, rows: int = 1, repeats: int = 5, device: str = "cpu"
) -> list[dict[str, Timing]]:
    """For each length, each layer by name. Repeats alternate between the layers; the first is a warm-up."""
    for name, value in (("repeats", repeats), ("rows", rows), ("width", width)):
        if value < 1:
            raise UserError(f"--{name} {value}: must be at least 1")
    if len(lengths) < 2 or min(lengths) < 2:
        raise UserError("--lengths: give at least two, each of 2 tokens or more")
    if width > 64 and width % (width // 64):
        raise UserError(f"--width {width}: cannot be divided into heads of about 64; give a multiple of 64")
    layers = {name: build(width).to(device) for name, build in LAYERS.items()}
    results = []
    for length in sorted(lengths):
        x = torch.randn(rows, length, width, device=device, requires_grad=True)
        row = {
            name: Timing(name, rows * length, length=length, chain=longest_chain(run_unfused(layer, x[:1])))
            for name, layer in layers.items()
        }
        for repeat in range(repeats + 1):
            for name, layer in layers.items():
                seconds, cpu = time_pass(layer, x)
                if repeat:
                    row[name].seconds.append(seconds)
                    row[name].cpu.append(cpu)
        results.append(row)
    return results


def time_pass(layer: Layer, x: Tensor) -> tuple[float, float]:
    """Wall time and CPU time in seconds of one forward and backward pass."""
    layer.zero_grad()
    start, cpu_start = perf_counter(), process_time()
    layer(x).sum().backward()
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return perf_counter() - start, process_time() - cpu_start


def run_unfused(layer: Layer, x: Tensor) -> Tensor:
    """The layer's last output computed by single operations, without fused kernels."""
    if isinstance(layer, Attention):
        plain = copy(layer)
        plain.kernel = get_kernel("plain")
        return plain(x)[:, -1]
    state = x.new_zeros(len(x), layer.ahead.state_width)
    for token in x.split(1, dim=1):  # (B, T, C) -> T x (B, 1, C)
        out, state = layer.ahead(token, state)
    return out


def longest_chain(output: Tensor, counted: Sequence[str] = PRODUCTS) -> int:
    """The largest number of counted operations on one path of the autograd graph: each of them depends on the one
    before.

    >>> x = torch.ones(2, 2, requires_grad=True)
    >>> longest_chain(x @ x @ x), longest_chain(x @ x + x @ x)
    (2, 1)
    """
    longest: dict[Any, int] = {}
    waiting: list[Any] = [output.grad_fn]
    while waiting:  # depth first without recursion: the graphs are deeper than Python's stack
        node = waiting[-1]
        before = [each for each, _ in node.next_functions if each is not None]
        unseen = [each for each in before if each not in longest]
        if unseen:
            waiting += unseen
            continue
        longest[node] = max((longest[each] for each in before), default=0) + node.name().startswith(tuple(counted))
        waiting.pop()
    return longest[output.grad_fn]


def build_chart(results: Sequence[Mapping[str, Timing]], title: str) -> Chart:
    """Wall time over length, both logarithmic; the label of each line has its chain at the largest length."""
    lengths = [row["attention"].length for row in results]
    lines = tuple(
        Line(
            f"{name}: {results[-1][name].chain:,} sequential products",
            lengths,
            [row[name].milliseconds for row in results],
            colour,
        )
        for colour, name in zip(COLOURS, LAYERS, strict=False)
    )
    return Chart(title, "length", "milliseconds, forward and backward", lines, log_x=True)
