"""Which examples go together, and in which order: a pure function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np


class Batches:
    """Batches of similar lengths, of at most `tokens_per_batch` padded tokens or of `batch_size` rows.

    A batch of r rows costs r * (longest source + longest target), EOS included; a pair that is
    larger alone gets a batch of its own. Examples are sorted by length with random ties, cut, and
    the batches shuffled. As ties alone are random, the cuts are the same in every epoch.

    >>> batches = Batches(np.array([[3, 3], [9, 9], [3, 3], [8, 9]]), seed=1, batch_size=2)
    >>> sorted(sorted(map(int, numbers)) for numbers in batches.plan(epoch=0))
    [[0, 2], [1, 3]]
    """

    def __init__(self, lengths: np.ndarray, seed: int, tokens_per_batch: int = 0, batch_size: int = 0):
        if (tokens_per_batch > 0) == (batch_size > 0):
            raise ValueError("give either tokens_per_batch or batch_size")
        self.seed = seed
        source, target = lengths.astype(np.int64).T + 1  # with EOS
        # Like a snake: up and down the target lengths in turn, so that neighbours are always similar.
        turn = np.where(source % 2, target, -target)
        self._rank = source * 2 * (target.max(initial=0) + 1) + turn
        order = np.argsort(self._rank, kind="stable")
        source, target = source[order], target[order]
        if batch_size:
            self._starts = np.arange(0, len(order), batch_size)
        else:
            self._starts = _cut_batches(source, target, tokens_per_batch)
        self._real = int(source.sum() + target.sum())
        self._padded = _count_padded(source, target, self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def padding(self) -> float:
        """The share of padding among all the tokens of an epoch."""
        return 1 - self._real / self._padded if self._padded else 0.0

    def plan(self, epoch: int) -> BatchPlan:
        """The example numbers of each batch of an epoch, in order."""
        random = np.random.default_rng([self.seed, epoch])
        mixed = random.permutation(len(self._rank))
        numbers = mixed[np.argsort(self._rank[mixed], kind="stable")]
        return BatchPlan(numbers, self._starts, random.permutation(len(self._starts)))


class BatchPlan(Sequence[np.ndarray]):
    """Batches in order, cut out of one array when they are asked for: many of them would fill the memory.

    >>> plan = BatchPlan(np.array([7, 8, 9, 5]), starts=np.array([0, 2]), order=np.array([1, 0]))
    >>> [batch.tolist() for batch in plan]
    [[9, 5], [7, 8]]
    """

    def __init__(self, numbers: np.ndarray, starts: np.ndarray, order: np.ndarray):
        self.numbers, self.starts, self.order = numbers, starts, order

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> list[np.ndarray]: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        batch = self.order[index]
        end = self.starts[batch + 1] if batch + 1 < len(self.starts) else len(self.numbers)
        return self.numbers[self.starts[batch] : end]


def _cut_batches(source: np.ndarray, target: np.ndarray, budget: int) -> np.ndarray:
    """Where batches start if each takes as many of the sorted rows as the budget allows."""
    starts, start = [], 0
    while start < len(source):
        starts.append(start)
        window = slice(start, start + max(budget // int(source[start] + 1), 1))
        longest = source[window] + np.maximum.accumulate(target[window])  # sources ascend
        cost = longest * np.arange(1, len(longest) + 1)
        start += max(int(np.searchsorted(cost, budget, side="right")), 1)
    return np.array(starts, np.int64)


def _count_padded(source: np.ndarray, target: np.ndarray, starts: np.ndarray) -> int:
    if not len(starts):
        return 0
    rows = np.diff(np.append(starts, len(source)))
    return int((rows * (np.maximum.reduceat(source, starts) + np.maximum.reduceat(target, starts))).sum())
