"""Skip-gram and continuous bag of words (CBOW) with negative sampling (Mikolov et al. 2013), as matrix products on one
thread.

    skip-gram   -log s(u_w . v_c) - sum over K random words r of log s(-u_w . v_r)      for each word w with a context c
    CBOW        -log s(h_w . v_w) - sum over K random words r of log s(-h_w . v_r)      h_w: mean of u_c near the word w

Negative samples are drawn once for a row of words and shared by its pairs, weighted so that each pair has K of them
on average (after Ji et al. 2016). Gradients are computed by hand, since a step touches few rows of the tables.

Letters: B rows, L words of a row, N context positions, R negative samples, M candidates with them; C width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor, nn

from headwise.embeddings.windows import LENGTH, Rows, Text, make_rows, subsample
from headwise.errors import UserError
from headwise.utils.notebook import HtmlTree

if TYPE_CHECKING:
    from headwise.models.skipgram import WordVectorConfig


class WordVectors(HtmlTree, nn.Module):
    """Word vectors trained with negative sampling: two tables in buffers, of which the first is kept. Subclasses say
    which pairs of vectors are scored."""

    vectors: Tensor  # (vocab, C)
    contexts: Tensor  # (vocab, C)
    counts: Tensor  # (vocab,)  occurrences of each word

    def __init__(self, vocab: int, config: WordVectorConfig):
        super().__init__()
        self.config = config
        self.register_buffer("vectors", (torch.rand(vocab, config.width) - 0.5) / config.width)
        self.register_buffer("contexts", torch.zeros(vocab, config.width))
        self.register_buffer("counts", torch.zeros(vocab, dtype=torch.int64))

    def fit(self, texts: Iterable[ArrayLike]) -> float:
        """Train on texts, each the token ids of a line or document; returns the last epoch's loss per pair."""
        text, config = Text.from_ids(texts), self.config
        if len(text) < 2:
            raise UserError("there is nothing to learn vectors from: the text has no two words of the vocabulary")
        counts = np.bincount(text.words, minlength=len(self.counts))
        self.counts.copy_(torch.from_numpy(counts))
        random = np.random.default_rng(int(torch.randint(2**62, ())))
        noise = NegativeSampler(counts, config.power, random)
        optimizers = [Adagrad(self.vectors), Adagrad(self.contexts)]
        loss = 0.0
        for epoch in range(config.epochs):
            sample = subsample(text, counts / len(text), config.subsample, random)
            total, pairs, done = self.counts.new_zeros((), dtype=torch.float64), 0, 0
            for batch in make_rows(sample, config.window, random):
                rate = config.lr * (1 - (epoch + done / max(len(sample), 1)) / config.epochs)
                total += self.learn(batch, noise, optimizers, rate)
                pairs += self.count_pairs(batch)
                done += batch.words.size
            loss = float(total) / max(pairs, 1)
        return loss

    def count_pairs(self, batch: Rows) -> int:
        """The number of positive pairs in the loss of some rows."""
        raise TypeError(f"{type(self).__name__} has no count_pairs method")

    def learn(self, batch: Rows, noise: NegativeSampler, optimizers: list[Adagrad], rate: float) -> Tensor:
        """One step on some rows; returns their summed loss as a tensor, without synchronisation."""
        raise TypeError(f"{type(self).__name__} has no learn method")

    def score(self, batch: Rows, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The row of each true pair (P,), its score (P, 1), and those with the negative samples (B, R) in its place
        (P, R)."""
        raise TypeError(f"{type(self).__name__} has no score method")

    @torch.inference_mode()
    def rank_contexts(self, texts: Iterable[ArrayLike], others: int = 99) -> tuple[np.ndarray, np.ndarray]:
        """Rank true pairs against random words on these texts, subsampled as in training. For each row: the share of
        `others` random words with a lower score, summed over its pairs (a tie counts half); and its number of pairs."""
        random = np.random.default_rng(0)
        counts = self.counts.cpu().numpy()
        noise = NegativeSampler(counts, self.config.power, random)
        text = subsample(Text.from_ids(texts), counts / counts.sum(), self.config.subsample, random)
        wins, pairs = [np.zeros(0)], [np.zeros(0)]
        for batch in make_rows(text, self.config.window, random, shrink=False):
            negatives = torch.from_numpy(noise.draw((len(batch.words), others))).to(self.vectors.device)
            row, true_scores, negative_scores = self.score(batch, negatives)
            win_rate = ((true_scores > negative_scores).double() + 0.5 * (true_scores == negative_scores)).mean(1)
            wins.append(torch.bincount(row, win_rate, minlength=len(batch.words)).cpu().numpy())
            pairs.append(torch.bincount(row, minlength=len(batch.words)).double().cpu().numpy())
        return np.concatenate(wins), np.concatenate(pairs)


class SkipGram(WordVectors):
    """Skip-gram: a word's vector predicts each word of its context."""

    def count_pairs(self, batch: Rows) -> int:
        return int(batch.pairs.sum())

    def learn(self, batch: Rows, noise: NegativeSampler, optimizers: list[Adagrad], rate: float) -> Tensor:
        device = self.vectors.device
        negatives = noise.draw((len(batch.words), LENGTH))
        words, candidates = (
            torch.from_numpy(ids).to(device)
            for ids in (batch.words, np.concatenate([batch.contexts, negatives], axis=1))
        )
        label, weight = (
            tensor.to(self.vectors) for tensor in label_and_weigh(batch.pairs, LENGTH, self.config.negatives)
        )
        loss, *gradients = sgns_loss(self.vectors[words], self.contexts[candidates], weight, label)
        for optimizer, ids, gradient in zip(optimizers, (words, candidates), gradients, strict=True):
            optimizer(ids, gradient, rate)
        return loss

    def score(self, batch: Rows, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        device = self.vectors.device
        words, contexts = (torch.from_numpy(ids).to(device) for ids in (batch.words, batch.contexts))
        row, word, position = torch.from_numpy(batch.pairs).to(device).nonzero(as_tuple=True)
        u = self.vectors[words]
        true_scores = (u @ self.contexts[contexts].mT)[row, word, position, None]  # (B, L, N) -> (P, 1)
        return row, true_scores, (u @ self.contexts[negatives].mT)[row, word]  # (B, L, R) -> (P, R)


class ContinuousBagOfWords(WordVectors):
    """CBOW: the mean of the context's vectors predicts the word.

    DISCREPANCY: the released word2vec adds the mean's gradient to each vector of the context without dividing it by
    their number; here it is the gradient of the loss.
    """

    def count_pairs(self, batch: Rows) -> int:
        return int(batch.pairs.any(-1).sum())

    def learn(self, batch: Rows, noise: NegativeSampler, optimizers: list[Adagrad], rate: float) -> Tensor:
        device = self.vectors.device
        negatives = noise.draw((len(batch.words), LENGTH))
        contexts, candidates = (
            torch.from_numpy(ids).to(device)
            for ids in (batch.contexts, np.concatenate([batch.words, negatives], axis=1))
        )
        shares = compute_context_shares(batch.pairs).to(self.vectors)
        has_context = np.any(batch.pairs, axis=-1, keepdims=True)  # (B, L, 1)
        targets = np.eye(batch.words.shape[1], dtype=bool) & has_context  # (B, L, L): each word its own
        label, weight = (tensor.to(self.vectors) for tensor in label_and_weigh(targets, LENGTH, self.config.negatives))
        means = shares @ self.vectors[contexts]  # (B, L, N) @ (B, N, C) -> (B, L, C)
        loss, mean_gradient, candidate_gradient = sgns_loss(means, self.contexts[candidates], weight, label)
        optimizers[0](contexts, shares.mT @ mean_gradient, rate)
        optimizers[1](candidates, candidate_gradient, rate)
        return loss

    def score(self, batch: Rows, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        device = self.vectors.device
        words, contexts = (torch.from_numpy(ids).to(device) for ids in (batch.words, batch.contexts))
        row, word = torch.from_numpy(batch.pairs.any(-1)).to(device).nonzero(as_tuple=True)
        means = compute_context_shares(batch.pairs).to(self.vectors) @ self.vectors[contexts]  # (B, L, C)
        true_scores = (means * self.contexts[words]).sum(-1)[row, word, None]  # (B, L) -> (P, 1)
        return row, true_scores, (means @ self.contexts[negatives].mT)[row, word]  # (B, L, R) -> (P, R)


def compute_context_shares(pairs: np.ndarray) -> Tensor:
    """The weight of each context position in a word's mean (B, L, N): 1 / its number of contexts, or 0."""
    shares = torch.from_numpy(pairs).float()
    return shares / shares.sum(-1, keepdim=True).clamp(min=1)


class NegativeSampler:
    """Samples words with probability proportional to count ** power."""

    def __init__(self, counts: np.ndarray, power: float, random: np.random.Generator):
        weights = np.where(counts > 0, counts.astype(float) ** power, 0.0)
        self.ends = np.cumsum(weights) / weights.sum()
        self.random = random

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.searchsorted(self.ends, self.random.random(shape), side="right")


def label_and_weigh(pairs: np.ndarray, drawn: int, negatives: float) -> tuple[Tensor, Tensor]:
    """Labels and weights (B, L, M) of contexts and negative samples: the `drawn` samples of a word share the weight
    of `negatives` for each of its pairs."""
    label = F.pad(torch.from_numpy(pairs).float(), (0, drawn))  # (B, L, N) -> (B, L, M)
    weight = label.clone()
    weight[..., -drawn:] = label.sum(-1, keepdim=True) * (negatives / drawn)
    return label, weight


def sgns_loss(u: Tensor, v: Tensor, weight: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The summed loss of words u (B, L, C) and candidates v (B, M, C), and its gradients for both.

    With scores s = u v^T it is weight * log(1 + e^s) - label * s: -log s(s) for a pair, -log s(-s) for a negative.
    """
    scores = u @ v.mT  # (B, L, M)
    loss = (weight * F.softplus(scores)).sum() - (label * scores).sum()
    gradient = scores.sigmoid_().mul_(weight).sub_(label)
    return loss, gradient @ v, gradient.mT @ u


class Adagrad:
    """Adagrad (Duchi et al. 2011) with one sum of squares for each row, touching only the rows of a step."""

    def __init__(self, table: Tensor):
        self.table = table
        self.squares = table.new_zeros(len(table))

    def __call__(self, ids: Tensor, gradients: Tensor, rate: float) -> None:
        """Update the rows `ids` (B, M) with their gradients (B, M, C), summed over repeated rows."""
        rows, inverse = ids.flatten().unique(return_inverse=True)
        sums = gradients.new_zeros(len(rows), gradients.shape[-1]).index_add_(0, inverse, gradients.flatten(0, 1))
        self.squares.index_add_(0, rows, sums.square().mean(1))
        sums *= (rate * self.squares[rows].add(1e-12).rsqrt())[:, None]
        self.table.index_add_(0, rows, sums, alpha=-1)
