"""Sequence packing: short documents share rows, so that there is hardly any padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.data.batches import BatchPlan
from headwise.data.blocks import Blocks, concatenate_ranges


class PackedBlocks(Blocks):
    """Sequence packing: several blocks share a row. Attention is masked to a token's own block, and positions restart
    at 0 in each.

    Which lengths share a row is decided by their histogram alone; which blocks of these lengths, at random.
    """

    packed = True

    @property
    def rows(self) -> int:
        """The number of rows of a batch."""
        return self.batch_size or max(self.tokens_per_batch // self.context, 1)

    def count_batches(self) -> tuple[int, float]:
        sizes = self._measure_blocks(self.draw_starts(0))
        rows = sum(count for count, _ in pack_lengths(self._count_sizes(sizes)))
        return -(-rows // self.rows), 1 - float(sizes.sum()) / (rows * self.context)

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        random = np.random.default_rng([self.seed, epoch])
        starts = random.permutation(self.draw_starts(epoch))
        sizes = self._measure_blocks(starts)
        starts = starts[np.argsort(sizes, kind="stable")]
        counts = self._count_sizes(sizes)
        cursors = counts.cumsum() - counts  # for each size, the index of its next block in `starts`
        packed, lengths = [], []
        for count, row_sizes in pack_lengths(counts):
            rows = np.empty((count, len(row_sizes)), np.int64)
            for column, size in enumerate(row_sizes):
                rows[:, column] = starts[cursors[size] : cursors[size] + count]
                cursors[size] += count
            rows[:, 1:] = ~rows[:, 1:]  # packed into the row of the block before
            packed.append(rows.ravel())
            lengths.append(np.full(count, len(row_sizes)))
        blocks, row_lengths = np.concatenate(packed), np.concatenate(lengths)
        ends = row_lengths.cumsum()
        order = random.permutation(len(row_lengths))
        shuffled = blocks[concatenate_ranges((ends - row_lengths)[order], ends[order])]
        batch_starts = (row_lengths[order].cumsum() - row_lengths[order])[:: self.rows]
        return BatchPlan(shuffled, batch_starts, np.arange(len(batch_starts)))

    def _count_sizes(self, sizes: np.ndarray) -> np.ndarray:
        return np.bincount(sizes, minlength=self.context + 1)


def pack_lengths(counts: np.ndarray) -> list[tuple[int, tuple[int, ...]]]:
    """Pack `counts[size]` blocks of each size into rows of the largest size: (number of rows, sizes in each of them).

    Longest-first best fit on the histogram of sizes (Krell et al. 2021): the time depends on the length of a row, not
    on the size of the corpus.

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
                count, row_sizes = open_rows[room].pop()
                copies = min(room // size, left)
                used = min(count, left // copies)
                left -= used * copies
                open_rows[room - copies * size].append((used, row_sizes + (size,) * copies))
                if count > used:
                    open_rows[room].append((count - used, row_sizes))
    return [row for rows in open_rows for row in rows if row[1]]
