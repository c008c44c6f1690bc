"""What detections are worth: each object is matched with one slot, and every other slot shall say that it is nothing
(Carion et al. 2020, section 3.1).

The matching is the cheapest of all one-to-one matchings, so the loss does not depend on the order of slots or objects,
and no object is found twice for free. Every decoder layer is matched and taught for itself.

Letters: L layers, B images, Q slots, K classes, M most objects in an image, N objects in all, S matched slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.blocks.heads import Loss
from headwise.models.detector import Detections
from headwise.vision.boxes import Boxes, giou, to_centred, to_corners

WORST = 1e6  # what a slot that is no number costs: a model gone wrong is the training loop's to refuse


@dataclass(frozen=True)
class Objects:
    """What is to be found in a batch of images, those of all images one after the other."""

    labels: Tensor  # (N,) numbers of classes
    boxes: Tensor  # (N, 4): x, y, width and height as shares of the image
    counts: tuple[int, ...]  # how many there are in each image

    @classmethod
    def of(cls, images: Sequence[Boxes], numbers: Mapping[str, int], height: int, width: int) -> Self:
        """The objects of images of one size; crowds are nobody's to find."""
        single = [boxes.select(~np.array(boxes.crowd, bool)) for boxes in images]
        labels = torch.tensor([numbers[label] for boxes in single for label in boxes.labels], dtype=torch.long)
        corners = np.concatenate([boxes.scale(1 / width, 1 / height).corners for boxes in single])
        return cls(labels, to_centred(torch.from_numpy(corners)), tuple(map(len, single)))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        labels, boxes = (each.to(device, non_blocking=non_blocking) for each in (self.labels, self.boxes))
        return type(self)(labels, boxes, self.counts)


@dataclass(frozen=True)
class Weights:
    """How much class, distance and overlap of boxes count in matching and loss, and how much a slot that shall say that
    it is nothing: most of them shall."""

    label: float = 1.0
    distance: float = 5.0
    overlap: float = 2.0
    nothing: float = 0.1


PAPER = Weights()


def detection_loss(layers: Sequence[Detections], objects: Objects, weights: Weights = PAPER) -> Loss:
    """The losses of all layers, summed, times the images: the mean cross-entropy of the slots, and distance and overlap
    of matched boxes, divided by the objects of the batch. `nll` is the last layer's."""
    logits = exact(torch.stack([layer.logits for layer in layers]))  # (L, B, Q, K + 1)
    boxes = exact(torch.stack([layer.boxes for layer in layers]))  # (L, B, Q, 4)
    of_layer, image, slot, which = match(logits, boxes, objects, weights)
    wanted = torch.full(logits.shape[:3], logits.shape[-1] - 1, device=logits.device)  # (L, B, Q): nothing
    wanted[of_layer, image, slot] = objects.labels[which]
    found, true = boxes[of_layer, image, slot], objects.boxes.to(boxes.dtype)[which]  # 2 x (S, 4)
    distance = (found - true).abs().sum(-1)
    overlap = 1 - giou(to_corners(found), to_corners(true))
    each = (weights.distance * distance + weights.overlap * overlap) / max(sum(objects.counts), 1)  # (S,)
    by_layer = classified(logits, wanted, weights).index_add(0, of_layer, each)  # (L,)
    images = torch.tensor(len(objects.counts), device=logits.device)
    return Loss(images * by_layer.sum(), images * by_layer[-1].detach(), images)


def exact(x: Tensor) -> Tensor:
    """In single precision at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def classified(logits: Tensor, wanted: Tensor, weights: Weights) -> Tensor:
    """The mean cross-entropy of each layer's slots, in which those that are nothing weigh less: (L,)."""
    by_class = logits.new_ones(logits.shape[-1])
    by_class[-1] = weights.nothing
    each = F.cross_entropy(logits.flatten(0, 2), wanted.flatten(), by_class, reduction="none")  # (LBQ,)
    return weights.label * each.view_as(wanted).sum((1, 2)) / by_class[wanted].sum((1, 2))


@torch.no_grad()
def match(logits: Tensor, boxes: Tensor, objects: Objects, weights: Weights = PAPER) -> Tensor:
    """Hungarian matching, the cheapest bipartite matching of slots with objects in each layer and image by -p(class) +
    5 L1 - 2 GIoU: layer, image, slot and object of each matched pair, (4, S). Of objects that outnumber the slots, the
    dearest stay unmatched."""
    from scipy.optimize import linear_sum_assignment  # of an extra that looking at images does without

    cost = costs(logits, boxes, objects, weights)
    tables = cost.nan_to_num(WORST, WORST, WORST).cpu().numpy()  # all layers at once: one wait for the device
    first = np.cumsum((0, *objects.counts))
    pairs = []
    for layer, image in np.ndindex(tables.shape[:2]):
        slots, chosen = linear_sum_assignment(tables[layer, image, :, : objects.counts[image]])
        pairs.append([np.full_like(slots, layer), np.full_like(slots, image), slots, first[image] + chosen])
    return torch.from_numpy(np.concatenate(pairs, axis=1)).to(logits.device)


def costs(logits: Tensor, boxes: Tensor, objects: Objects, weights: Weights) -> Tensor:
    """What it costs to match each slot with each object of its image, (L, B, Q, M); shorter images are padded."""
    labels = pad_sequence(objects.labels.split(objects.counts), batch_first=True)  # (B, M)
    true = pad_sequence(objects.boxes.split(objects.counts), batch_first=True).unsqueeze(1)  # (B, 1, M, 4)
    asked = labels[None, :, None].expand(*logits.shape[:3], -1)  # (B, M) -> (L, B, Q, M)
    likely = logits.softmax(-1).gather(-1, asked)
    found = boxes.unsqueeze(-2)  # (L, B, Q, 1, 4)
    distance = (found - true).abs().sum(-1)
    overlap = giou(to_corners(found), to_corners(true))
    return weights.distance * distance - weights.label * likely - weights.overlap * overlap
