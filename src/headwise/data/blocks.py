"""Blocks for language models: documents of any length, cut into at most `context` tokens.

A document of n tokens has n + 1 predictions: the inputs are BOS and the n tokens, the labels the n tokens and EOS. The
predictions of a corpus are numbered consecutively (positions of the corpus); a block is identified by the position of
its first one. Tokens are read from the memory-mapped examples when a batch needs them, and special tokens added there.

Letters: B rows, T positions of a row, N positions of the corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from headwise.data.batches import Batches, BatchPlan
from headwise.data.examples import Examples
from headwise.text import BOS, EOS, PAD


@dataclass(frozen=True)
class TextBatch:
    """A padded batch of blocks.

    With sequence packing, `segment` numbers the documents of a row from 1 (padding has 0) and `pos` counts from 0 in
    each. In a stream, row r continues row r of the batch before, unless it is `fresh`: then the state that a model
    carries for the row is reset. All batches of a stream have the same number of rows.
    """

    ids: Tensor  # (B, T)
    labels: Tensor  # (B, T) the next token; PAD where there is no loss
    segment: Tensor | None = None  # (B, T)
    pos: Tensor | None = None  # (B, T)
    fresh: Tensor | None = None  # (B,) bool

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """The number of labels; synchronises with the device, so read it before `to`."""
        return int((self.labels != PAD).sum())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> TextBatch:
        tensors = {name: tensor for name, tensor in vars(self).items() if tensor is not None}
        return TextBatch(**{name: tensor.to(device, non_blocking=non_blocking) for name, tensor in tensors.items()})


class Blocks:
    """Documents in shuffled blocks. Long documents are cut at other positions in every epoch.

    >>> blocks = Blocks(Examples.from_rows([([], [5, 6, 7]), ([], [8])]), context=8, seed=1, batch_size=2)
    >>> batch = blocks.batch(np.sort(np.concatenate(blocks.plan(0))))
    >>> batch.ids.tolist(), batch.labels.tolist()
    ([[1, 5, 6, 7], [1, 8, 0, 0]], [[5, 6, 7, 2], [8, 2, 0, 0]])
    """

    packed: ClassVar[bool] = False

    def __init__(self, examples: Examples, context: int, seed: int = 0, tokens_per_batch: int = 0, batch_size: int = 0):
        self.examples, self.context, self.seed = examples, context, seed
        self.tokens_per_batch, self.batch_size = tokens_per_batch, batch_size
        self.bounds = np.zeros(len(examples) + 1, np.int64)  # where documents start, and the end
        np.cumsum(examples.lengths[:, 1] + 1, out=self.bounds[1:])

    def __len__(self) -> int:
        """The number of predictions, EOS included."""
        return int(self.bounds[-1])

    @property
    def summary(self) -> str:
        batches, padding = self.count_batches()
        return f"{len(self):,} tokens to train on; {batches:,} batches an epoch, {100 * padding:.1f} % padding"

    def count_batches(self) -> tuple[int, float]:
        """The number of batches of the first epoch, and the share of padding in them."""
        batches = self._group_blocks(self.draw_starts(0))
        return len(batches), batches.padding

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        """Order the batches of an epoch: the starts of the blocks in each."""
        starts = self.draw_starts(epoch)
        plan = self._group_blocks(starts).plan(epoch)
        return BatchPlan(starts[plan.indices], plan.starts, plan.order)

    def draw_starts(self, epoch: int) -> np.ndarray:
        """Where the blocks of an epoch start: at each document, and every `context` tokens after a random offset."""
        begins, ends = self._find_long_documents()
        random = np.random.default_rng([self.seed, epoch, self.context])
        later = begins + random.integers(1, self.context + 1, len(begins))
        return np.concatenate([self.bounds[:-1], concatenate_ranges(later, ends, self.context)])

    def cut_windows(self, stride: int) -> tuple[np.ndarray, np.ndarray]:
        """Cut overlapping blocks for scoring: the start of each, and the index of its first token that counts.

        Every token counts once, after at least `context - stride` tokens of context where the document has them.
        """
        begins, ends = self._find_long_documents()
        overlap = self.context - stride
        later = concatenate_ranges(begins + stride, ends - overlap, stride)
        firsts = np.repeat([0, overlap], [len(self.bounds) - 1, len(later)])
        return np.concatenate([self.bounds[:-1], later]), firsts

    def batch(self, indices: np.ndarray) -> TextBatch:
        """Pad the blocks that start at these positions. A block given as ~position is packed into the row of the block
        before it."""
        opens, starts = indices >= 0, np.maximum(indices, ~indices)
        sizes = self._measure_blocks(starts)
        ends = sizes.cumsum()
        rows = opens.cumsum() - 1
        firsts = np.flatnonzero(opens)[rows]  # for each block, the first one of its row
        columns = ends - sizes - (ends - sizes)[firsts]
        offsets = concatenate_ranges(np.zeros_like(sizes), sizes)  # (N,) within the blocks

        def scatter(values: np.ndarray) -> Tensor:
            grid = np.full((opens.sum(), (columns + sizes).max()), PAD)
            grid[np.repeat(rows, sizes), np.repeat(columns, sizes) + offsets] = values  # (N,) -> (B, T)
            return torch.from_numpy(grid)

        ids, labels = map(scatter, self.read_tokens(np.repeat(starts, sizes) + offsets))
        if not self.packed:
            return TextBatch(ids, labels)
        segments = np.repeat(np.arange(len(starts)) - firsts + 1, sizes)
        return TextBatch(ids, labels, scatter(segments), scatter(offsets))

    def read_tokens(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels at these positions, (N,) each."""
        document = np.searchsorted(self.bounds, positions, side="right") - 1
        first, last = positions == self.bounds[document], positions + 1 == self.bounds[document + 1]
        tokens = positions - self.bounds[document] + self.examples.bounds[2 * document + 1]
        ids, labels = np.full(len(positions), BOS), np.full(len(positions), EOS)
        ids[~first] = self.examples.tokens[tokens[~first] - 1]
        labels[~last] = self.examples.tokens[tokens[~last]]
        return ids, labels

    def _measure_blocks(self, starts: np.ndarray) -> np.ndarray:
        """The number of predictions in the blocks that start at these positions."""
        ends = self.bounds[np.searchsorted(self.bounds, starts, side="right")]
        return np.minimum(self.context, ends - starts)

    def _group_blocks(self, starts: np.ndarray) -> Batches:
        # `Batches` adds an EOS to source and target: -1 is no source at all, and sizes include EOS already.
        lengths = np.column_stack([np.full(len(starts), -1), self._measure_blocks(starts) - 1])
        budget = 0 if self.batch_size else max(self.tokens_per_batch, self.context + 2)
        return Batches(lengths, self.seed, budget, self.batch_size)

    def _find_long_documents(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the documents that exceed one block start and end."""
        long = np.flatnonzero(np.diff(self.bounds) > self.context)
        return self.bounds[long], self.bounds[long + 1]


def concatenate_ranges(begins: np.ndarray, ends: np.ndarray, step: int = 1) -> np.ndarray:
    """np.arange(begin, end, step) of each begin and end, concatenated.

    >>> concatenate_ranges(np.array([0, 5, 9]), np.array([6, 5, 12]), 2)
    array([ 0,  2,  4,  9, 11])
    """
    sizes = np.maximum(-((begins - ends) // step), 0)
    stops = sizes.cumsum()
    return np.repeat(begins - step * (stops - sizes), sizes) + step * np.arange(stops[-1] if len(stops) else 0)
