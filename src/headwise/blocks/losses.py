"""Losses: cross-entropy with label smoothing and z-loss over a vocabulary, computed in chunks of tokens.

Losses of single tasks are in `tasks/`: `detection_loss.py` (DETR), `distillation.py`, `classify_images.py` (mixup).

Letters: B rows, T length, C width, V vocab, N tokens of a batch, n tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True, slots=True)
class Loss:
    """Sums over tokens, so that losses of batches of different size can be added."""

    total: Tensor  # the loss with label smoothing and z-loss, summed
    nll: Tensor  # the negative log-likelihood, summed, without gradient
    count: Tensor  # number of tokens


def count_examples(x: Tensor) -> Tensor:
    """The number of rows as a `Loss.count`, filled on the device: a copy from the host would wait for it."""
    return torch.full((), len(x), device=x.device)


def compute_cross_entropy(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    pad: int,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Loss:
    """Cross-entropy loss with label smoothing and z-loss of the logits x W^T + b against labels: x (B, T, C) and
    (B, T), or (N, C) and (N,). Labels that are `pad` are ignored. `z_loss` is the weight of log(Z)^2."""
    x, labels = x.reshape(-1, x.shape[-1]), labels.reshape(-1)  # (B, T, C) -> (N, C), (B, T) -> (N,)
    tensors: list[Tensor | None] = [x, weight, bias]
    if not torch.is_grad_enabled():  # a Function does not see this, and would compute gradients in vain
        tensors = [None if tensor is None else tensor.detach() for tensor in tensors]
    chunk_size = count_chunk_rows(len(weight))
    total, nll = ChunkedCrossEntropy.apply(*tensors, labels, pad, label_smoothing, chunk_size, z_loss)
    return Loss(total, nll, (labels != pad).sum())


def count_chunk_rows(vocab: int) -> int:
    """Rows of logits in a chunk. About 16 MB stay near the CPU's caches; smaller chunks make matrix products
    inefficient."""
    return max(128, 4_194_304 // vocab)


def compute_loss_from_logits(
    compute_logits: Callable[[Tensor], Tensor],
    x: Tensor,
    labels: Tensor,
    pad: int,
    label_smoothing: float,
    chunk_size: int,
    z_loss: float = 0.0,
    normalised: bool = False,
) -> Loss:
    """Cross-entropy loss with label smoothing and z-loss of any function (N, C) -> logits (N, V), or log-probabilities
    where they are `normalised`. It runs on chunks of tokens, whose logits the backward pass computes again (activation
    checkpointing)."""
    x, labels = x.reshape(-1, x.shape[-1]), labels.reshape(-1)  # (B, T, C) -> (N, C), (B, T) -> (N,)

    def sum_losses(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits, keep = compute_logits(x), labels != pad
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        log_z = logits.new_zeros(len(logits), 1) if normalised else logits.logsumexp(-1, keepdim=True)  # (n, 1)
        log_p = logits - log_z
        nll = -log_p.gather(-1, labels.unsqueeze(-1)).squeeze(-1)  # (n,)
        smooth = -log_p.mean(-1) if label_smoothing else nll
        loss = (1 - label_smoothing) * nll + label_smoothing * smooth + z_loss * log_z.squeeze(-1).square()
        return (loss * keep).sum(), (nll.detach() * keep).sum()

    chunks = list(zip(x.split(chunk_size), labels.split(chunk_size), strict=True))
    if len(chunks) == 1:
        sums = [sum_losses(*chunks[0])]
    else:
        sums = [checkpoint(sum_losses, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
    total, nll = (torch.stack(values).sum() for values in zip(*sums, strict=True))
    return Loss(total, nll, (labels != pad).sum())


class ChunkedCrossEntropy(torch.autograd.Function):
    """Cross-entropy with label smoothing in chunks: -sum_t [(1-e) log p_t[y_t] + e mean(log p_t)], p = softmax(x W^T +
    b). The z-loss z sum_t log(Z_t)^2, with Z the denominator of the softmax, keeps logits from drifting (Narang et al.
    2021 after Mesh TensorFlow).

    The forward pass computes the gradient (1 + 2 z log Z) p - (1-e) onehot(y) - e/V of a chunk along with its logits,
    so that neither the logits of all tokens nor their softmax are ever stored: fewer passes over memory, and far less
    of it. Under autocast only the matrix products are in low precision.
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
        chunk_size: int,
        z_loss: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        low = get_matmul_dtype(weight)
        low_weight, low_bias = weight.to(low), None if bias is None else bias.to(low)
        exact = torch.promote_types(x.dtype, torch.float32)
        keep = (labels != pad).to(exact).unsqueeze(-1)  # (N, 1)
        needs_grad = any(ctx.needs_input_grad[:3])
        total, nll = x.new_zeros((), dtype=exact), x.new_zeros((), dtype=exact)
        grad_x = torch.empty_like(x) if needs_grad else None
        grad_weight = torch.zeros_like(weight) if needs_grad else None
        grad_bias = torch.zeros_like(bias) if needs_grad and bias is not None else None
        for start in range(0, len(x), chunk_size):
            chunk = slice(start, start + chunk_size)
            logits = F.linear(x[chunk].to(low), low_weight, low_bias)  # (n, C) -> (n, V)
            log_p = logits.log_softmax(-1, dtype=exact)
            label = labels[chunk].unsqueeze(-1)  # (n, 1)
            token_nll = -log_p.gather(-1, label)
            log_z = logits.gather(-1, label).to(exact) + token_nll if z_loss else None  # (n, 1)
            del logits  # two matrices of the vocabulary's width at once would leave the caches
            smooth = -log_p.mean(-1, keepdim=True) if label_smoothing else token_nll
            nll += (token_nll * keep[chunk]).sum()
            total += (((1 - label_smoothing) * token_nll + label_smoothing * smooth) * keep[chunk]).sum()
            if log_z is not None:
                total += (z_loss * log_z.square() * keep[chunk]).sum()
            if grad_x is not None and grad_weight is not None:
                scale = None if log_z is None else 1 + 2 * z_loss * log_z
                grad = compute_logit_grad_(log_p, label, label_smoothing, scale)  # (n, V)
                if grad_bias is not None:
                    grad_bias += (grad * keep[chunk]).sum(0)
                grad = grad.to(low)
                grad_x[chunk] = ((grad @ low_weight) * keep[chunk]).to(x.dtype)  # (n, V) @ (V, C) -> (n, C)
                kept_x = (x[chunk] * keep[chunk]).to(low)
                if low == weight.dtype:
                    grad_weight.addmm_(grad.t(), kept_x)  # (V, n) @ (n, C) -> (V, C)
                else:  # chunks add up in the weight's precision
                    grad_weight += grad.t() @ kept_x
        ctx.save_for_backward(*(grad for grad in (grad_x, grad_weight, grad_bias) if grad is not None))
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, _: Any) -> Any:
        # in place, since to allocate a second gradient of the weight costs more than the product
        grad_x, grad_weight, *grad_bias = (grad.mul_(grad_total) for grad in ctx.saved_tensors)
        return grad_x, grad_weight, (grad_bias[0] if grad_bias else None), None, None, None, None, None


def compute_logit_grad_(log_p: Tensor, label: Tensor, label_smoothing: float, scale: Tensor | None = None) -> Tensor:
    """The gradient of the logits, s p - (1-e) onehot(y) - e/V with s (n, 1) of the z-loss or 1, in place of log p."""
    grad = log_p.exp_()
    if scale is not None:
        grad.mul_(scale)
    if label_smoothing:
        grad.sub_(label_smoothing / grad.shape[-1])
    return grad.scatter_add_(-1, label, grad.new_full(label.shape, label_smoothing - 1))


def get_matmul_dtype(weight: Tensor) -> torch.dtype:
    """The dtype of matrix products with a weight: its own, or that of autocast."""
    device = weight.device.type
    if device == "meta":  # has no autocast
        return weight.dtype
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
