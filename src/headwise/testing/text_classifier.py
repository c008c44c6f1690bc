"""Checks of text classifiers: token and sequence classifiers, and masked language models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call

from headwise.models.masked_lm import MaskedLanguageModel
from headwise.models.text_classifier import SequenceClassifier, TokenClassifier
from headwise.testing.assertions import compute_expected_loss
from headwise.testing.overfit import overfit_batch
from headwise.text import PAD

TextClassifier: TypeAlias = TokenClassifier | SequenceClassifier | MaskedLanguageModel
FIRST = 4  # ids below are special tokens
close = torch.testing.assert_close


def draw_ids(model: TextClassifier, rows: int = 3, length: int = 6, seed: int = 0) -> Tensor:
    """Random ordinary tokens, (rows, length)."""
    vocab = model.encoder.embed.table.num_embeddings
    return torch.randint(FIRST, vocab, (rows, length), generator=torch.Generator().manual_seed(seed))


def draw_labels(logits: Tensor) -> Tensor:
    """Random labels for a model's outputs, (B, T) or (B,)."""
    shape, count = logits.shape[:-1], logits.shape[-1]
    return torch.randint(FIRST if count > FIRST else 1, count, shape, generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def check_padding(model: TextClassifier) -> None:
    """Padding on the right changes no real output."""
    ids = draw_ids(model)
    plain, padded = model(ids), model(nn.functional.pad(ids, (0, 3), value=PAD))
    close(padded[:, : ids.shape[1]] if plain.dim() == 3 else padded, plain)
    assert torch.isfinite(model(torch.full_like(ids, PAD))).all(), "an empty text gave NaN"


@torch.no_grad()
def check_batch(model: TextClassifier) -> None:
    """A text gives the same alone as in a batch of texts of other lengths."""
    ids = draw_ids(model)
    ids[1, 3:] = PAD
    together = model(ids)
    for row in range(3):
        alone = model(ids[row][ids[row] != PAD].unsqueeze(0))
        close(alone[0], together[row][: len(alone[0])] if together.dim() == 3 else together[row])


@torch.no_grad()
def check_sees_everything(model: TextClassifier) -> None:
    """Every output depends on every token, as in bidirectional models without windows and other sparse patterns."""
    ids, vocab = draw_ids(model, rows=1), model.encoder.embed.table.num_embeddings
    before = model(ids)
    for position in (0, ids.shape[1] - 1):
        edited = ids.clone()
        edited[0, position] = FIRST + (edited[0, position] - FIRST + 1) % (vocab - FIRST)
        assert ((model(edited) - before).abs().amax(-1) > 0).all(), f"some output does not depend on token {position}"


def check_loss(model: TextClassifier) -> None:
    """The loss is the cross entropy of the logits; padding does not count."""
    ids = draw_ids(model)
    logits = model(ids)
    labels = draw_labels(logits)
    if labels.dim() == 2:
        labels[0, 4:] = PAD
    loss = model(ids, labels=labels, label_smoothing=0.1)
    flat = logits.reshape(-1, logits.shape[-1])
    close(loss.total, compute_expected_loss(model, flat, labels.reshape(-1), label_smoothing=0.1))
    assert loss.count == (labels != PAD).sum(), f"{loss.count} labels are counted, of {(labels != PAD).sum()}"


def check_gradients(model: TextClassifier) -> None:
    """The gradient of the loss along a random direction of all parameters equals the central difference."""
    ids = draw_ids(model)
    labels = draw_labels(model(ids))
    values = {name: parameter.detach() for name, parameter in model.named_parameters()}
    generator = torch.Generator().manual_seed(3)
    directions = {k: torch.randn(v.shape, generator=generator, dtype=v.dtype) for k, v in values.items()}

    def loss(step: Tensor) -> Tensor:
        moved = {name: value + step * directions[name] for name, value in values.items()}
        return functional_call(model, moved, (ids,), {"labels": labels}).total

    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(zero), zero)
    with torch.no_grad():
        close(slope, (loss(zero + 1e-6) - loss(zero - 1e-6)) / 2e-6, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def check_exact(model: TextClassifier) -> None:
    """In evaluation mode the same text gives the same outputs."""
    ids = draw_ids(model)
    close(model(ids), model(ids), rtol=0, atol=0)


Check = Callable[[TextClassifier], None]
CHECKS: dict[Check, Iterable[str]] = {
    check_padding: ("padding",),
    check_batch: ("padding", "batch_independent"),
    check_exact: ("exact",),
    check_loss: (),
    check_gradients: (),
}


def check_overfit(model: TextClassifier, steps: int = 240, lr: float = 0.01) -> None:
    """The model overfits a few texts and their labels."""
    ids = draw_ids(model)
    labels = draw_labels(model(ids))

    def compute_loss() -> Tensor:
        loss = model(ids, labels=labels)
        return loss.total / loss.count

    overfit_batch(model, compute_loss, steps, lr)
    wrong = (model(ids).argmax(-1) != labels).sum()
    assert not wrong, f"after {steps} steps {wrong} of {labels.numel()} labels are wrong"
