"""Knowledge distillation: a teacher's predictions are targets of a student (Hinton et al. 2015; Touvron et al. 2021,
section 4).

    hard:  (1 - share) CE(first head, label) + share CE(last head, the teacher's label)
    soft:  (1 - share) CE(first head, label) + share t^2 KL(teacher at temperature t, last head at t)

A student with one head has both terms on it; one with a distillation token has a head for each.

DISCREPANCY: the released code divides the soft term by the number of classes as well; here it is the equation's. As
there, label smoothing applies to the labels only, not to the teacher's.

Letters: B images, C channels, H rows and W columns of pixels, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.errors import UserError
from headwise.vision.pixels import Pixels

DistillationLoss = Callable[[Tensor, Tensor, float], Tensor]


def hard_loss(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """Cross-entropy with the teacher's label: (B, L), (B, L) -> (B,)."""
    return F.cross_entropy(logits.float(), teacher_logits.argmax(-1), reduction="none")


def soft_loss(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """t^2 KL(teacher || student), both at temperature t: (B, L), (B, L) -> (B,)."""
    student, teacher = ((x.float() / temperature).log_softmax(-1) for x in (logits, teacher_logits))
    return temperature**2 * F.kl_div(student, teacher, reduction="none", log_target=True).sum(-1)


# with the paper's share
KINDS: dict[str, tuple[DistillationLoss, float]] = {"hard": (hard_loss, 0.5), "soft": (soft_loss, 0.1)}


class Teacher:
    """A frozen trained model that reads the student's images; it is not stored in the student's run."""

    def __init__(
        self,
        model: nn.Module,
        pixels: Pixels,  # of the teacher
        teacher_classes: Sequence[str],
        classes: Sequence[str],  # of the student
        channels: int,  # of the student
    ):
        if set(teacher_classes) != set(classes):
            unshared = ", ".join(sorted(set(teacher_classes) ^ set(classes)))
            raise UserError(f"task.teacher: it and the data do not share the classes {unshared}; name another run")
        if pixels.channels != channels:
            raise UserError(
                f"task.teacher: it reads images of {pixels.channels} channels; set data.channels = {pixels.channels}"
            )
        self.pixels = pixels
        self.model = model.requires_grad_(False)
        self.order = [teacher_classes.index(label) for label in classes]

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Logits (B, L) of images (B, C, H, W) in 0..1, in the order of the student's classes."""
        self.model, size = self.model.to(images.device), (self.pixels.height, self.pixels.width)
        resized = images if images.shape[2:] == size else F.interpolate(images, size, mode="bicubic", antialias=True)
        logits: Tensor = self.model(self.pixels.normalise_images(resized))
        return logits[:, self.order]


class Distillation:
    """Knowledge distillation: the student's loss, from labels and teacher."""

    def __init__(self, teacher: Callable[[Tensor], Tensor], kind: str, temperature: float, share: float):
        self.teacher, self.temperature = teacher, temperature
        self.loss, default_share = KINDS[kind]
        self.share = share or default_share

    def __call__(self, head_logits: Sequence[Tensor], label_losses: Sequence[Tensor], images: Tensor) -> Tensor:
        """The loss of each image, (B,), from each head's logits (B, L) and its loss on the labels (B,)."""
        distilled = self.loss(head_logits[-1], self.teacher(images), self.temperature)
        return (1 - self.share) * label_losses[0] + self.share * distilled
