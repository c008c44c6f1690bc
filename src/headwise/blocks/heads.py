"""From vectors to words: logits, and the vocabulary loss in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from headwise.blocks.feedforward import GATED, PLAIN


@dataclass(frozen=True, slots=True)
class Loss:
    """Sums over tokens, so that batches of different size add up rightly."""

    total: Tensor  # what to differentiate: the smoothed loss, summed
    nll: Tensor  # plain negative log-likelihood, summed, without gradient
    count: Tensor  # how many tokens


class ChunkedLoss(torch.autograd.Function):
    """-sum_t [(1-e) log p_t[y_t] + e mean(log p_t)] with p = softmax(x W^T + b), some rows at a time.

    The gradient p - (1-e) onehot(y) - e/V is taken at once while a chunk's logits are at hand, so neither
    the logits nor their softmax are ever stored whole: a few passes less over memory, and far less of it. Under
    autocast only the matrix products are in low precision.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        pad: int,
        label_smoothing: float,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        low = product_dtype(weight)
        table, shift = weight.to(low), None if bias is None else bias.to(low)
        exact = torch.promote_types(x.dtype, torch.float32)
        real = (labels != pad).to(exact).unsqueeze(-1)  # (N, 1)
        learning = any(ctx.needs_input_grad[:3])
        total, nll = x.new_zeros((), dtype=exact), x.new_zeros((), dtype=exact)
        grad_x = torch.empty_like(x) if learning else None
        grad_weight = torch.zeros_like(weight) if learning else None
        grad_bias = torch.zeros_like(bias) if learning and bias is not None else None
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            log_p = F.linear(x[part].to(low), table, shift).log_softmax(-1, dtype=exact)  # (n, V)
            label = labels[part].unsqueeze(-1)
            plain = -log_p.gather(-1, label)
            smooth = -log_p.mean(-1, keepdim=True) if label_smoothing else plain
            nll += (plain * real[part]).sum()
            total += (((1 - label_smoothing) * plain + label_smoothing * smooth) * real[part]).sum()
            if grad_x is not None and grad_weight is not None:
                grad = slope_(log_p, label, label_smoothing)
                if grad_bias is not None:
                    grad_bias += (grad * real[part]).sum(0)
                grad = grad.to(low)
                grad_x[part] = ((grad @ table) * real[part]).to(x.dtype)
                seen = (x[part] * real[part]).to(low)
                if low == weight.dtype:
                    grad_weight.addmm_(grad.t(), seen)
                else:  # chunks add up in the weight's precision
                    grad_weight += grad.t() @ seen
        ctx.save_for_backward(*(g for g in (grad_x, grad_weight, grad_bias) if g is not None))
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, _: Any) -> Any:
        # in place: a second table of gradients would cost more in fresh memory than in arithmetic
        grad_x, grad_weight, *grad_bias = (grad.mul_(grad_total) for grad in ctx.saved_tensors)
        return grad_x, grad_weight, (grad_bias[0] if grad_bias else None), None, None, None, None


def slope_(log_p: Tensor, label: Tensor, label_smoothing: float) -> Tensor:
    """p - (1-e) onehot(y) - e/V, written over log p."""
    grad = log_p.exp_()
    if label_smoothing:
        grad.sub_(label_smoothing / grad.shape[-1])
    return grad.scatter_add_(-1, label, grad.new_full(label.shape, label_smoothing - 1))


def product_dtype(weight: Tensor) -> torch.dtype:
    """What matrix products with a weight are computed in: its own type, or autocast's."""
    kind = weight.device.type
    if kind == "meta":  # where only shapes are counted
        return weight.dtype
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


class ScaleBy(nn.Module):
    """x * factor."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor

    def extra_repr(self) -> str:
        return f"{self.factor:g}"


class Pooler(nn.Module):
    """act(W x + b) of a text's one vector, before it is judged (Devlin et al. 2019: tanh; He et al. 2021: GELU)."""

    def __init__(self, width: int, activation: str = "tanh"):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = PLAIN[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))


class MLMTransform(nn.Module):
    """norm(act(W x + b)): what BERT puts before the product with its words."""

    def __init__(self, width: int, out: int, activation: str, norm: nn.Module):
        super().__init__()
        self.dense = nn.Linear(width, out)
        self.activation = (PLAIN | GATED)[activation]  # of a gated one what its gate has: there is one product here
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(x)))


NEVER = -1e4  # a bias under which P is exactly 0, so that all other probabilities are as without the word


def closing(vocab: int, suppress_ids: Sequence[int]) -> Tensor | None:
    """A fixed bias that keeps some words from being written; None where all may be."""
    if not suppress_ids:
        return None
    bias = torch.zeros(vocab)
    bias[list(suppress_ids)] = NEVER
    return bias


class VocabularyHead(nn.Module):
    """The language model head: logits = before(x) W^T (+ b). Tied to an embedding when its table is given (Press and
    Wolf 2017)."""

    def __init__(
        self,
        width: int,
        vocab: int,
        table: nn.Embedding | None = None,
        bias: bool = False,
        pad: int = 0,
        before: nn.Module | None = None,
        suppress_ids: Sequence[int] = (),
    ):
        super().__init__()
        self.before = before if before is not None else nn.Identity()
        self.table = table if table is not None else nn.Embedding(vocab, width)
        self.bias: Tensor | None
        if bias:
            self.bias = nn.Parameter(torch.zeros(vocab))
        else:
            self.register_buffer("bias", closing(vocab, suppress_ids), persistent=False)
        self.pad = pad

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.before(x), self.table.weight, self.bias)

    def loss(self, x: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Loss:
        """Cross-entropy with label smoothing: the loss of (B, T, C) against (B, T) labels; places whose label is the
        padding do not count."""
        x = self.before(x)
        flat, labels = x.reshape(-1, x.shape[-1]), labels.reshape(-1)
        given: list[Tensor | None] = [flat, self.table.weight, self.bias]
        if not torch.is_grad_enabled():  # a Function cannot see this, and would work out gradients for nobody
            given = [None if tensor is None else tensor.detach() for tensor in given]
        # Chunks of about 16 MB stay near the caches; fewer rows would starve the matrix products.
        rows = max(128, 4_194_304 // self.table.num_embeddings)
        total, nll = ChunkedLoss.apply(*given, labels, self.pad, label_smoothing, rows)
        return Loss(total, nll, (labels != self.pad).sum())
