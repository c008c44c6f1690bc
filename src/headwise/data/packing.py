"""Short documents that share rows, so that hardly anything is padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.data.batches import BatchPlan
from headwise.data.blocks import Blocks, concatenate_ranges


class PackedBlocks(Blocks):
    """Sequence packing: Blocks, several of them in a row: attention does not look from one to another, and positions
    begin anew.

    Which lengths share a row is decided by their numbers alone; which blocks of these lengths, by chance.
    """

    packed = True

    @property
    def rows(self) -> int:
        """How many rows a batch has."""
        return self.batch_size or max(self.tokens_per_batch // self.context, 1)

    def size(self) -> tuple[int, float]:
        sizes = self._sizes(self.starts(0))
        rows = sum(count for count, _ in pack_lengths(self._counts(sizes)))
        return -(-rows // self.rows), 1 - float(sizes.sum()) / (rows * self.context)

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        random = np.random.default_rng([self.seed, epoch])
        starts = random.permutation(self.starts(epoch))
        sizes = self._sizes(starts)
        starts = starts[np.argsort(sizes, kind="stable")]
        counts = self._counts(sizes)
        taken = counts.cumsum() - counts  # where the next block of each size stands
        packed, lengths = [], []
        for count, shape in pack_lengths(counts):
            rows = np.empty((count, len(shape)), np.int64)
            for place, size in enumerate(shape):
                rows[:, place] = starts[taken[size] : taken[size] + count]
                taken[size] += count
            rows[:, 1:] = ~rows[:, 1:]  # they share the row of the block before
            packed.append(rows.ravel())
            lengths.append(np.full(count, len(shape)))
        flat, each = np.concatenate(packed), np.concatenate(lengths)
        ends = each.cumsum()
        order = random.permutation(len(each))
        mixed = flat[concatenate_ranges((ends - each)[order], ends[order])]
        firsts = (each[order].cumsum() - each[order])[:: self.rows]  # of the batches
        return BatchPlan(mixed, firsts, np.arange(len(firsts)))

    def _counts(self, sizes: np.ndarray) -> np.ndarray:
        return np.bincount(sizes, minlength=self.context + 1)


def pack_lengths(counts: np.ndarray) -> list[tuple[int, tuple[int, ...]]]:
    """How to pack `counts[size]` blocks of each size into rows of the largest: (how many rows, sizes in each of them).

    Best fit, longest first, on the counts instead of the blocks (Krell et al. 2021): the time depends on the length of
    a row, not on the corpus.

    >>> pack_lengths(np.array([0, 0, 3, 2, 0, 1]))
    [(1, (5,)), (2, (3, 2)), (1, (2,))]
    """
    longest = len(counts) - 1
    open_rows: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(longest + 1)]  # by the room they have
    open_rows[longest].append((int(counts.sum()), ()))
    for size in range(longest, 0, -1):
        left = int(counts[size])
        for room in range(size, longest + 1):
            while left and open_rows[room]:
                count, shape = open_rows[room].pop()
                copies = min(room // size, left)
                used = min(count, left // copies)
                left -= used * copies
                open_rows[room - copies * size].append((used, shape + (size,) * copies))
                if count > used:
                    open_rows[room].append((count - used, shape))
    return [row for rows in open_rows for row in rows if row[1]]
