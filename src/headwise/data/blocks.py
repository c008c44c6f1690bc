"""Texts for language models: documents of any length, cut into blocks of at most `context` tokens.

A document of n tokens asks for n + 1 predictions: BOS and the n tokens are read, the n tokens and EOS are to be
predicted. All predictions of a corpus are numbered in a row; a block is named by the place of its first one. Tokens are
read from the mapped examples when a batch needs them, and the special tokens are put in there.

Letters: B rows, T positions, N places.
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

    Where documents are packed, `segment` numbers those of a row from 1 (padding has 0) and `pos` counts from 0 in each.
    Where batches are a stream, row r goes on where row r of the batch before ended, unless it is `fresh`: what a model
    remembers of the row is to be forgotten first. All batches of a stream have as many rows.
    """

    ids: Tensor  # (B, T)
    labels: Tensor  # (B, T) the token after each; PAD where nothing is to be learnt
    segment: Tensor | None = None  # (B, T)
    pos: Tensor | None = None  # (B, T)
    fresh: Tensor | None = None  # (B,) bool

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """How many tokens are learnt; waits for the device, so ask before `to`."""
        return int((self.labels != PAD).sum())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> TextBatch:
        tensors = {name: tensor for name, tensor in vars(self).items() if tensor is not None}
        return TextBatch(**{name: tensor.to(device, non_blocking=non_blocking) for name, tensor in tensors.items()})


class Blocks:
    """Documents in blocks, for the training loop. Long ones are cut anew in every epoch.

    >>> blocks = Blocks(Examples.from_rows([([], [5, 6, 7]), ([], [8])]), context=8, seed=1, batch_size=2)
    >>> batch = blocks.batch(np.sort(np.concatenate(blocks.plan(0))))
    >>> batch.ids.tolist(), batch.labels.tolist()
    ([[1, 5, 6, 7], [1, 8, 0, 0]], [[5, 6, 7, 2], [8, 2, 0, 0]])
    """

    packed: ClassVar[bool] = False

    def __init__(self, examples: Examples, context: int, seed: int = 0, tokens_per_batch: int = 0, batch_size: int = 0):
        self.examples, self.context, self.seed = examples, context, seed
        self.tokens_per_batch, self.batch_size = tokens_per_batch, batch_size
        self.bounds = np.zeros(len(examples) + 1, np.int64)
        np.cumsum(examples.lengths[:, 1] + 1, out=self.bounds[1:])

    def __len__(self) -> int:
        """How many tokens there are to predict."""
        return int(self.bounds[-1])

    @property
    def summary(self) -> str:
        batches, padding = self.size()
        return f"{len(self):,} tokens to train on; {batches:,} batches an epoch, {100 * padding:.1f} % padding"

    def size(self) -> tuple[int, float]:
        """The number of batches of the first epoch, and the share of padding in them."""
        batches = self._batches(self.starts(0))
        return len(batches), batches.padding

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        starts = self.starts(epoch)
        plan = self._batches(starts).plan(epoch)
        return BatchPlan(starts[plan.numbers], plan.starts, plan.order)

    def starts(self, epoch: int) -> np.ndarray:
        """Where the blocks of an epoch begin: with each document, and every `context` tokens after a random place."""
        begins, ends = self._long()
        random = np.random.default_rng([self.seed, epoch, self.context])
        later = begins + random.integers(1, self.context + 1, len(begins))
        return np.concatenate([self.bounds[:-1], concatenate_ranges(later, ends, self.context)])

    def cut_windows(self, stride: int) -> tuple[np.ndarray, np.ndarray]:
        """Overlapping blocks for scoring: where each begins, and its first place that counts. Every token counts
        once, with at least `context - stride` tokens before it where the document has them."""
        begins, ends = self._long()
        seen = self.context - stride
        later = concatenate_ranges(begins + stride, ends - seen, stride)
        firsts = np.repeat([0, seen], [len(self.bounds) - 1, len(later)])
        return np.concatenate([self.bounds[:-1], later]), firsts

    def batch(self, numbers: np.ndarray) -> TextBatch:
        """The blocks that begin at these places, each in a row of its own. One written as ~place shares the row of the
        block before it."""
        opens, starts = numbers >= 0, np.maximum(numbers, ~numbers)
        sizes = self._sizes(starts)
        ends = sizes.cumsum()
        rows = opens.cumsum() - 1
        firsts = np.flatnonzero(opens)[rows]  # the block that opens the row of each
        columns = ends - sizes - (ends - sizes)[firsts]
        inside = concatenate_ranges(np.zeros_like(sizes), sizes)  # (N,) places within their blocks

        def grid(values: np.ndarray) -> Tensor:
            found = np.full((opens.sum(), (columns + sizes).max()), PAD)
            found[np.repeat(rows, sizes), np.repeat(columns, sizes) + inside] = values  # (N,) -> (B, T)
            return torch.from_numpy(found)

        ids, labels = map(grid, self.read(np.repeat(starts, sizes) + inside))
        if not self.packed:
            return TextBatch(ids, labels)
        return TextBatch(ids, labels, grid(np.repeat(np.arange(len(starts)) - firsts + 1, sizes)), grid(inside))

    def read(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is read and what is to be predicted at these places."""
        document = np.searchsorted(self.bounds, places, side="right") - 1
        first, last = places == self.bounds[document], places + 1 == self.bounds[document + 1]
        tokens = places - self.bounds[document] + self.examples.bounds[2 * document + 1]
        ids, labels = np.full(len(places), BOS), np.full(len(places), EOS)
        ids[~first] = self.examples.tokens[tokens[~first] - 1]
        labels[~last] = self.examples.tokens[tokens[~last]]
        return ids, labels

    def _sizes(self, starts: np.ndarray) -> np.ndarray:
        """How many tokens the blocks that begin there predict."""
        ends = self.bounds[np.searchsorted(self.bounds, starts, side="right")]
        return np.minimum(self.context, ends - starts)

    def _batches(self, starts: np.ndarray) -> Batches:
        # A block is a pair without a source, and even without its EOS.
        lengths = np.column_stack([np.full(len(starts), -1), self._sizes(starts) - 1])
        budget = 0 if self.batch_size else max(self.tokens_per_batch, self.context + 2)
        return Batches(lengths, self.seed, budget, self.batch_size)

    def _long(self) -> tuple[np.ndarray, np.ndarray]:
        """Begins and ends of the documents that do not fit into one block."""
        cut = np.flatnonzero(np.diff(self.bounds) > self.context)
        return self.bounds[cut], self.bounds[cut + 1]


def concatenate_ranges(begins: np.ndarray, ends: np.ndarray, step: int = 1) -> np.ndarray:
    """np.arange(begin, end, step) for each begin and end, one after the other.

    >>> concatenate_ranges(np.array([0, 5, 9]), np.array([6, 5, 12]), 2)
    array([ 0,  2,  4,  9, 11])
    """
    sizes = np.maximum(-((begins - ends) // step), 0)
    done = sizes.cumsum()
    return np.repeat(begins - step * (done - sizes), sizes) + step * np.arange(done[-1] if len(done) else 0)
