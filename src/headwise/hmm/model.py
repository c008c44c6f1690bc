"""A hidden Markov model tagger, fitted by counting (Brants 2000, "TnT").

    p(words, tags) = Π_i p(t_i | t_{i-1}, ..) p(w_i | t_i),   t_0 = BOS, t_{n+1} = EOS

Log-probabilities are buffers whose sizes depend on the settings alone, so checkpoints work as for any other model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from headwise.errors import UserError
from headwise.hmm.endings import MAX_RARE_COUNT, fit_suffixes, hash_key, suffix_keys
from headwise.hmm.viterbi import viterbi
from headwise.text import BOS, EOS, PAD, UNK
from headwise.utils.notebook import HtmlTree

BATCH_TRANSITIONS = 2**20  # state transitions compared at a time: they fit in the CPU cache
UNUSED = 2**63 - 1  # fills unused entries; larger than any hash, so that the table stays sorted


class HiddenMarkov(HtmlTree, nn.Module):
    """A hidden Markov model: `fit` counts, `tag` finds the best tags. Word and tag ids include the special ones."""

    transition: Tensor  # (K, .., K)  log p(tag | tags before), as many dimensions as the order
    emission: Tensor  # (vocab, K)  log p(word | tag)
    known: Tensor  # (vocab,)  was it seen in training?
    endings: Tensor  # (endings,)  hashes of suffix keys, ascending
    likelihood: Tensor  # (endings, K)  log p(tag | key) / p(tag), which is p(key | tag) but for a constant

    def __init__(self, vocab: int, tags: int, order: int = 2, k: float = 0.1, suffix: int = 5, endings: int = 32_768):
        super().__init__()
        self.order, self.k, self.suffix = order, k, suffix
        self.register_buffer("transition", torch.zeros((tags,) * order))
        self.register_buffer("emission", torch.zeros(vocab, tags))
        self.register_buffer("known", torch.zeros(vocab, dtype=torch.bool))
        self.register_buffer("endings", torch.full((endings,), UNUSED))
        self.register_buffer("likelihood", torch.zeros(endings, tags))

    def fit(self, examples: Iterable[tuple[np.ndarray, np.ndarray]], vocabulary: Sequence[str] = ()) -> None:
        """Count (word ids, tag ids). With the `vocabulary`, the words of the ids, suffix statistics are fitted, too."""
        rows = list(examples)
        for number, (words, tags) in enumerate(rows, 1):
            if len(words) != len(tags):
                raise UserError(f"example {number}: {len(words)} words but {len(tags)} tags; give each word one tag")
        if not any(len(words) for words, _ in rows):
            raise UserError("there is nothing to learn tags from; check that the training data is not empty")
        self._count(rows, vocabulary)

    def _count(self, rows: Sequence[tuple[np.ndarray, np.ndarray]], vocabulary: Sequence[str]) -> None:
        vocab, tags = self.emission.shape
        words, followed = (np.concatenate([row[side] for row in rows]).astype(np.int64) for side in (0, 1))
        counts = np.bincount(words * tags + followed, minlength=vocab * tags).reshape(vocab, tags).astype(float)
        seen = counts.sum(0) > 0
        self.transition.copy_(torch.from_numpy(_log(self._estimate_transitions([row[1] for row in rows], seen))))
        self.known.copy_(torch.from_numpy(counts.sum(1) > 0))
        self.known[UNK] = False
        self._fit_endings(counts, vocabulary)
        self._fit_emission(counts, seen)

    def _estimate_transitions(self, sentences: Sequence[np.ndarray], seen: np.ndarray) -> np.ndarray:
        """p_n(t | u v) = (c(u v t) + k V p_{n-1}(t | v)) / (c(u v) + k V): add-k, towards the shorter history."""
        tags = len(seen)
        start, end = np.full(self.order - 1, BOS), np.full(1, EOS)
        pieces = [piece for sentence in sentences for piece in (start, sentence, end)]
        grams = np.lib.stride_tricks.sliding_window_view(np.concatenate(pieces).astype(np.int64), self.order)
        grams = grams[grams[:, -1] != BOS]  # windows that end with BOS span two sentences
        places = grams @ tags ** np.arange(self.order)[::-1]
        counts = np.bincount(places, minlength=tags**self.order).reshape((tags,) * self.order)
        after = seen.copy()
        after[EOS] = True
        shares = after / after.sum()
        for length in range(2, self.order + 1):
            some = counts.sum(tuple(range(self.order - length)))
            pseudo = self.k * after.sum()
            shares = (some + pseudo * shares) / (some.sum(-1, keepdims=True) + pseudo)
        return shares

    def _fit_emission(self, counts: np.ndarray, seen: np.ndarray) -> None:
        """p(w | t) = c(w, t) / c(t), where words seen once stand for the unknown one too."""
        once = counts[counts.sum(1) == 1].sum(0)
        counts[UNK] += once + self.k * seen
        table = torch.from_numpy(_log(counts / np.maximum(counts.sum(0), 1e-9))).to(self.emission)
        self.emission.copy_(torch.where(self.known[:, None], table, table[UNK]))

    def _fit_endings(self, counts: np.ndarray, vocabulary: Sequence[str]) -> None:
        """Fit suffixes on rare words, which resemble unknown words most."""
        sizes = counts.sum(1)
        sizes[: UNK + 1] = 0
        rare = np.flatnonzero((sizes > 0) & (sizes <= MAX_RARE_COUNT)) if len(vocabulary) else np.array([], int)
        self.endings.fill_(UNUSED)
        if not len(rare) or not len(self.endings):
            return
        ids, shares = fit_suffixes([vocabulary[word] for word in rare], counts[rare], self.suffix, len(self.endings))
        self.endings[: len(ids)] = torch.from_numpy(ids)
        prior = np.maximum(counts.sum(0), 1e-9) / counts.sum()
        self.likelihood[: len(ids)] = torch.from_numpy(_log(shares / prior)).to(self.likelihood)

    def tag(self, ids: Tensor, keep: Tensor | None = None, texts: Sequence[Sequence[str]] | None = None) -> Tensor:
        """The best tags of word ids (B, T). With the words' `texts`, unknown words are scored by their suffixes."""
        keep = ids != PAD if keep is None else keep
        emission = self.emission[ids]  # (B, T) -> (B, T, K)
        if texts is not None:
            unknown = keep & ~self.known[ids]
            words = [texts[row][place] for row, place in unknown.nonzero().tolist()]
            emission[unknown] = self._score_unknown(words)
        rows = max(1, BATCH_TRANSITIONS // self.transition.numel())
        parts = zip(emission.split(rows), keep.split(rows), strict=True)
        return torch.cat([viterbi(*part, self.transition) for part in parts])

    def _score_unknown(self, words: Sequence[str]) -> Tensor:
        """log p(word | tag) up to a constant, (words, K), by the longest known suffix."""
        likelihood = self.emission[UNK].repeat(len(words), 1)
        if not words or not len(self.endings):
            return likelihood
        word_keys = [suffix_keys(word, self.suffix) for word in words]
        longest = self.suffix + 2  # pad the keys of short words with the first key
        hashes = [[hash_key(key) for key in [""] * (longest - len(keys)) + keys] for keys in word_keys]
        wanted = torch.tensor(hashes, device=self.endings.device).flip(1)
        indices = torch.searchsorted(self.endings, wanted).clamp(max=len(self.endings) - 1)
        is_known = self.endings[indices] == wanted
        index = indices.gather(1, is_known.int().argmax(1, keepdim=True))[:, 0]  # the first, so the longest
        return torch.where(is_known.any(1, keepdim=True), self.likelihood[index], likelihood)


def _log(shares: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(shares)
