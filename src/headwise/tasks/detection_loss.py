"""The set prediction loss of DETR (Carion et al. 2020, section 3.1): each object is matched with one object query, and
every other query is trained to predict "no object".

Hungarian matching is the cheapest one-to-one matching, so the loss does not depend on the order of queries or objects,
and duplicate detections are penalised. Every decoder layer has its own matching and loss.

Letters: L layers, B images, Q queries, K classes, M most objects in an image, N objects in all, S matched queries.
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

from headwise.blocks.losses import Loss, count_examples
from headwise.blocks.replicas import REPLICAS
from headwise.models.detector import Detections
from headwise.vision.boxes import Boxes, giou, to_centred, to_corners

WORST = 1e6  # cost of a query that predicts NaN or infinity; the training loop refuses such losses


@dataclass(frozen=True)
class Objects:
    """The objects in a batch of images, those of all images concatenated."""

    labels: Tensor  # (N,) numbers of classes
    boxes: Tensor  # (N, 4): x, y, width and height as shares of the image
    counts: tuple[int, ...]  # how many there are in each image

    @classmethod
    def of(cls, images: Sequence[Boxes], numbers: Mapping[str, int], height: int, width: int) -> Self:
        """The objects of images of one size; crowds are left out."""
        single = [boxes.select(~np.array(boxes.crowd, bool)) for boxes in images]
        labels = torch.tensor([numbers[label] for boxes in single for label in boxes.labels], dtype=torch.long)
        corners = np.concatenate([boxes.scale(1 / width, 1 / height).corners for boxes in single])
        return cls(labels, to_centred(torch.from_numpy(corners)), tuple(map(len, single)))

    def take_rows(self, rows: slice) -> Self:
        """The objects of some of the images."""
        image = torch.arange(len(self.counts)).repeat_interleave(torch.tensor(self.counts))  # (N,)
        chosen = torch.isin(image, torch.arange(len(self.counts))[rows])
        return type(self)(self.labels[chosen], self.boxes[chosen], self.counts[rows])

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        labels, boxes = (tensor.to(device, non_blocking=non_blocking) for tensor in (self.labels, self.boxes))
        return type(self)(labels, boxes, self.counts)


@dataclass(frozen=True)
class Weights:
    """Weights of class, L1 distance and GIoU in matching and loss, and of the class "no object" in the cross-entropy:
    most queries have it."""

    label: float = 1.0
    distance: float = 5.0
    overlap: float = 2.0
    nothing: float = 0.1


PAPER = Weights()


def detection_loss(layers: Sequence[Detections], objects: Objects, weights: Weights = PAPER) -> Loss:
    """The losses of all layers, summed, times the number of images: the weighted mean cross-entropy of the queries, and
    L1 distance and GIoU of matched boxes, divided by the objects of the batch. `nll` is the last layer's."""
    logits = at_least_float32(torch.stack([layer.logits for layer in layers]))  # (L, B, Q, K + 1)
    boxes = at_least_float32(torch.stack([layer.boxes for layer in layers]))  # (L, B, Q, 4)
    return matched_loss(logits, boxes, objects, match_hungarian(logits, boxes, objects, weights), weights)


def matched_loss(logits: Tensor, boxes: Tensor, objects: Objects, matches: Tensor, weights: Weights = PAPER) -> Loss:
    """The losses of all layers with the matches (4, S) of queries and objects."""
    layer, image, query, which = matches
    labels = torch.full(logits.shape[:3], logits.shape[-1] - 1, device=logits.device)  # (L, B, Q): no object
    labels[layer, image, query] = objects.labels[which]
    predicted, true = boxes[layer, image, query], objects.boxes.to(boxes.dtype)[which]  # 2 x (S, 4)
    distance = (predicted - true).abs().sum(-1)
    overlap = 1 - giou(to_corners(predicted), to_corners(true))
    count = REPLICAS.get().sum(torch.full((), sum(objects.counts), device=logits.device)).clamp(min=1)
    box_losses = (weights.distance * distance + weights.overlap * overlap) / count  # (S,)
    by_layer = classification_loss(logits, labels, weights).index_add(0, layer, box_losses)  # (L,)
    images = count_examples(logits[0])
    batch = REPLICAS.get().sum(images)
    return Loss(batch * by_layer.sum(), batch * by_layer[-1].detach(), images)


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def classification_loss(logits: Tensor, labels: Tensor, weights: Weights) -> Tensor:
    """The weighted mean cross-entropy of each layer's queries, "no object" down-weighted: (L,)."""
    by_class = logits.new_ones(logits.shape[-1])
    by_class[-1] = weights.nothing
    losses = F.cross_entropy(logits.flatten(0, 2), labels.flatten(), by_class, reduction="none")  # (LBQ,)
    total = REPLICAS.get().sum(by_class[labels].sum((1, 2))).clamp(min=weights.nothing)
    return weights.label * losses.view_as(labels).sum((1, 2)) / total


@torch.no_grad()
def match_hungarian(logits: Tensor, boxes: Tensor, objects: Objects, weights: Weights = PAPER) -> Tensor:
    """Hungarian matching, the cheapest bipartite matching of queries with objects in each layer and image, by
    -p(class) + 5 L1 - 2 GIoU: layer, image, query and object of each matched pair, (4, S). Where there are more objects
    than queries, the most expensive stay unmatched."""
    from scipy.optimize import linear_sum_assignment  # an extra that inference does not need

    if not objects.counts:
        return torch.zeros(4, 0, dtype=torch.long, device=logits.device)
    cost = matching_costs(logits, boxes, objects, weights)
    tables = cost.nan_to_num(WORST, WORST, WORST).cpu().numpy()  # all layers at once: one wait for the device
    first = np.cumsum((0, *objects.counts))
    pairs = []
    for layer, image in np.ndindex(tables.shape[:2]):
        queries, matched = linear_sum_assignment(tables[layer, image, :, : objects.counts[image]])
        pairs.append([np.full_like(queries, layer), np.full_like(queries, image), queries, first[image] + matched])
    return torch.from_numpy(np.concatenate(pairs, axis=1)).to(logits.device)


def matching_costs(logits: Tensor, boxes: Tensor, objects: Objects, weights: Weights) -> Tensor:
    """The cost of matching each query with each object of its image, (L, B, Q, M), padded to the most objects."""
    labels = pad_sequence(objects.labels.split(objects.counts), batch_first=True)  # (B, M)
    true = pad_sequence(objects.boxes.split(objects.counts), batch_first=True).unsqueeze(1)  # (B, 1, M, 4)
    labels = labels[None, :, None].expand(*logits.shape[:3], -1)  # (B, M) -> (L, B, Q, M)
    probability = logits.softmax(-1).gather(-1, labels)
    predicted = boxes.unsqueeze(-2)  # (L, B, Q, 1, 4)
    distance = (predicted - true).abs().sum(-1)
    overlap = giou(to_corners(predicted), to_corners(true))
    return weights.distance * distance - weights.label * probability - weights.overlap * overlap
