"""Blocks for denoising objectives (masked language models, span corruption): the noise is a function of the seed."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

import numpy as np

from headwise.data.blocks import Blocks, concatenate_ranges

Batch = TypeVar("Batch")


class DenoisingBlocks(Blocks, Generic[Batch]):
    """Blocks without special tokens, corrupted anew in every epoch.

    An index encodes an epoch and a position of the corpus: epoch * len(self) + position. The noise of a batch is a
    function of the seed and of its indices, so there is no state to save.
    """

    def draw_starts(self, epoch: int) -> np.ndarray:
        return self.drop_empty(super().draw_starts(epoch))

    def plan(self, epoch: int) -> list[np.ndarray]:
        return [epoch * len(self) + starts for starts in super().plan(epoch)]

    def batch(self, indices: np.ndarray) -> Batch:  # type: ignore[override]
        return self.corrupt(indices % len(self), np.random.default_rng([self.seed, *indices.tolist()]))

    @abstractmethod
    def corrupt(self, starts: np.ndarray, random: np.random.Generator) -> Batch:
        """Corrupt the blocks that start at these positions and pad them into a batch."""

    def cut_tiles(self) -> np.ndarray:
        """Where blocks start that cover every token once: for scoring."""
        return self.drop_empty(self.cut_windows(self.context)[0])

    def drop_empty(self, starts: np.ndarray) -> np.ndarray:
        """The starts of blocks that have a token beside EOS."""
        return starts[self._measure_blocks(starts) > 0]

    def read_texts(self, starts: np.ndarray, limit: int | np.ndarray) -> list[np.ndarray]:
        """The tokens from these positions on, at most `limit` of each document."""
        sizes = np.minimum(limit, self._count_remaining(starts))
        tokens = self.read_tokens(concatenate_ranges(starts, starts + sizes))[1]
        return np.split(tokens, sizes.cumsum()[:-1])

    def find_documents(self, positions: np.ndarray) -> np.ndarray:
        """The indices of the documents at these positions."""
        return np.searchsorted(self.bounds, positions, side="right") - 1

    def _count_remaining(self, starts: np.ndarray) -> np.ndarray:
        """The number of tokens from these positions to the ends of their documents, without EOS."""
        return self.bounds[self.find_documents(starts) + 1] - 1 - starts

    def _measure_blocks(self, starts: np.ndarray) -> np.ndarray:
        """The number of tokens in the blocks that start at these positions, without EOS."""
        return np.minimum(self.context, self._count_remaining(starts))
