"""What an image costs a Swin and a Vision Transformer, over its number of pixels.

    python benchmarks/swin.py
    python benchmarks/swin.py swin-t vit-s16 --sides 224 448 672 --repeats 5

Multiplications and additions (counted without computing them) and the processor time of one image without gradients,
on one thread; below them the exponents of the number of pixels that fit best.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

import headwise
from headwise.blocks.attention.kernels import plain
from headwise.blocks.attention.multihead import Attention


def operations(name: str, side: int) -> int:
    """Of one image, by the plain kernel: fused ones are not counted on every device."""
    model = headwise.build(name, outputs=10, image=side, channels=3, device="meta").eval()
    for part in model.modules():
        if isinstance(part, Attention):
            part.kernel = plain
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 3, side, side, device="meta"))
    return counter.get_total_flops()


@torch.inference_mode()
def seconds(name: str, side: int, repeats: int) -> float:
    model, image = headwise.build(name, outputs=10, image=side, channels=3).eval(), torch.randn(1, 3, side, side)
    model(image)
    found = []
    for _ in range(repeats):
        before = time.process_time()
        model(image)
        found.append(time.process_time() - before)
    return median(found)


def exponent(sides: list[int], costs: list[float]) -> float:
    return float(np.polyfit(2 * np.log(sides), np.log(costs), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["swin-t", "vit-s16"])
    parser.add_argument("--sides", type=int, nargs="+", default=[224, 448, 672])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.models:
        counted = [operations(name, side) for side in given.sides]
        timed = [seconds(name, side, given.repeats) for side in given.sides]
        for side, count, took in zip(given.sides, counted, timed, strict=True):
            print(f"{name:8} {side:4} x {side:<4} {count / 1e9:8.2f} GFLOPs {1000 * took:8.1f} ms")
        fitted = exponent(given.sides, counted), exponent(given.sides, timed)
        print(f"{name:8} exponents   {fitted[0]:8.3f} {fitted[1]:15.3f}")


if __name__ == "__main__":
    main()
