"""Skip-gram with negative sampling (Mikolov et al. 2013, equation 4), in matrix products on one thread.

    -log s(u_w . v_c) - sum over K random words r of log s(-u_w . v_r)      for each word w with a context c near it

The random words are drawn once for a row of words and shared by its pairs, weighted so that each pair has K of them
on average (after Ji et al. 2016). Gradients are written out, as the tables are far larger than what a step touches.

Letters: B rows, L words of a row, M candidates, which are the N places of contexts and the random words; C width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor, nn

from headwise.embeddings.windows import LENGTH, Rows, Text, rows, thinned
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.models.skipgram import SkipGramConfig


class SkipGram(nn.Module):
    """A vector for each word, and one for each word as a context of others. `fit` learns them; no parameters."""

    vectors: Tensor  # (vocab, C)
    contexts: Tensor  # (vocab, C)
    counts: Tensor  # (vocab,)  how often each word was read

    def __init__(self, vocab: int, config: SkipGramConfig):
        super().__init__()
        self.config = config
        self.register_buffer("vectors", (torch.rand(vocab, config.width) - 0.5) / config.width)
        self.register_buffer("contexts", torch.zeros(vocab, config.width))
        self.register_buffer("counts", torch.zeros(vocab, dtype=torch.int64))

    def fit(self, texts: Iterable[ArrayLike]) -> float:
        """Learn from texts, each the token ids of a line or document; returns the last epoch's loss a pair."""
        text, config = Text.of(texts), self.config
        if len(text) < 2:
            raise UserError("there is nothing to learn vectors from: the text has no two words of the vocabulary")
        counts = np.bincount(text.words, minlength=len(self.counts))
        self.counts.copy_(torch.from_numpy(counts))
        random = np.random.default_rng(int(torch.randint(2**62, ())))
        noise = Noise(counts, config.power, random)
        steps = [Adagrad(self.vectors), Adagrad(self.contexts)]
        loss = 0.0
        for epoch in range(config.epochs):
            kept = thinned(text, counts / len(text), config.subsample, random)
            total, pairs, done = self.counts.new_zeros((), dtype=torch.float64), 0, 0
            for found in rows(kept, config.window, random):
                rate = config.lr * (1 - (epoch + done / max(len(kept), 1)) / config.epochs)
                total += self.learn(found, noise, steps, rate)
                pairs += int(found.pairs.sum())
                done += found.words.size
            loss = float(total) / max(pairs, 1)
        return loss

    def learn(self, found: Rows, noise: Noise, steps: list[Adagrad], rate: float) -> Tensor:
        """One step on some rows; their summed loss, not yet read."""
        device = self.vectors.device
        others = noise.draw((len(found.words), LENGTH))
        words, candidates = (
            torch.from_numpy(ids).to(device) for ids in (found.words, np.concatenate([found.near, others], axis=1))
        )
        label, weight = (each.to(device) for each in balance(found.pairs, LENGTH, self.config.negatives))
        loss, *slopes = objective(self.vectors[words], self.contexts[candidates], weight, label)
        for step, ids, slope in zip(steps, (words, candidates), slopes, strict=True):
            step(ids, slope, rate)
        return loss

    @torch.inference_mode()
    def contest(self, texts: Iterable[ArrayLike], others: int = 99) -> tuple[np.ndarray, np.ndarray]:
        """For each row of words of these texts, thinned out as in training: how many random words its contexts beat,
        on average over `others` and summed over the pairs (an even match is half a win); and how many pairs it has."""
        random = np.random.default_rng(0)
        counts = self.counts.cpu().numpy()
        noise = Noise(counts, self.config.power, random)
        text = thinned(Text.of(texts), counts / counts.sum(), self.config.subsample, random)
        device = self.vectors.device
        wins, pairs = [np.zeros(0)], [np.zeros(0)]
        for found in rows(text, self.config.window, random, shrink=False):
            drawn = torch.from_numpy(noise.draw((len(found.words), others))).to(device)
            words, near = (torch.from_numpy(ids).to(device) for ids in (found.words, found.near))
            row, word, place = torch.from_numpy(found.pairs).to(device).nonzero(as_tuple=True)
            u = self.vectors[words]
            right = (u @ self.contexts[near].mT)[row, word, place, None]  # (B, L, N) -> (pairs, 1)
            wrong = (u @ self.contexts[drawn].mT)[row, word]  # (B, L, others) -> (pairs, others)
            won = ((right > wrong).double() + 0.5 * (right == wrong)).mean(1)
            wins.append(torch.bincount(row, won, minlength=len(words)).cpu().numpy())
            pairs.append(found.pairs.sum((1, 2)).astype(float))
        return np.concatenate(wins), np.concatenate(pairs)


class Noise:
    """Random words in proportion to count ** power."""

    def __init__(self, counts: np.ndarray, power: float, random: np.random.Generator):
        weights = np.where(counts > 0, counts.astype(float) ** power, 0.0)
        self.ends = np.cumsum(weights) / weights.sum()
        self.random = random

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.searchsorted(self.ends, self.random.random(shape), side="right")


def balance(pairs: np.ndarray, drawn: int, negatives: float) -> tuple[Tensor, Tensor]:
    """Labels and weights (B, L, M) of contexts and random words: a word's `drawn` random words share the weight of
    `negatives` for each of its pairs."""
    label = F.pad(torch.from_numpy(pairs).float(), (0, drawn))  # (B, L, N) -> (B, L, M)
    weight = label.clone()
    weight[..., -drawn:] = label.sum(-1, keepdim=True) * (negatives / drawn)
    return label, weight


def objective(u: Tensor, v: Tensor, weight: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The summed loss of words u (B, L, C) and candidates v (B, M, C), and its slopes for both.

    With scores s = u v^T it is weight * log(1 + e^s) - label * s: -log s(s) for a pair, -log s(-s) for a random word.
    """
    scores = u @ v.mT  # (B, L, M)
    loss = (weight * F.softplus(scores)).sum() - (label * scores).sum()
    slope = scores.sigmoid_().mul_(weight).sub_(label)
    return loss, slope @ v, slope.mT @ u


class Adagrad:
    """Adagrad (Duchi et al. 2011) with one sum of squares for each row, touching only the rows of a step."""

    def __init__(self, table: Tensor):
        self.table = table
        self.squares = table.new_zeros(len(table))

    def __call__(self, ids: Tensor, slopes: Tensor, rate: float) -> None:
        """Descend by the slopes (B, M, C) of the rows `ids` (B, M); a row that stands there twice adds up."""
        rows, where = ids.flatten().unique(return_inverse=True)
        sums = slopes.new_zeros(len(rows), slopes.shape[-1]).index_add_(0, where, slopes.flatten(0, 1))
        self.squares.index_add_(0, rows, sums.square().mean(1))
        sums *= (rate * self.squares[rows].add(1e-12).rsqrt())[:, None]
        self.table.index_add_(0, rows, sums, alpha=-1)
