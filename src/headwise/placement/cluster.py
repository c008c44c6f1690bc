"""Equal devices with links: how fast they compute, how much they hold, how fast they send to each other.

The defaults are those of an NVIDIA P100, on which GO was measured, behind PCI Express: 9.3 TFLOP/s in single precision
of which half is reached, 732 GB/s of memory, 16 GB, 12 GB/s and 10 microseconds a transfer, 5 a kernel.
"""

from __future__ import annotations

import re

import numpy as np
from pydantic import Field

from headwise.config.base import Config
from headwise.errors import UserError

UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
NUMBER = r"(\d+(?:\.\d+)?)\s*"


class Cluster(Config):
    """Equal devices, with a link of its own from each to each other."""

    devices: int = Field(0, ge=0, le=1024)  # 0: as many as the graph names
    memory: float = Field(16e9, gt=0)  # bytes of each device
    flops: float = Field(4.65e12, gt=0)  # floating-point operations a second
    memory_bandwidth: float = Field(732e9, gt=0)  # bytes a second that an operator reads and writes
    overhead: float = Field(5e-6, ge=0)  # seconds to start an operator
    bandwidth: float = Field(12e9, gt=0)  # bytes a second of a link, in each direction
    latency: float = Field(10e-6, ge=0)  # seconds before a transfer's first byte
    states: int = Field(4, ge=1)  # copies of parameters while training: weights, gradients, two moments of Adam

    def time_operators(self, flops: np.ndarray, moved: np.ndarray) -> np.ndarray:
        """Seconds of operators that compute `flops` and move `moved` bytes: the slower of both (roofline model)."""
        seconds: np.ndarray = self.overhead + np.maximum(flops / self.flops, moved / self.memory_bandwidth)
        return seconds

    def time_transfer(self, size: float) -> float:
        """Seconds to send so many bytes to another device."""
        return self.latency + size / self.bandwidth


def parse_bytes(text: str, place: str) -> float:
    """
    >>> parse_bytes("16GB", "--memory"), parse_bytes("1.5 GiB", "--memory")
    (16000000000.0, 1610612736.0)
    """
    match = re.fullmatch(NUMBER + r"([kKMGTP]?|[KMGTP]i)B", text.strip())
    value = float(match[1]) * {**UNITS, **BINARY}[match[2]] if match else 0.0
    if not 0 < value < 1e18:
        raise UserError(f"{place}: '{text}' is no size of memory; write it as 16GB, 512MB or 16GiB")
    return value


def parse_link(text: str, place: str) -> dict[str, float]:
    """The settings of links: bytes a second, and seconds of latency if they are given.

    >>> parse_link("50GB/s", "--links"), parse_link("12GB/s,1ms", "--links")
    ({'bandwidth': 50000000000.0}, {'bandwidth': 12000000000.0, 'latency': 0.001})
    """
    rate, _, delay = text.partition(",")
    match = re.fullmatch(NUMBER + r"(ns|us|µs|ms|s)", delay.strip()) if delay else None
    try:
        if not rate.strip().endswith("/s") or (delay and not match):
            raise UserError("")
        bandwidth = parse_bytes(rate.strip().removesuffix("/s"), place)
    except UserError:
        raise UserError(f"{place}: '{text}' is no speed of links; write it as 12GB/s, or 12GB/s,10us") from None
    return {"bandwidth": bandwidth} | ({"latency": float(match[1]) * SECONDS[match[2]]} if match else {})


def format_bytes(value: float) -> str:
    """
    >>> format_bytes(15.5e9), format_bytes(1200)
    ('15.5 GB', '1.2 kB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.4g} TB"
