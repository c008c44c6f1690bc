"""Adversarial training of image classifiers: HAT (Bai et al. 2022), as in the authors' code.

Projected gradient ascent on the pixels, δ <- clip(δ + step * sign(∂loss/∂δ), ±radius), from δ = 0. No mask in the
frequency domain is needed: such a δ has high frequencies by itself. With K passes over each image the gradients of

    CE(x)   and   (weight * CE(x + δ_k) + agreement * symKL(p(x), p(x + δ_k))) / (K - 1),   k = 1 .. K - 1

add up to one update, where symKL is the mean of both KL divergences.

DISCREPANCY: the authors run the clean image twice, once only for p(x), so that stochastic depth adds to the divergence;
here p(x) is the first pass's. They perturb normalised pixels, we perturb pixels in 0..1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Protocol

import torch
from pydantic import Field
from torch import Tensor

from headwise.blocks.losses import Loss
from headwise.blocks.stream import NO_SIDE, SIDE
from headwise.config.base import Config


class HeadedClassifier(Protocol):
    """An image classifier with one or several heads, as `headwise.models.image_classifier.ImageClassifier`."""

    def head_logits(self, pixels: Tensor) -> tuple[Tensor, ...]: ...
    def ensemble(self, head_logits: Sequence[Tensor]) -> Tensor: ...


# of a model, images (B, C, H, W) in 0..1 and soft labels (B, L)
ClassificationLoss = Callable[[HeadedClassifier, Tensor, Tensor], Loss]


class LogitsRecorder:
    """A classifier that stores its last logits: a loss function returns the loss alone, the divergence needs both."""

    def __init__(self, model: HeadedClassifier):
        self.model = model
        self.logits: Tensor

    def head_logits(self, pixels: Tensor) -> tuple[Tensor, ...]:
        head_logits = self.model.head_logits(pixels)
        self.logits = self.model.ensemble(head_logits)
        return head_logits

    def ensemble(self, head_logits: Sequence[Tensor]) -> Tensor:
        return self.model.ensemble(head_logits)


def adversarial_loss(
    loss_function: ClassificationLoss,
    model: HeadedClassifier,
    images: Tensor,
    targets: Tensor,
    config: AdversarialConfig,
    passes: int,
) -> Loss:
    """The loss of `passes` passes over the images; one pass is the plain loss.

    Each pass but the last is differentiated here, as the next one needs the gradient of the pixels: it adds to the
    parameters' gradients. The total has the value of all passes and the graph of the last.
    """
    recorder, delta, earlier = LogitsRecorder(model), torch.zeros_like(images), images.new_zeros(())
    for number in range(passes):
        last = number == passes - 1
        delta.requires_grad_(not last)
        with nullcontext() if last else suppress_side_outputs():
            loss = loss_function(recorder, images + delta, targets)
        if number == 0:
            first, clean, total = loss, recorder.logits.detach(), loss.total
        else:
            divergence = symmetric_kl(clean, recorder.logits).sum()
            total = (config.weight * loss.total + config.agreement * divergence) / (passes - 1)
        if not last:
            total.backward()
            earlier = earlier + total.detach()
            delta = step_perturbation(delta, config)
    return Loss(total + earlier, first.nll, first.count)


def step_perturbation(delta: Tensor, config: AdversarialConfig) -> Tensor:
    """A step of gradient ascent by the sign of the gradient, clipped to the radius."""
    assert delta.grad is not None
    return (delta.detach() + config.step * delta.grad.sign()).clamp(-config.radius, config.radius)


def symmetric_kl(clean: Tensor, perturbed: Tensor) -> Tensor:
    """(KL(p || q) + KL(q || p)) / 2 = sum (p - q)(log p - log q) / 2 of each row of logits: (B, L) x 2 -> (B,).

    >>> logits = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    >>> symmetric_kl(logits, logits + 5).tolist()
    [0.0, 0.0]
    """
    p, q = clean.log_softmax(-1), perturbed.log_softmax(-1)
    return ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2


@contextmanager
def suppress_side_outputs() -> Iterator[None]:
    """Drop side outputs, such as load-balancing losses: their graph is freed before the training loop could use it."""
    token = SIDE.set(NO_SIDE)
    try:
        yield
    finally:
        SIDE.reset(token)


class AdversarialConfig(Config):
    """Adversarial training (HAT: Bai et al. 2022): `steps` passes over each image, the first over the clean image, each
    later one over pixels perturbed further along the gradient of the loss."""

    steps: int = Field(1, ge=1)  # 1: no adversarial training; the paper has 3
    radius: float = Field(2 / 255, gt=0)  # the largest change of a pixel
    step: float = Field(1 / 255, gt=0)
    share: float = Field(2 / 3, gt=0, le=1)  # of the training budget; clean images alone after it
    weight: float = Field(3.0, gt=0)  # of the loss on perturbed images
    agreement: float = Field(0.01, ge=0)  # weight of the divergence between predictions on clean and perturbed images

    def passes(self, progress: float) -> int:
        """How many passes an image gets when this share of the budget is spent."""
        return self.steps if progress < self.share else 1
