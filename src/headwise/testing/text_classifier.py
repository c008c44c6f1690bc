"""Checks of models that label texts: token classifiers and masked language models label each token, sequence
classifiers the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call

from headwise.models.masked_lm import MaskedLanguageModel
from headwise.models.text_classifier import SequenceClassifier, TokenClassifier
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
    """A text gives the same alone as among others, of other lengths too."""
    ids = draw_ids(model)
    ids[1, 3:] = PAD
    together = model(ids)
    for row in range(3):
        alone = model(ids[row][ids[row] != PAD].unsqueeze(0))
        close(alone[0], together[row][: len(alone[0])] if together.dim() == 3 else together[row])


@torch.no_grad()
def check_sees_everything(model: TextClassifier) -> None:
    """Every output depends on every token: so it is with bidirectional models, but for windows and other sparse
    patterns."""
    ids, vocab = draw_ids(model, rows=1), model.encoder.embed.table.num_embeddings
    before = model(ids)
    for place in (0, ids.shape[1] - 1):
        edited = ids.clone()
        edited[0, place] = FIRST + (edited[0, place] - FIRST + 1) % (vocab - FIRST)
        assert ((model(edited) - before).abs().amax(-1) > 0).all(), f"some output does not depend on token {place}"


def check_loss(model: TextClassifier) -> None:
    """The loss is the cross entropy of the logits; padding does not count."""
    ids = draw_ids(model)
    logits = model(ids)
    wanted = draw_labels(logits)
    if wanted.dim() == 2:
        wanted[0, 4:] = PAD
    loss = model(ids, labels=wanted, label_smoothing=0.1)
    flat, given = logits.reshape(-1, logits.shape[-1]), wanted.reshape(-1)
    expected = nn.functional.cross_entropy(flat, given, ignore_index=PAD, label_smoothing=0.1, reduction="sum")
    close(loss.total, expected)
    assert loss.count == (wanted != PAD).sum(), f"{loss.count} labels are counted, of {(wanted != PAD).sum()}"


def check_gradients(model: TextClassifier) -> None:
    """The loss's slope along a random direction is what a central difference says."""
    ids = draw_ids(model)
    wanted = draw_labels(model(ids))
    values = {name: parameter.detach() for name, parameter in model.named_parameters()}
    generator = torch.Generator().manual_seed(3)
    ways = {k: torch.randn(v.shape, generator=generator, dtype=v.dtype) for k, v in values.items()}

    def loss(along: Tensor) -> Tensor:
        moved = {name: value + along * ways[name] for name, value in values.items()}
        return functional_call(model, moved, (ids,), {"labels": wanted}).total

    along = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(along), along)
    with torch.no_grad():
        close(slope, (loss(along + 1e-6) - loss(along - 1e-6)) / 2e-6, rtol=1e-6, atol=1e-6)


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


def check_overfit(model: TextClassifier, steps: int = 80, lr: float = 0.01) -> None:
    """The model overfits a few texts and their labels."""
    ids = draw_ids(model)
    wanted = draw_labels(model(ids))
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(ids, labels=wanted)
        (loss.total / loss.count).backward()
        optimizer.step()
    wrong = (model.eval()(ids).argmax(-1) != wanted).sum()
    assert not wrong, f"after {steps} steps {wrong} of {wanted.numel()} labels are wrong"
