"""Kinds of devices, from data sheets or measured on this machine."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from time import perf_counter
from typing import Any

import torch

from headwise.errors import UserError, nearest
from headwise.utils.cpu import count_cores, get_available_memory

HERE = "cpu"  # the kind that is measured
MATMUL_SHARE, MEMORY_SHARE, LINK_SHARE = 0.6, 0.8, 0.75  # of data sheets that well-written kernels reach
OVERHEAD = 3e-6  # seconds of the shortest operation on an accelerator, launched ahead of time
REPEATS = 5


@dataclass(frozen=True)
class Device:
    """One device and its place among others. Rates are those that programs reach, not those of the data sheet."""

    name: str
    memory: float  # bytes
    flops: Mapping[str, float]  # matrix products a second by precision
    batched_share: float  # of that rate in products of many small matrices, as in attention
    bandwidth: float  # bytes a second to memory
    overhead: float  # seconds that an operation takes at least
    link: float  # bytes a second to another device of the node
    network: float  # bytes a second to a device of another node
    node: int  # devices of a node

    def get_flops(self, precision: str) -> float:
        return self.flops.get(precision) or self.flops["float32"]

    def get_link(self, devices: int) -> float:
        """The slowest link in a ring of so many devices."""
        return self.link if devices <= self.node else min(self.link, self.network)


@cache
def read_devices() -> dict[str, dict[str, Any]]:
    """The data sheets by kind."""
    return tomllib.loads(resources.files("headwise.planning").joinpath("devices.toml").read_text("utf-8"))


def get_device(kind: str, precision: str = "float32") -> Device:
    """A device of this kind; `cpu` is one thread of this machine, measured."""
    if kind == HERE:
        return measure_cpu(precision)
    sheets = read_devices()
    if kind not in sheets:
        raise UserError(f"there is no data on devices of the kind '{kind}'; {nearest(kind, [HERE, *sheets])}")
    sheet = sheets[kind]
    return Device(
        name=sheet["name"],
        memory=sheet["memory"],
        flops={name: MATMUL_SHARE * rate for name, rate in sheet["flops"].items()},
        batched_share=0.5,
        bandwidth=MEMORY_SHARE * sheet["bandwidth"],
        overhead=OVERHEAD,
        link=LINK_SHARE * sheet["link"],
        network=LINK_SHARE * sheet["network"],
        node=int(sheet["node"]),
    )


def measure_cpu(precision: str = "float32") -> Device:
    """One thread of this machine: a matrix product, attention, a sum of two large tensors and one of two small ones."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        kind = getattr(torch, precision)
        matrix, weights = torch.rand(1024, 512).to(kind), torch.rand(512, 1024).to(kind)
        heads = torch.rand(8, 8, 128, 64).to(kind)
        large, small = torch.rand(8 * 2**20), torch.rand(8)
        products = 2 * 1024 * 512 * 1024 / measure(lambda: matrix @ weights)
        attention = (
            4
            * 64
            * 128
            * 128
            * 64
            / measure(lambda: torch.nn.functional.scaled_dot_product_attention(heads, heads, heads))
        )
        return Device(
            name="one thread of this machine",
            memory=get_available_memory() or 2**34,
            flops={precision: products, "float32": products},
            batched_share=attention / products,
            bandwidth=3 * large.nbytes / measure(lambda: torch.add(large, large, out=large)),
            overhead=measure(lambda: [small + small for _ in range(100)]) / 100,
            link=4e9,
            network=1e9,
            node=count_cores(),
        )
    finally:
        torch.set_num_threads(threads)


def measure(run: Callable[[], object]) -> float:
    """The median seconds of a few runs."""
    run()
    seconds = []
    for _ in range(REPEATS):
        start = perf_counter()
        run()
        seconds.append(perf_counter() - start)
    return sorted(seconds)[REPEATS // 2]
