"""Texts as they are, from batch to batch: for models that remember what they read before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from headwise.data.batches import BatchPlan
from headwise.data.blocks import Blocks, TextBatch


class StreamedBlocks(Blocks):
    """All documents in one ring, read at as many places at once as a batch has rows (Dai et al. 2019, section 3.2).

    Row r of a batch goes on where row r of the batch before ended, `context` tokens a batch, across documents: a BOS
    says where the next one begins. The places where the rows begin turn with every epoch, and `TextBatch.fresh` is true
    in its first batch. Fewer tokens than a batch has stay unread in an epoch. Nothing is padded.
    """

    @property
    def shape(self) -> tuple[int, int, int]:
        """Batches of an epoch, rows and tokens of a batch; a small corpus makes it smaller."""
        width = min(self.context, len(self))
        rows = min(self.batch_size or max(self.tokens_per_batch // width, 1), len(self) // width)
        return len(self) // (rows * width), rows, width

    def size(self) -> tuple[int, float]:
        return self.shape[0], 0.0

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        """Where each row begins, as ~place if it goes on."""
        batches, rows, width = self.shape
        turn = np.random.default_rng([self.seed, epoch]).integers(len(self))
        begins = turn + np.arange(rows) * (len(self) // rows)
        places = (begins + width * np.arange(batches)[:, None]) % len(self)  # (batches, B)
        places[1:] = ~places[1:]
        return BatchPlan(places.ravel(), np.arange(batches) * rows, np.arange(batches))

    def batch(self, numbers: np.ndarray) -> TextBatch:
        starts = np.maximum(numbers, ~numbers)
        places = (starts[:, None] + np.arange(self.shape[2])) % len(self)  # (B, 1) and (T,) -> (B, T)
        ids, labels = (torch.from_numpy(side.reshape(places.shape)) for side in self.read(places.ravel()))
        return TextBatch(ids, labels, fresh=torch.from_numpy(numbers >= 0))
