"""n-gram language models: counted, smoothed, used as a back-off model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from headwise.ngram.backoff import Backoff, NgramTable, ResizableBuffers
from headwise.ngram.count import Grams, Trie, count_ngrams, empty_trie
from headwise.ngram.smooth import BackoffWeights, Smoothing, compute_weights
from headwise.text import BOS, EOS

SIZES = (torch.uint8, torch.int16, torch.int32, torch.int64)


class Counts(ResizableBuffers):
    """The n-grams of one order as saved: for each context how many tokens follow, which ones, and their counts."""

    following: Tensor
    tokens: Tensor
    counts: Tensor

    def __init__(self, following: Tensor, tokens: Tensor, counts: Tensor):
        super().__init__()
        self.register_buffer("following", following)
        self.register_buffer("tokens", tokens)
        self.register_buffer("counts", counts)

    @classmethod
    def from_grams(cls, grams: Grams, contexts: int, vocab: int) -> Counts:
        following = np.bincount(grams.keys // vocab, minlength=contexts)
        return cls(*map(to_smallest_type, (following, grams.keys % vocab, grams.counts)))

    def to_grams(self, vocab: int) -> Grams:
        following, tokens, counts = (
            stored.cpu().numpy().astype(np.int64) for stored in (self.following, self.tokens, self.counts)
        )
        return Grams(np.repeat(np.arange(len(following)), following) * vocab + tokens, counts)


def to_smallest_type(values: np.ndarray) -> Tensor:
    """The values in the smallest type that holds them.

    >>> to_smallest_type(np.array([3, 300])).dtype
    torch.int16
    """
    largest = int(values.max(initial=0))
    return torch.from_numpy(values).to(next(size for size in SIZES if largest <= torch.iinfo(size).max))


class Ngram(Backoff):
    """An n-gram model, p(token | the order - 1 tokens before it). `fit` counts; checkpoints hold the counts only."""

    def __init__(self, order: int, vocab: int, smoothing: Smoothing):
        super().__init__([], vocab)
        self.smoothing = smoothing
        self._store(empty_trie(order, vocab), torch.get_default_device())
        self.register_load_state_dict_post_hook(lambda module, _: module._build_tables())

    def fit(self, sequences: Iterable[ArrayLike]) -> Ngram:
        """Count texts in one pass; each is the token ids of a line or document without special tokens."""
        self._store(count_ngrams(sequences, self.order, self.vocab), self.device)
        return self

    @property
    def device(self) -> torch.device:
        return self.by_order[0].keys.device

    def _store(self, trie: Trie, device: torch.device) -> None:
        contexts = [1, *(len(grams.keys) for grams in trie)]
        counts = (Counts.from_grams(grams, size, self.vocab) for grams, size in zip(trie, contexts, strict=False))
        self.counts = nn.ModuleList(counts)
        self._build_tables()
        self.to(device)

    def _build_tables(self) -> None:
        """Compute the back-off tables from the counts."""
        trie = [cast(Counts, held).to_grams(self.vocab) for held in self.counts]
        device = cast(Counts, self.counts[0]).counts.device
        weights = compute_weights(trie, self.vocab, self.smoothing)
        self.tables = nn.ModuleList(build_table(each, self.vocab) for each in weights).to(device)

    def unseen_share(self, sequences: Iterable[ArrayLike]) -> list[float]:
        """By order from 1: the share of the n-grams of these texts that do not occur in the training data."""
        known = cast(Tensor, self.counts[0].counts) > 0
        unseen = torch.zeros(self.order, dtype=torch.int64, device=self.device)
        tokens = 0
        for sequence in sequences:
            ids = torch.tensor([[BOS, *np.asarray(sequence).tolist(), EOS]], device=self.device)
            is_unseen = torch.zeros_like(ids, dtype=torch.bool)
            for order, (grams, table) in enumerate(zip(self.find_grams(ids), self.by_order, strict=True)):
                missing = grams == table.unknown if order else ~known[ids]
                # No token precedes BOS: the first tokens keep the value of their longest context.
                is_unseen[:, order:] = missing[:, order:]
                unseen[order] += is_unseen[:, 1:].sum()
            tokens += ids.shape[1] - 1
        return (unseen / tokens).tolist()


def build_table(weights: BackoffWeights, vocab: int) -> NgramTable:
    with np.errstate(divide="ignore"):  # log 0 = -inf is intended
        log_p, log_backoff = (torch.from_numpy(np.log(each)).float() for each in (weights.p, weights.backoff))
    return NgramTable(torch.from_numpy(weights.keys), log_p, log_backoff, vocab, persistent=False)
