"""Length-bucketed batches: which examples share a batch, and in which order, as a function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np


class Batches:
    """Batches of similar lengths, of at most `tokens_per_batch` padded tokens or of `batch_size` rows.

    A batch of r rows costs r * (longest source + longest target), EOS included; a pair that exceeds the budget alone is
    a batch of its own. Examples are sorted by length with random ties and cut into batches, which are shuffled. As only
    ties are random, the cuts are the same in every epoch.

    >>> batches = Batches(np.array([[3, 3], [9, 9], [3, 3], [8, 9]]), seed=1, batch_size=2)
    >>> sorted(sorted(map(int, indices)) for indices in batches.plan(epoch=0))
    [[0, 2], [1, 3]]
    """

    def __init__(self, lengths: np.ndarray, seed: int, tokens_per_batch: int = 0, batch_size: int = 0):
        if (tokens_per_batch > 0) == (batch_size > 0):
            raise ValueError("give either tokens_per_batch or batch_size")
        self.seed = seed
        source, target = lengths.astype(np.int64).T + 1  # with EOS
        # Target lengths ascend and descend in turn, so that neighbours are similar where the source length changes.
        signed_target = np.where(source % 2, target, -target)
        self._sort_keys = source * 2 * (target.max(initial=0) + 1) + signed_target
        order = np.argsort(self._sort_keys, kind="stable")
        source, target = source[order], target[order]
        if batch_size:
            self._starts = np.arange(0, len(order), batch_size)
        else:
            self._starts = _cut_batches(source, target, tokens_per_batch)
        self._real_tokens = int(source.sum() + target.sum())
        self._padded_tokens = _count_padded(source, target, self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def padding(self) -> float:
        """The share of padding among the tokens of an epoch."""
        return 1 - self._real_tokens / self._padded_tokens if self._padded_tokens else 0.0

    def plan(self, epoch: int) -> BatchPlan:
        """Order the batches of an epoch: the indices of the examples in each."""
        random = np.random.default_rng([self.seed, epoch])
        shuffled = random.permutation(len(self._sort_keys))
        indices = shuffled[np.argsort(self._sort_keys[shuffled], kind="stable")]
        return BatchPlan(indices, self._starts, random.permutation(len(self._starts)))


class BatchPlan(Sequence[np.ndarray]):
    """The batches of an epoch in order, as slices of one array of indices: a list of many arrays would fill the memory.

    >>> plan = BatchPlan(np.array([7, 8, 9, 5]), starts=np.array([0, 2]), order=np.array([1, 0]))
    >>> [batch.tolist() for batch in plan]
    [[9, 5], [7, 8]]
    """

    def __init__(self, indices: np.ndarray, starts: np.ndarray, order: np.ndarray):
        self.indices, self.starts, self.order = indices, starts, order

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
        end = self.starts[batch + 1] if batch + 1 < len(self.starts) else len(self.indices)
        return self.indices[self.starts[batch] : end]


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
    """Tokens of all batches, padding included."""
    if not len(starts):
        return 0
    rows = np.diff(np.append(starts, len(source)))
    return int((rows * (np.maximum.reduceat(source, starts) + np.maximum.reduceat(target, starts))).sum())
