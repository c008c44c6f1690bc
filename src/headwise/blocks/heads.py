"""The language model head; the pooler and the MLM transform of BERT. Losses are in `losses.py`.

Letters: B rows, T length, C width, V vocab.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.feedforward import ACTIVATIONS, GATED_ACTIVATIONS
from headwise.blocks.losses import Loss, compute_cross_entropy, compute_loss_from_logits, count_chunk_rows
from headwise.blocks.token_embeddings import TokenTable, compute_logits


class ScaleBy(nn.Module):
    """x * factor."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor

    def extra_repr(self) -> str:
        return f"{self.factor:g}"


class TransposedLinear(nn.Module):
    """x W, with the weight of a linear layer x W^T that it shares: the output side of a factorised embedding whose
    projection is tied."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.linear.weight.t())


class Pooler(nn.Module):
    """The pooler: act(W x + b) of the vector that stands for a text (Devlin et al. 2019: tanh; He et al. 2021:
    GELU)."""

    def __init__(self, width: int, activation: str = "tanh", out: int = 0):
        super().__init__()
        self.dense = nn.Linear(width, out or width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))


class MLMTransform(nn.Module):
    """The MLM transform of BERT before the output embedding: norm(act(W x + b)). In ModernBERT (Warner et al. 2024) it
    is before labels, too."""

    def __init__(self, width: int, out: int, activation: str, norm: nn.Module, bias: bool = True):
        super().__init__()
        self.dense = nn.Linear(width, out, bias)
        # of a gated activation the function of its gate, as there is one product here
        self.activation = (ACTIVATIONS | GATED_ACTIVATIONS)[activation]
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(x)))


SUPPRESSED_BIAS = -1e4  # makes P exactly 0, so that all other probabilities are as without the token


def build_suppression_bias(vocab: int, suppress_ids: Sequence[int]) -> Tensor | None:
    """A fixed bias (V,) under which some tokens are never generated; None where `suppress_ids` is empty."""
    if not suppress_ids:
        return None
    bias = torch.zeros(vocab)
    bias[list(suppress_ids)] = SUPPRESSED_BIAS
    return bias


class OutputLayer(nn.Module):
    """Base of output layers over a vocabulary: vectors to logits, whose softmax is p(token), and to the loss of labels.
    With the table of an embedding, its weights are tied to it (Press and Wolf 2017). `z_loss` is the weight of the
    z-loss, log(Z)^2, in its loss; of a mixture of softmaxes it is 0, as its logits are log-probabilities.

    Further kinds are in `output_layers.py`.
    """

    def __init__(
        self,
        width: int,
        vocab: int,
        table: TokenTable | None = None,
        bias: bool = False,
        pad: int = 0,
        transform: nn.Module | None = None,
        suppress_ids: Sequence[int] = (),
        z_loss: float = 0.0,
    ):
        super().__init__()
        self.transform = transform if transform is not None else nn.Identity()
        self.table: TokenTable = table if table is not None else nn.Embedding(vocab, width)
        self.bias: Tensor | None
        if bias:
            self.bias = nn.Parameter(torch.zeros(vocab))
        else:
            self.register_buffer("bias", build_suppression_bias(vocab, suppress_ids), persistent=False)
        self.pad, self.z_loss = pad, z_loss

    @property
    def vocab(self) -> int:
        return self.table.num_embeddings

    def forward(self, x: Tensor) -> Tensor:
        """Logits of all tokens, (B, T, C) -> (B, T, V)."""
        raise TypeError(f"{type(self).__name__} has no forward method")

    def loss(self, x: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Loss:
        """Cross-entropy loss with label smoothing and z-loss of (B, T, C) against labels (B, T); padding is ignored."""
        raise TypeError(f"{type(self).__name__} has no loss method")


class VocabularyHead(OutputLayer):
    """The language model head: logits = transform(x) W^T (+ b)."""

    def forward(self, x: Tensor) -> Tensor:
        return self.compute_logits(self.transform(x))

    def loss(self, x: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Loss:
        x, settings = self.transform(x), (labels, self.pad, label_smoothing)
        if isinstance(self.table, nn.Embedding):
            return compute_cross_entropy(x, self.table.weight, self.bias, *settings, self.z_loss)
        return compute_loss_from_logits(self.compute_logits, x, *settings, count_chunk_rows(self.vocab), self.z_loss)

    def compute_logits(self, x: Tensor) -> Tensor:
        """Logits of inputs after the transform, (..., C) -> (..., V)."""
        return compute_logits(x, self.table, self.bias)
