"""What every model that labels a text must do: a tagger labels each token, a classifier the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

PAD, FIRST = 0, 4
close = torch.testing.assert_close


def texts(rows: int = 3, length: int = 6, vocab: int = 12, seed: int = 0) -> Tensor:
    return torch.randint(FIRST, vocab, (rows, length), generator=torch.Generator().manual_seed(seed))


def labels(logits: Tensor) -> Tensor:
    """Random labels for a model's outputs, (B, T) or (B,)."""
    shape, count = logits.shape[:-1], logits.shape[-1]
    return torch.randint(FIRST, count, shape, generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def check_padding(model: Any) -> None:
    """Padding on the right changes no real output."""
    ids = texts()
    plain, padded = model(ids), model(nn.functional.pad(ids, (0, 3), value=PAD))
    close(padded[:, : ids.shape[1]] if plain.dim() == 3 else padded, plain)
    assert torch.isfinite(model(torch.full_like(ids, PAD))).all(), "an empty text gave NaN"


@torch.no_grad()
def check_batch(model: Any) -> None:
    """A text gives the same alone as among others, of other lengths too."""
    ids = texts()
    ids[1, 3:] = PAD
    together = model(ids)
    for row in range(3):
        alone = model(ids[row][ids[row] != PAD].unsqueeze(0))
        close(alone[0], together[row][: len(alone[0])] if together.dim() == 3 else together[row])


@torch.no_grad()
def check_sees_everything(model: Any) -> None:
    """A reader that looks both ways lets every token count for every output."""
    ids = texts(rows=1)
    before = model(ids)
    for place in (0, ids.shape[1] - 1):
        edited = ids.clone()
        edited[0, place] = FIRST + (edited[0, place] - FIRST + 1) % 8
        assert ((model(edited) - before).abs().amax(-1) > 0).all(), f"the token at {place} did not count everywhere"


def check_loss(model: Any) -> None:
    """The loss is the cross entropy of the logits; padding does not count."""
    ids = texts()
    logits = model(ids)
    wanted = labels(logits)
    if wanted.dim() == 2:
        wanted[0, 4:] = PAD
    loss = model(ids, labels=wanted, label_smoothing=0.1)
    flat, given = logits.reshape(-1, logits.shape[-1]), wanted.reshape(-1)
    expected = nn.functional.cross_entropy(flat, given, ignore_index=PAD, label_smoothing=0.1, reduction="sum")
    close(loss.total, expected)
    assert loss.count == (wanted != PAD).sum()


def check_gradients(model: Any) -> None:
    """The loss's slope along a random direction is what a central difference says."""
    ids = texts()
    wanted = labels(model(ids))
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


CHECKS: tuple[Callable[[Any], None], ...] = (
    check_padding,
    check_batch,
    check_sees_everything,
    check_loss,
    check_gradients,
)


def check_overfit(model: Any, steps: int = 80, lr: float = 0.01) -> None:
    """A few texts and their labels can be learnt by heart."""
    ids = texts()
    wanted = labels(model(ids))
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(ids, labels=wanted)
        (loss.total / loss.count).backward()
        optimizer.step()
    assert torch.equal(model.eval()(ids).argmax(-1), wanted)
