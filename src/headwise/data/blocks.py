"""Texts for language models: documents of any length, cut into blocks of at most `context` tokens.

All documents lie in one array, each between BOS and EOS. A block is named by the place of its first token: it reads
from there and is to predict what stands one place further on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headwise.data.batches import Batches
from headwise.data.examples import Examples
from headwise.text import BOS, EOS, PAD


@dataclass(frozen=True)
class TextBatch:
    """A padded batch of blocks. B rows, T positions."""

    ids: Tensor  # (B, T)
    labels: Tensor  # (B, T) the token after each; PAD where nothing is to be learnt

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """How many tokens are learnt; waits for the device, so ask before `to`."""
        return int((self.labels != PAD).sum())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> TextBatch:
        return TextBatch(*(tensor.to(device, non_blocking=non_blocking) for tensor in (self.ids, self.labels)))


class Blocks:
    """Documents in blocks, for the training loop. Long ones are cut anew in every epoch.

    >>> blocks = Blocks(Examples.of([([], [5, 6, 7]), ([], [8])]), context=8, seed=1, batch_size=2)
    >>> batch = blocks.batch(np.sort(np.concatenate(blocks.plan(0))))
    >>> batch.ids.tolist(), batch.labels.tolist()
    ([[1, 5, 6, 7], [1, 8, 0, 0]], [[5, 6, 7, 2], [8, 2, 0, 0]])
    """

    def __init__(self, examples: Examples, context: int, seed: int = 0, tokens_per_batch: int = 0, batch_size: int = 0):
        self.context, self.seed = context, seed
        self.rows = (0, batch_size) if batch_size else (max(tokens_per_batch, context + 2), 0)
        self.stream, self.bounds = marked(examples)

    def __len__(self) -> int:
        """How many tokens there are to predict."""
        return len(self.stream) - len(self.bounds) + 1

    @property
    def summary(self) -> str:
        batches = self._batches(self.starts(0))
        padding = f"{100 * batches.padding:.1f} % padding"
        return f"{len(self):,} tokens to train on; {len(batches):,} batches an epoch, {padding}"

    def plan(self, epoch: int) -> list[np.ndarray]:
        starts = self.starts(epoch)
        return [starts[numbers] for numbers in self._batches(starts).plan(epoch)]

    def starts(self, epoch: int) -> np.ndarray:
        """Where the blocks of an epoch begin: with each document, and every `context` tokens after a random place."""
        random = np.random.default_rng([self.seed, epoch, self.context])
        starts = [self.bounds[:-1]]
        for begin, end in self._long():
            starts.append(np.arange(begin + random.integers(1, self.context + 1), end - 1, self.context))
        return np.concatenate(starts)

    def windows(self, stride: int) -> tuple[np.ndarray, np.ndarray]:
        """Overlapping blocks for scoring: where each begins, and its first place that counts. Every token counts
        once, with at least `context - stride` tokens before it where the document has them."""
        starts, firsts = [self.bounds[:-1]], [np.zeros(len(self.bounds) - 1, np.int64)]
        for begin, end in self._long():
            later = np.arange(begin + stride, end - 1 - (self.context - stride), stride)
            starts.append(later)
            firsts.append(np.full(len(later), self.context - stride))
        return np.concatenate(starts), np.concatenate(firsts)

    def batch(self, starts: np.ndarray) -> TextBatch:
        lengths = self._lengths(starts)
        places = np.arange(lengths.max(initial=0))
        real = places < lengths[:, None]  # (B, 1) and (T,) -> (B, T)
        where = np.where(real, starts[:, None] + places, 0)
        ids, labels = (np.where(real, self.stream[where + shift], PAD).astype(np.int64) for shift in (0, 1))
        return TextBatch(torch.from_numpy(ids), torch.from_numpy(labels))

    def _lengths(self, starts: np.ndarray) -> np.ndarray:
        """How many tokens the blocks that begin there predict."""
        ends = self.bounds[np.searchsorted(self.bounds, starts, side="right")]
        return np.minimum(self.context, ends - 1 - starts)

    def _batches(self, starts: np.ndarray) -> Batches:
        lengths = self._lengths(starts) - 1  # as if without EOS
        return Batches(np.column_stack([np.full_like(lengths, -1), lengths]), self.seed, *self.rows)

    def _long(self) -> list[tuple[int, int]]:
        """Begin and end of the documents that do not fit into one block."""
        cut = np.flatnonzero(np.diff(self.bounds) - 1 > self.context)
        return [(int(self.bounds[number]), int(self.bounds[number + 1])) for number in cut]


def marked(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """All targets in one array, each between BOS and EOS; and where each begins, with the end."""
    lengths = examples.lengths[:, 1].astype(np.int64)
    bounds = np.concatenate([[0], np.cumsum(lengths + 2)])
    stream = np.empty(bounds[-1], np.int32)
    stream[bounds[:-1]], stream[bounds[1:] - 1] = BOS, EOS
    inner = np.ones(len(stream), bool)
    inner[bounds[:-1]] = inner[bounds[1:] - 1] = False
    sources = examples.lengths[:, 0].any()
    stream[inner] = np.concatenate([target for _, target in examples]) if sources else examples.tokens
    return stream, bounds
