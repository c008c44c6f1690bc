"""A hidden Markov language model, fitted to texts without tags by the Baum-Welch algorithm (Baum et al. 1970).

    p(x_1 .. x_n) = sum over z_1 .. z_n of prod_t p(z_t | z_{t-1}) p(x_t | z_t),   x_n = EOS

A text's first state has the probabilities `initial`; after a beginning that is unknown, as in a window of a long text,
states have their average probabilities, `occupancy`. Both passes are in probabilities that are normalised at each
token (Rabiner 1989, section V).

Letters: B texts, R rows, T length, K states, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from headwise.blocks.losses import Loss
from headwise.errors import UserError
from headwise.text import BOS, EOS, PAD
from headwise.utils.notebook import HtmlTree

MAX_LENGTH = 256  # longer texts are fitted in pieces, of which only the first begins with `initial`
BATCH_TOKENS = 2**17  # tokens of a batch of the fit, with padding
EMISSION_PRIOR = 100.0  # pseudo-counts of a state's words, in proportion to the text's words, as a multiple of `k`
SMALLEST_GAIN = 1e-5  # nats for each token; the fit ends when an iteration gains less


@dataclass(frozen=True)
class StateProbabilities:
    """The decoding state: p(state of the next token | the tokens before), (R, K)."""

    probabilities: Tensor

    def select(self, rows: Tensor) -> StateProbabilities:
        return StateProbabilities(self.probabilities[rows])

    def join(self, other: StateProbabilities) -> StateProbabilities:
        return StateProbabilities(torch.cat((self.probabilities, other.probabilities)))


@dataclass
class ExpectedCounts:
    """Expected numbers of first states (K,), transitions (K, K) and emissions (V, K), and the log-likelihood."""

    initial: Tensor
    transition: Tensor
    emission: Tensor
    log_likelihood: float = 0.0
    tokens: int = 0


class HiddenMarkovLanguageModel(HtmlTree, nn.Module):
    """A hidden Markov language model: `fit` maximises the likelihood of texts. Its logits are log-probabilities."""

    start_id, end_id, continues_prompt = BOS, EOS, True
    ragged, joins, unbounded, max_length = True, True, True, 0

    initial: Tensor  # (K,)
    transition: Tensor  # (K, K)  p(next state | state)
    emission: Tensor  # (V, K)  p(token | state)
    occupancy: Tensor  # (K,)

    def __init__(self, vocab: int, states: int = 32, k: float = 0.1, iterations: int = 30):
        super().__init__()
        self.vocab, self.k, self.iterations = vocab, k, iterations
        self.register_buffer("initial", torch.full((states,), 1 / states))
        self.register_buffer("transition", torch.full((states, states), 1 / states))
        self.register_buffer("emission", torch.full((vocab, states), 1 / vocab))
        self.register_buffer("occupancy", torch.full((states,), 1 / states))

    def fit(self, sequences: Iterable[ArrayLike]) -> list[float]:
        """Fit by the Baum-Welch algorithm to texts, each the token ids of a line or document without special tokens.
        Returns the log-likelihood in nats for each token before each iteration."""
        texts = [np.append(np.asarray(text, dtype=np.int64), EOS) for text in sequences]
        if not any(len(text) > 1 for text in texts):
            raise UserError("there is nothing to learn from; check that the training data is not empty")
        frequencies = np.bincount(np.concatenate(texts), minlength=self.vocab) + 0.1
        frequencies[[PAD, BOS]] = 0
        unigram = torch.from_numpy(frequencies / frequencies.sum())
        self.initialise(unigram)
        batches = list(make_batches(texts))
        gains: list[float] = []
        for _ in range(self.iterations):
            counts = self.count(batches)
            self.maximise(counts, unigram)
            gains.append(counts.log_likelihood / counts.tokens)
            if len(gains) > 1 and gains[-1] - gains[-2] < SMALLEST_GAIN:
                break
        return gains

    def initialise(self, unigram: Tensor) -> None:
        """Random probabilities: states are drawn apart, and each emits words nearly as often as the text has them."""
        states = len(self.initial)
        self.initial.copy_(draw_simplex(states))
        self.transition.copy_(draw_simplex(states, states))
        emission = unigram[:, None] * torch.rand(self.vocab, states, dtype=torch.float64).add(0.5)
        self.emission.copy_(emission / emission.sum(0))
        self.occupancy.fill_(1 / states)

    def count(self, batches: Iterable[tuple[Tensor, Tensor]]) -> ExpectedCounts:
        """The E-step: expected counts over batches of ids (B, T), padded, and whether each row begins a text (B,)."""
        exact = torch.float64
        states, device = len(self.initial), self.initial.device
        initial, transition, emission, occupancy = (
            each.to(exact) for each in (self.initial, self.transition, self.emission, self.occupancy)
        )
        counts = ExpectedCounts(
            torch.zeros(states, dtype=exact, device=device),
            torch.zeros(states, states, dtype=exact, device=device),
            torch.zeros(self.vocab, states, dtype=exact, device=device),
        )
        for ids, begins in batches:
            ids, begins = ids.to(device), begins.to(device)
            first = torch.where(begins[:, None], initial, occupancy)
            posterior, joint, log_likelihood = forward_backward(emission[ids], ids != PAD, first, transition)
            counts.initial += posterior[begins, 0].sum(0)
            counts.transition += joint
            counts.emission.index_add_(0, ids.flatten(), posterior.flatten(0, 1))  # padding has posterior 0
            counts.log_likelihood += log_likelihood
            counts.tokens += int((ids != PAD).sum())
        return counts

    def maximise(self, counts: ExpectedCounts, unigram: Tensor) -> None:
        """The M-step: relative frequencies of the expected counts, with `k` pseudo-counts of each transition, and words
        smoothed towards those of the whole text."""
        prior = EMISSION_PRIOR * self.k * unigram.to(counts.emission.device)[:, None]
        self.initial.copy_(normalise(counts.initial + self.k))
        self.transition.copy_(normalise(counts.transition + self.k))
        emission = counts.emission + prior
        self.emission.copy_(emission / emission.sum(0))
        self.occupancy.copy_(normalise(counts.emission.sum(0)))

    def update(self, probabilities: Tensor, tokens: Tensor) -> Tensor:
        """p(next state) (R, K) after a token (R,) of each row more. BOS begins a text; padding changes nothing."""
        posterior = normalise(probabilities * self.emission[tokens])
        following = posterior @ self.transition
        following = torch.where((tokens == BOS)[:, None], self.initial, following)
        return torch.where((tokens == PAD)[:, None], probabilities, following)

    def find_contexts(self, ids: Tensor) -> Tensor:
        """p(state of the next token) after each of (B, T): (B, T, K)."""
        probabilities = self.occupancy.expand(len(ids), -1)
        contexts = []
        for tokens in ids.unbind(1):
            probabilities = self.update(probabilities, tokens)
            contexts.append(probabilities)
        return torch.stack(contexts, dim=1)

    def score(self, contexts: Tensor, tokens: Tensor) -> Tensor:
        """log p of tokens (...) after contexts (..., K)."""
        return (contexts * self.emission[tokens]).sum(-1).log()

    def score_all(self, contexts: Tensor) -> Tensor:
        """log p of every token after contexts (..., K): (..., V)."""
        return (contexts @ self.emission.mT).log()

    def forward(self, ids: Tensor, labels: Tensor | None = None, label_smoothing: float = 0.0) -> Tensor | Loss:
        """log p (B, T, V) of the token after each of (B, T); with labels (B, T) their loss instead. Label smoothing has
        no effect."""
        contexts = self.find_contexts(ids)
        if labels is None:
            return self.score_all(contexts)
        real = labels != PAD
        nll = -self.score(contexts, labels).where(real, 0).sum()
        return Loss(nll, nll, real.sum())

    def start(self, prompt: Tensor, beams: int = 1) -> StateProbabilities:
        """Read the prompts (B, P), which begin with BOS or are empty and may be padded; `beams` rows for each."""
        probabilities = self.occupancy.expand(len(prompt), -1)
        for tokens in prompt.unbind(1):
            probabilities = self.update(probabilities, tokens)
        return StateProbabilities(probabilities.repeat_interleave(beams, dim=0))

    def step(self, tokens: Tensor, state: StateProbabilities) -> tuple[Tensor, StateProbabilities]:
        """One token for each row, (R,) -> log p of the next, (R, V)."""
        probabilities = self.update(state.probabilities, tokens)
        return self.score_all(probabilities), StateProbabilities(probabilities)


def forward_backward(emission: Tensor, keep: Tensor, first: Tensor, transition: Tensor) -> tuple[Tensor, Tensor, float]:
    """The forward-backward algorithm for p(token | state) (B, T, K), with padding on the right, and p(first state)
    (B, K): the posterior of each state (B, T, K), 0 at padding, the expected transitions (K, K) and the log-likelihood.
    """
    filtered, scales = [], []
    predicted = first
    for emitted, real in zip(emission.unbind(1), keep[..., None].unbind(1), strict=True):
        joint = predicted * emitted  # (B, K)
        scale = torch.where(real, joint.sum(-1, keepdim=True), 1.0)  # (B, 1)  p(token | those before)
        filtered.append(torch.where(real, joint / scale, predicted))
        scales.append(scale)
        predicted = filtered[-1] @ transition
    posterior = [filtered[-1]]
    expected = torch.zeros_like(transition)
    backward = torch.ones_like(first)  # p(later tokens | state) / p(later tokens | tokens up to here)
    for t in range(emission.shape[1] - 2, -1, -1):
        # A row whose next token is padding ends here, and backward stays 1.
        real = keep[:, t + 1, None]
        weighted = torch.where(real, emission[:, t + 1] * backward / scales[t + 1], 0.0)  # (B, K)
        expected += transition * (filtered[t].mT @ weighted)  # (K, B) @ (B, K) -> (K, K)
        backward = torch.where(real, weighted @ transition.mT, 1.0)
        posterior.append(filtered[t] * backward)
    log_likelihood = float(torch.stack(scales).log().sum())
    return torch.stack(posterior[::-1], dim=1) * keep[..., None], expected, log_likelihood


def make_batches(texts: Sequence[np.ndarray]) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of ids (B, T) of similar length, padded on the right, and whether each row begins a text (B,)."""
    pieces = [(text[at : at + MAX_LENGTH], at == 0) for text in texts for at in range(0, len(text), MAX_LENGTH)]
    pieces.sort(key=lambda piece: len(piece[0]))
    start = 0
    while start < len(pieces):
        end = start + 1
        while end < len(pieces) and (end + 1 - start) * len(pieces[end][0]) <= BATCH_TOKENS:
            end += 1
        rows = pieces[start:end]
        ids = np.full((len(rows), len(rows[-1][0])), PAD)
        for row, (piece, _) in zip(ids, rows, strict=True):
            row[: len(piece)] = piece
        yield torch.from_numpy(ids), torch.tensor([begins for _, begins in rows])
        start = end


def normalise(weights: Tensor) -> Tensor:
    """Weights divided by their sum over the last dimension."""
    return weights / weights.sum(-1, keepdim=True)


def draw_simplex(*shape: int) -> Tensor:
    """Random probabilities, uniform over the simplex of the last dimension."""
    return normalise(torch.rand(shape, dtype=torch.float64).clamp(min=1e-9).log().neg())
