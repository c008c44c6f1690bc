"""How large a model the data and the minutes allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

ENOUGH_EPOCHS = 12  # epochs that a size must have time for
ENOUGH_STEPS = 2000  # steps that the size of batches leaves time for, if they need not be too small for it
PARAMETERS_PER_TOKEN = 10  # of the layers, at most: a larger model learns small data by heart
EFFICIENCY = 0.4  # FLOPs of a training step, relative to large matrix products

Outputs = Callable[[int, int], int]  # width, depth -> the size of the output vocabulary


def count_no_outputs(width: int, depth: int) -> int:
    """For models with few outputs, such as labels."""
    return 0


def limit_vocabulary(size: int) -> Outputs:
    """At most `size` word pieces, and no more than cost twice as much as the layers."""
    return lambda width, depth: min(size, max(24 * width * depth // 1000 * 1000, 1000))


@dataclass(frozen=True)
class Budget:
    """What the choice of a size depends on."""

    minutes: float
    tokens: float  # of an epoch
    speed: float  # FLOP/s of training

    def choose(
        self, ladder: tuple[tuple[int, int, int], ...], stacks: int = 1, outputs: Outputs = count_no_outputs
    ) -> tuple[tuple[int, int, int], float]:
        """The largest size that the data carry and that has time for enough epochs, and the number of its epochs.

        Each token passes one of `stacks` stacks with as many layers; `outputs` is the size of the vocabulary that a
        model of this width and depth predicts from."""
        chosen, epochs = ladder[0], 0.0
        for size in ladder:
            width, _, depth = size
            parameters = 12 * width**2 * depth  # of the layers that a token passes
            # 6 FLOPs for each parameter and token; of two stacks one has outputs
            cost = 6 * (parameters + outputs(width, depth) * width / stacks)
            possible = self.minutes * 60 * self.speed / (cost * self.tokens)
            fits = parameters * stacks**2 <= PARAMETERS_PER_TOKEN * self.tokens and possible >= ENOUGH_EPOCHS
            if fits or not epochs:
                chosen, epochs = size, possible
        return chosen, epochs

    def choose_batch(self, epochs: float, smallest: int, largest: int) -> tuple[int, int]:
        """Tokens of a batch that leave time for enough steps, and steps of warmup, a tenth of them at most."""
        affordable = epochs * self.tokens
        batch = round(min(max(affordable / ENOUGH_STEPS, smallest), largest))
        return batch, round(min(max(affordable / batch / 10, 10), 200))


def measure_speed(size: int = 768) -> float:
    """FLOP/s of training steps on this machine, from matrix products that take a fraction of a second."""
    matrix = torch.rand(size, size)
    times = []
    for _ in range(5):
        start = perf_counter()
        matrix @ matrix
        times.append(perf_counter() - start)
    return EFFICIENCY * 2 * size**3 / sorted(times)[len(times) // 2]


def count_nouns(count: int, noun: str) -> str:
    """
    >>> count_nouns(1, "epoch"), count_nouns(2000, "epoch")
    ('1 epoch', '2,000 epochs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def explain_size(epochs: float) -> str:
    return f"the largest that the data carry, with time for about {count_nouns(max(round(epochs), 1), 'epoch')} here"
