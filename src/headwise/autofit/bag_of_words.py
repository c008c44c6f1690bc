"""Bags of words: TF-IDF features of texts, linear models on them, and nearest neighbours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

MAX_FEATURES = 200_000
MAX_TEXTS = 50_000  # texts that a linear model is fitted on, at most
_WORD = re.compile(r"\w+|[^\w\s]")

Analyse = Callable[[str], list[str]]


def split_word_bigrams(text: str) -> list[str]:
    """Words, punctuation and pairs of neighbours, in lower case.

    >>> split_word_bigrams("Not bad!")
    ['not', 'bad', '!', 'not bad', 'bad !']
    """
    words = _WORD.findall(text.lower())
    return words + [f"{first} {second}" for first, second in pairwise(words)]


def split_character_trigrams(text: str) -> list[str]:
    """
    >>> split_character_trigrams("abc")
    ['^ab', 'abc', 'bc$']
    """
    padded = f"^{text.lower()}$"
    return [padded[start : start + 3] for start in range(max(len(padded) - 2, 1))]


class TfIdf:
    """TF-IDF with logarithmic counts: (1 + log tf) (1 + log((1 + n) / (1 + df))), in rows of length 1."""

    def __init__(self, texts: Sequence[str], analyse: Analyse = split_word_bigrams):
        self.analyse = analyse
        document_counts = Counter(term for text in texts for term in set(analyse(text)))
        common = document_counts.most_common(MAX_FEATURES)
        self.numbers = {term: number for number, (term, _) in enumerate(common)}
        self.idf = 1 + np.log((1 + len(texts)) / (1 + np.array([count for _, count in common], float)))

    def __len__(self) -> int:
        return max(len(self.numbers), 1)

    def transform(self, texts: Iterable[str]) -> Tensor:
        """The features of texts as a sparse matrix (texts, features); terms that were not fitted are left out."""
        rows, columns, weights = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        count = 0
        for count, text in enumerate(texts, 1):
            counts = Counter(self.numbers[term] for term in self.analyse(text) if term in self.numbers)
            numbers = np.fromiter(counts.keys(), np.int64, len(counts))
            values = (1 + np.log(np.fromiter(counts.values(), float, len(counts)))) * self.idf[numbers]
            rows.append(np.full(len(counts), count - 1))
            columns.append(numbers)
            weights.append(values / max(float(np.linalg.norm(values)), 1e-12))
        indices = np.stack([np.concatenate([np.zeros(0, np.int64), *part]) for part in (rows, columns)])
        values = torch.from_numpy(np.concatenate([np.zeros(0), *weights]))
        return torch.sparse_coo_tensor(
            torch.from_numpy(indices), values, (count, len(self)), check_invariants=False
        ).coalesce()


def fit_linear(features: Tensor, targets: Tensor, penalty: float = 1.0) -> tuple[Tensor, Tensor]:
    """Weights (features, outputs) and bias of a linear model with an L2 penalty, by L-BFGS.

    Integer targets (N,) are classes: multinomial logistic regression. Others, (N, outputs), are numbers: ridge
    regression. As in scikit-learn, the penalty is relative to the summed loss, and the bias has none.
    """
    classes = not targets.is_floating_point()
    outputs = int(targets.max()) + 1 if classes else targets.shape[1]
    count, width = features.shape
    table = torch.zeros(width, outputs, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(outputs, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([table, bias], max_iter=100, history_size=10, line_search_fn="strong_wolfe")
    transposed = features.t().coalesce()

    def closure() -> Tensor:
        with torch.no_grad():
            predictions = torch.sparse.mm(features, table) + bias
        predictions.requires_grad_()
        loss = F.cross_entropy(predictions, targets) if classes else F.mse_loss(predictions, targets) / 2
        (gradient,) = torch.autograd.grad(loss, predictions)
        # Of a sparse product, autograd would build a gradient for the features as well.
        table.grad = torch.sparse.mm(transposed, gradient) + penalty / count * table.detach()
        bias.grad = gradient.sum(0)
        return loss.detach() + penalty / (2 * count) * table.detach().square().sum()

    optimizer.step(closure)
    return table.detach(), bias.detach()


def find_nearest(train: Sequence[str], queries: Sequence[str], analyse: Analyse, at_once: int = 64) -> list[int]:
    """The number of the most similar training text for each query, by the cosine of TF-IDF features."""
    model = TfIdf(train, analyse)
    features = model.transform(train)
    nearest: list[int] = []
    for start in range(0, len(queries), at_once):
        chunk = model.transform(queries[start : start + at_once]).to_dense().T.contiguous()
        nearest += torch.sparse.mm(features, chunk).argmax(0).tolist()
    return nearest
