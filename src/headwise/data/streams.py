"""Contiguous batches for models that carry state: each row continues that of the batch before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from headwise.data.batches import BatchPlan
from headwise.data.blocks import Blocks, TextBatch


class StreamedBlocks(Blocks):
    """All documents concatenated into a ring, read from one offset for each row (Dai et al. 2019, section 3.2).

    Row r of a batch continues row r of the batch before, `context` tokens a batch, across documents: BOS marks the
    start of the next one. The offsets of the rows are drawn for each epoch, and `TextBatch.fresh` is true in its first
    batch. The last tokens of an epoch, fewer than a batch, are not read. There is no padding.
    """

    @property
    def shape(self) -> tuple[int, int, int]:
        """Batches of an epoch, rows and tokens of a batch; a small corpus reduces the last two."""
        width = min(self.context, len(self))
        rows = min(self.batch_size or max(self.tokens_per_batch // width, 1), len(self) // width)
        return len(self) // (rows * width), rows, width

    def count_batches(self) -> tuple[int, float]:
        return self.shape[0], 0.0

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        """Where each row starts, as ~position if it continues the batch before."""
        batches, rows, width = self.shape
        offset = np.random.default_rng([self.seed, epoch]).integers(len(self))
        begins = offset + np.arange(rows) * (len(self) // rows)
        starts = (begins + width * np.arange(batches)[:, None]) % len(self)  # (batches, B)
        starts[1:] = ~starts[1:]
        return BatchPlan(starts.ravel(), np.arange(batches) * rows, np.arange(batches))

    def batch(self, indices: np.ndarray) -> TextBatch:
        starts = np.maximum(indices, ~indices)
        positions = (starts[:, None] + np.arange(self.shape[2])) % len(self)  # (B, 1) and (T,) -> (B, T)
        ids, labels = (torch.from_numpy(side.reshape(positions.shape)) for side in self.read_tokens(positions.ravel()))
        return TextBatch(ids, labels, fresh=torch.from_numpy(indices >= 0))
