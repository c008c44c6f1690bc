"""Adversarial training of classifiers of images: HAT (Bai et al. 2022), as the authors' code does it.

The adversary moves pixels, δ <- clip(δ + step * sign(∂loss/∂δ), ±radius) from δ = 0; no mask in the frequency domain
is needed, for such a δ has high frequencies by itself. With K looks at each image the gradients of

    CE(x)   and   (weight * CE(x + δ_k) + agreement * symKL(p(x), p(x + δ_k))) / (K - 1),   k = 1 .. K - 1

add up to one update, where symKL is half the sum of both divergences.

DISCREPANCY: the authors look at the unchanged image twice, once only for p(x), and so have a divergence of what
stochastic depth makes different; here p(x) is what the first look said. They move normalised pixels, we pixels in 0..1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from headwise.blocks.heads import Loss
from headwise.blocks.stream import NO_SIDE, SIDE
from headwise.config.base import Config

Taught = Callable[[Any, Tensor, Tensor], Loss]  # of a model, images (B, C, H, W) in 0..1 and soft labels (B, L)


class Heard:
    """A classifier whose last words are kept: a loss is asked for, and what it was a loss of is needed, too."""

    def __init__(self, model: Any):
        self.model = model
        self.logits = torch.empty(0)

    def head_logits(self, pixels: Tensor) -> tuple[Tensor, ...]:
        said = self.model.head_logits(pixels)
        self.logits = self.model.ensemble(said)
        return said

    def ensemble(self, head_logits: Sequence[Tensor]) -> Tensor:
        return self.model.ensemble(head_logits)


def hardened(
    taught: Taught, model: Any, images: Tensor, targets: Tensor, config: AdversarialConfig, looks: int
) -> Loss:
    """The loss of images that are looked at several times; one look is the plain loss.

    All looks but the last leave their gradients in the parameters at once, as the next one needs that of the pixels.
    The last is left to whoever differentiates the total, which has the values of all of them.
    """
    heard, delta, spent = Heard(model), torch.zeros_like(images), images.new_zeros(())
    for look in range(looks):
        last = look == looks - 1
        delta.requires_grad_(not last)
        with nullcontext() if last else unreported():
            loss = taught(heard, images + delta, targets)
        if look == 0:
            first, clean, total = loss, heard.logits.detach(), loss.total
        else:
            apart = divergence(clean, heard.logits).sum()
            total = (config.weight * loss.total + config.agreement * apart) / (looks - 1)
        if not last:
            total.backward()
            spent = spent + total.detach()
            delta = moved(delta, config)
    return Loss(total + spent, first.nll, first.count)


def moved(delta: Tensor, config: AdversarialConfig) -> Tensor:
    """A step against the model, by the sign of the gradient, and not beyond the radius."""
    assert delta.grad is not None
    return (delta.detach() + config.step * delta.grad.sign()).clamp(-config.radius, config.radius)


def divergence(clean: Tensor, other: Tensor) -> Tensor:
    """(KL(p || q) + KL(q || p)) / 2 = sum (p - q)(log p - log q) / 2 of each row of logits: (B, L) x 2 -> (B,).

    >>> logits = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    >>> divergence(logits, logits + 5).tolist()
    [0.0, 0.0]
    """
    p, q = clean.log_softmax(-1), other.log_softmax(-1)
    return ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2


@contextmanager
def unreported() -> Iterator[None]:
    """Parts report nothing, such as losses of routers: what is differentiated at once cannot be again."""
    token = SIDE.set(NO_SIDE)
    try:
        yield
    finally:
        SIDE.reset(token)


class AdversarialConfig(Config):
    """Images made harder by the model's own gradient before it learns from them (HAT: Bai et al. 2022): `steps` looks
    at each image, the first as it is, each later one at pixels that were moved further against the model."""

    steps: int = Field(1, ge=1)  # 1: images as they are; the paper has 3
    radius: float = Field(2 / 255, gt=0)  # the max_distance that a pixel moves
    step: float = Field(1 / 255, gt=0)
    share: float = Field(2 / 3, gt=0, le=1)  # of the budget; after it, images as they are
    weight: float = Field(3.0, gt=0)  # of the loss on moved pixels
    agreement: float = Field(0.01, ge=0)  # how much it counts that what is said of them is what is said of the image

    def looks(self, progress: float) -> int:
        """How often an image is looked at when this share of the budget is spent."""
        return self.steps if progress < self.share else 1
