"""Distillation: what a trained model says of an image counts in the loss of another (Hinton et al. 2015; Touvron et al.
2021, section 4).

    hard:  (1 - share) CE(first head, label) + share CE(last head, the teacher's label)
    soft:  (1 - share) CE(first head, label) + share t^2 KL(teacher at temperature t, last head at t)

A student with one head learns both by it; one with a distillation token has a head for each.

DISCREPANCY: the released code divides the soft term by the number of classes as well; here it is the equation's. As
there, labels are smoothed and the teacher's are not.

Letters: B images, C channels, H rows and W columns of pixels, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.errors import UserError
from headwise.vision.pixels import Pixels

Distance = Callable[[Tensor, Tensor, float], Tensor]


def hard(logits: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """How far a student is from the label that its teacher gives: (B, L), (B, L) -> (B,)."""
    return F.cross_entropy(logits.float(), taught.argmax(-1), reduction="none")


def soft(logits: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """How far it is from the teacher's probabilities, which a temperature makes more equal: (B, L), (B, L) -> (B,)."""
    own, theirs = ((each.float() / temperature).log_softmax(-1) for each in (logits, taught))
    return temperature**2 * F.kl_div(own, theirs, reduction="none", log_target=True).sum(-1)


KINDS: dict[str, tuple[Distance, float]] = {"hard": (hard, 0.5), "soft": (soft, 0.1)}  # with the paper's shares


class Teacher:
    """A trained model that sees what a student sees, never learns and is no part of the student's run."""

    def __init__(self, model: nn.Module, pixels: Pixels, known: Sequence[str], classes: Sequence[str], channels: int):
        """`pixels` and the classes `known` are the teacher's; `classes` and `channels` the student's."""
        if set(known) != set(classes):
            strange = ", ".join(sorted(set(known) ^ set(classes)))
            raise UserError(f"task.teacher: it and the data do not share the classes {strange}; name another run")
        if (own := pixels.channels) != channels:
            raise UserError(f"task.teacher: it reads images of {own} channels; set data.channels = {own}")
        self.pixels = pixels
        self.model = model.requires_grad_(False)
        self.order = [known.index(label) for label in classes]

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """What it says of images (B, C, H, W) in 0..1, as logits (B, L) in the order of the student's classes."""
        self.model, size = self.model.to(images.device), (self.pixels.height, self.pixels.width)
        seen = images if images.shape[2:] == size else F.interpolate(images, size, mode="bicubic", antialias=True)
        said: Tensor = self.model(self.pixels.normalise_images(seen))
        return said[:, self.order]


class Distillation:
    """Knowledge distillation: a student's loss where it has a teacher."""

    def __init__(self, teacher: Callable[[Tensor], Tensor], kind: str, temperature: float, share: float):
        self.teacher, self.temperature = teacher, temperature
        self.distance, usual = KINDS[kind]
        self.share = share or usual

    def __call__(self, voices: Sequence[Tensor], losses: Sequence[Tensor], images: Tensor) -> Tensor:
        """Of each image, for the heads' logits (B, L) and what each of them loses by the labels alone, (B,)."""
        lesson = self.distance(voices[-1], self.teacher(images), self.temperature)
        return (1 - self.share) * losses[0] + self.share * lesson
