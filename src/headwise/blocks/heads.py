"""From vectors to words: logits, and the vocabulary loss in chunks (I7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Loss:
    """Sums over tokens, so that batches of different size add up rightly."""

    total: Tensor  # what to differentiate: the smoothed loss, summed
    nll: Tensor  # plain negative log-likelihood, summed, without gradient
    count: Tensor  # how many tokens


class ChunkedLoss(torch.autograd.Function):
    """sum_t [logsumexp(z_t) - (1-e) z_t[y_t] - e mean(z_t)] with z = x W^T + b, some rows at a time.

    The gradient softmax(z) - (1-e) onehot(y) - e/V is taken at once while a chunk's logits are at hand, so neither
    the logits nor their softmax are ever stored whole: a few passes less over memory, and far less of it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        pad: int,
        smoothing: float,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        vocab = len(weight)
        real = (labels != pad).to(x.dtype).unsqueeze(-1)  # (N, 1)
        learning = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        total, nll = x.new_zeros(()), x.new_zeros(())
        grad_x = torch.empty_like(x) if learning else None
        grad_weight = torch.zeros_like(weight) if learning else None
        grad_bias = torch.zeros_like(bias) if learning and bias is not None else None
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            logits = F.linear(x[part], weight, bias)  # (n, V)
            label = labels[part].unsqueeze(-1)
            lse = logits.logsumexp(-1, keepdim=True)
            plain = lse - logits.gather(-1, label)
            smooth = (lse - logits.mean(-1, keepdim=True)) if smoothing else plain
            nll += (plain * real[part]).sum()
            total += (((1 - smoothing) * plain + smoothing * smooth) * real[part]).sum()
            if grad_x is not None and grad_weight is not None:
                grad = logits.sub_(lse).exp_()
                if smoothing:
                    grad.sub_(smoothing / vocab)
                grad.scatter_add_(-1, label, torch.full_like(lse, smoothing - 1).to(grad.dtype))
                grad_x[part] = (grad @ weight) * real[part]
                grad_weight.addmm_(grad.t(), x[part] * real[part])
                if grad_bias is not None:
                    grad_bias += (grad * real[part]).sum(0)
        ctx.save_for_backward(*(g for g in (grad_x, grad_weight, grad_bias) if g is not None))
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, _: Any) -> Any:
        grad_x, grad_weight, *grad_bias = (grad * grad_total for grad in ctx.saved_tensors)
        return grad_x, grad_weight, (grad_bias[0] if grad_bias else None), None, None, None, None


class VocabularyHead(nn.Module):
    """logits = x W^T (+ b). Tied to an embedding when its table is given (Press and Wolf 2017)."""

    def __init__(self, width: int, vocab: int, table: nn.Embedding | None = None, bias: bool = False, pad: int = 0):
        super().__init__()
        self.table = table if table is not None else nn.Embedding(vocab, width)
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None
        self.pad = pad

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.table.weight, self.bias)

    def loss(self, x: Tensor, labels: Tensor, smoothing: float = 0.0) -> Loss:
        """The loss of (B, T, C) against (B, T) labels; places whose label is the padding do not count."""
        flat, labels = x.reshape(-1, x.shape[-1]), labels.reshape(-1)
        weight = self.table.weight
        # Chunks of about 16 MB stay near the caches; fewer rows would starve the matrix products.
        rows = max(128, 4_194_304 // len(weight))
        total, nll = ChunkedLoss.apply(flat, weight, self.bias, labels, self.pad, smoothing, rows)
        return Loss(total, nll, (labels != self.pad).sum())
