"""n-gram language models: counted, smoothed, used as a back-off model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from headwise.ngram.backoff import Arriving, Backoff, NgramTable
from headwise.ngram.count import Grams, Trie, count, empty
from headwise.ngram.smooth import Smoothing, Weights, weigh
from headwise.text import BOS, EOS

SIZES = (torch.uint8, torch.int16, torch.int32, torch.int64)


class Counts(Arriving):
    """The grams of one order as they are saved: for each context how many tokens follow, which, and how often."""

    following: Tensor
    tokens: Tensor
    counts: Tensor

    def __init__(self, following: Tensor, tokens: Tensor, counts: Tensor):
        super().__init__()
        self.register_buffer("following", following)
        self.register_buffer("tokens", tokens)
        self.register_buffer("counts", counts)

    @classmethod
    def of(cls, grams: Grams, contexts: int, vocab: int) -> Counts:
        following = np.bincount(grams.keys // vocab, minlength=contexts)
        return cls(*map(smallest, (following, grams.keys % vocab, grams.counts)))

    def grams(self, vocab: int) -> Grams:
        following, tokens, counts = (
            stored.cpu().numpy().astype(np.int64) for stored in (self.following, self.tokens, self.counts)
        )
        return Grams(np.repeat(np.arange(len(following)), following) * vocab + tokens, counts)


def smallest(values: np.ndarray) -> Tensor:
    """The values in the smallest type that holds them.

    >>> smallest(np.array([3, 300])).dtype
    torch.int16
    """
    largest = int(values.max(initial=0))
    return torch.from_numpy(values).to(next(size for size in SIZES if largest <= torch.iinfo(size).max))


class Ngram(Backoff):
    """p(token | the order - 1 tokens before it). `fit` counts; counts are saved, and the tables follow from them."""

    def __init__(self, order: int, vocab: int, smoothing: Smoothing):
        super().__init__([], vocab)
        self.smoothing = smoothing
        self._hold(empty(order, vocab), torch.get_default_device())
        self.register_load_state_dict_post_hook(lambda module, _: module._weigh())

    def fit(self, sequences: Iterable[ArrayLike]) -> Ngram:
        """Count texts, each the token ids of a line or document without marks, in one pass."""
        self._hold(count(sequences, self.order, self.vocab), self.device)
        return self

    @property
    def device(self) -> torch.device:
        return self.by_order[0].keys.device

    def _hold(self, trie: Trie, device: torch.device) -> None:
        contexts = [1, *(len(grams.keys) for grams in trie)]
        held = (Counts.of(grams, below, self.vocab) for grams, below in zip(trie, contexts, strict=False))
        self.counts = nn.ModuleList(held)
        self._weigh()
        self.to(device)

    def _weigh(self) -> None:
        """Make the tables that follow from the counts."""
        trie = [cast(Counts, held).grams(self.vocab) for held in self.counts]
        device = cast(Counts, self.counts[0]).counts.device
        weights = weigh(trie, self.vocab, self.smoothing)
        self.tables = nn.ModuleList(table(each, self.vocab) for each in weights).to(device)

    def unseen_share(self, sequences: Iterable[ArrayLike]) -> list[float]:
        """By order from 1: the share of the grams of these texts that training did not have."""
        known = cast(Tensor, self.counts[0].counts) > 0
        unseen = torch.zeros(self.order, dtype=torch.int64, device=self.device)
        tokens = 0
        for sequence in sequences:
            ids = torch.tensor([[BOS, *np.asarray(sequence).tolist(), EOS]], device=self.device)
            lacking = torch.zeros_like(ids, dtype=torch.bool)
            for order, (grams, table) in enumerate(zip(self.grams(ids), self.by_order, strict=True)):
                missing = grams == table.unknown if order else ~known[ids]
                # Nothing stands before BOS: the first tokens keep what holds for all there is before them.
                lacking[:, order:] = missing[:, order:]
                unseen[order] += lacking[:, 1:].sum()
            tokens += ids.shape[1] - 1
        return (unseen / tokens).tolist()


def table(weights: Weights, vocab: int) -> NgramTable:
    with np.errstate(divide="ignore"):  # a probability of 0 has the logarithm that it should
        log_p, log_rest = (torch.from_numpy(np.log(each)).float() for each in (weights.p, weights.rest))
    return NgramTable(torch.from_numpy(weights.keys), log_p, log_rest, vocab, persistent=False)
