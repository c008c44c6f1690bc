"""Blocks of text for models that learn from texts which were spoilt: what is drawn is a function of its name."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from headwise.data.blocks import Blocks, concatenate_ranges


class DenoisingBlocks(Blocks):
    """Blocks without special tokens, spoilt anew in every epoch.

    A number names an epoch and a place: epoch * places + place. What is drawn for a batch is a function of the seed and
    of its numbers, so there is no state to save.
    """

    def starts(self, epoch: int) -> np.ndarray:
        return self.worded(super().starts(epoch))

    def plan(self, epoch: int) -> list[np.ndarray]:
        return [epoch * len(self) + starts for starts in super().plan(epoch)]

    def batch(self, numbers: np.ndarray) -> Any:
        return self.corrupt(numbers % len(self), np.random.default_rng([self.seed, *numbers.tolist()]))

    @abstractmethod
    def corrupt(self, starts: np.ndarray, random: np.random.Generator) -> Any:
        """A batch of the blocks that begin at these places."""

    def cut_tiles(self) -> np.ndarray:
        """Where blocks begin that have every word once: for scoring."""
        return self.worded(self.cut_windows(self.context)[0])

    def worded(self, starts: np.ndarray) -> np.ndarray:
        """Those of the places where there is more than an end mark."""
        return starts[self._sizes(starts) > 0]

    def texts(self, starts: np.ndarray, most: int | np.ndarray) -> list[np.ndarray]:
        """The words from these places on, at most so many of each."""
        sizes = np.minimum(most, self._left(starts))
        words = self.read(concatenate_ranges(starts, starts + sizes))[1]
        return np.split(words, sizes.cumsum()[:-1])

    def documents(self, places: np.ndarray) -> np.ndarray:
        """The numbers of the documents that have these places."""
        return np.searchsorted(self.bounds, places, side="right") - 1

    def _left(self, starts: np.ndarray) -> np.ndarray:
        """How many words there are from these places to the ends of their documents."""
        return self.bounds[self.documents(starts) + 1] - 1 - starts

    def _sizes(self, starts: np.ndarray) -> np.ndarray:
        """How many words the blocks that begin there have."""
        return np.minimum(self.context, self._left(starts))
