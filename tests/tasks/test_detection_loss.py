"""The loss of detections: whom it matches, what it asks of the others, and that transformers finds the same."""

from __future__ import annotations

import math
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss, HungarianMatcher

from headwise.models.detector import Detections
from headwise.tasks.detection_loss import PAPER, Objects, Weights, detection_loss, match_hungarian, matching_costs
from headwise.vision.boxes import Boxes

CLASSES, SLOTS = 3, 6
COUNTS = (2, 0, 4)


def detections(layers: int = 1, images: int = len(COUNTS), slots: int = SLOTS, seed: int = 0) -> list[Detections]:
    make = torch.Generator().manual_seed(seed)
    logits = torch.randn(layers, images, slots, CLASSES + 1, generator=make, dtype=torch.float64)
    boxes = torch.rand(layers, images, slots, 4, generator=make, dtype=torch.float64) * 0.4 + 0.2
    return [Detections(*both) for both in zip(logits, boxes, strict=True)]


def objects(counts: tuple[int, ...] = COUNTS, seed: int = 1) -> Objects:
    make = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (sum(counts),), generator=make)
    boxes = torch.rand(sum(counts), 4, generator=make, dtype=torch.float64) * 0.4 + 0.2
    return Objects(labels, boxes, counts)


def theirs(given: Objects) -> list[dict[str, Tensor]]:
    parts = zip(given.labels.split(given.counts), given.boxes.split(given.counts), strict=True)
    return [{"class_labels": labels, "boxes": boxes} for labels, boxes in parts]


def stacked(layers: list[Detections]) -> tuple[Tensor, Tensor]:
    return torch.stack([each.logits for each in layers]), torch.stack([each.boxes for each in layers])


def test_loss_of_all_layers_is_that_of_transformers() -> None:
    layers, given = detections(3), objects()
    weights = {"class_cost": 1, "bbox_cost": 5, "giou_cost": 2, "bbox_loss_coefficient": 5, "giou_loss_coefficient": 2}
    settings = SimpleNamespace(
        num_labels=CLASSES, eos_coefficient=0.1, auxiliary_loss=True, decoder_layers=3, **weights
    )
    logits, boxes = stacked(layers)
    torch.set_default_dtype(torch.float64)  # of the weights of classes that it makes
    try:
        total, _, _ = ForObjectDetectionLoss(logits[-1], theirs(given), "cpu", boxes[-1], settings, logits, boxes)
    finally:
        torch.set_default_dtype(torch.float32)
    found = detection_loss(layers, given)
    torch.testing.assert_close(found.total / found.count, total, rtol=0, atol=1e-9)
    assert int(found.count) == len(COUNTS)


def test_matching_is_that_of_transformers() -> None:
    (layer,), given = detections(), objects()
    found = match_hungarian(*stacked([layer]), given)
    matched = HungarianMatcher(1, 5, 2)({"logits": layer.logits, "pred_boxes": layer.boxes}, theirs(given))
    first = np.cumsum((0, *COUNTS))
    pairs = [(image, *pair) for image, each in enumerate(matched) for pair in torch.stack(each, 1).tolist()]
    assert found[1:].t().tolist() == [[image, slot, first[image] + which] for image, slot, which in pairs]


def test_matching_is_the_cheapest_of_all() -> None:
    layers, given = detections(slots=5), objects((3, 3, 3))
    table = matching_costs(*stacked(layers), given, PAPER)[0].detach()
    _, image, slot, which = match_hungarian(*stacked(layers), given)
    for row in range(3):
        cheapest = min(sum(table[row, s, n] for n, s in enumerate(order)) for order in permutations(range(5), 3))
        mine = image == row
        assert math.isclose(float(table[row, slot[mine], which[mine] - 3 * row].sum()), float(cheapest))


def test_order_of_slots_and_of_objects_does_not_matter() -> None:
    layers, given = detections(2), objects()
    order, turned = torch.randperm(SLOTS), torch.tensor([1, 0, 5, 3, 2, 4])  # objects stay in their images
    moved = [Detections(each.logits[:, order], each.boxes[:, order]) for each in layers]
    other = Objects(given.labels[turned], given.boxes[turned], given.counts)
    expected = detection_loss(layers, given).total
    torch.testing.assert_close(detection_loss(moved, given).total, expected)
    torch.testing.assert_close(detection_loss(layers, other).total, expected)


def test_slots_without_an_object_learn_to_be_nothing_and_their_boxes_learn_nothing() -> None:
    (layer,), given = detections(), objects()
    layer.logits.requires_grad_(), layer.boxes.requires_grad_()
    detection_loss([layer], given).total.backward()
    _, image, slot, which = match_hungarian(*stacked([layer]), given)
    wanted = torch.full((len(COUNTS), SLOTS), CLASSES)
    wanted[image, slot] = given.labels[which]
    grad = layer.logits.grad
    assert grad is not None and layer.boxes.grad is not None
    assert (grad.gather(-1, wanted.unsqueeze(-1)) < 0).all()  # each goes towards what it shall say
    assert ((layer.boxes.grad != 0).any(-1) == (wanted < CLASSES)).all()


@pytest.mark.parametrize(("shift", "overlap"), [(0.0, 1.0), (0.1, 1 / 3), (0.4, -1 / 3)])
def test_boxes_cost_their_distance_and_generalised_overlap(shift: float, overlap: float) -> None:
    """Squares of side 0.2 beside each other: IoU (0.2 - s) / (0.2 + s), less the hull's empty share."""
    true = torch.tensor([[0.3, 0.3, 0.2, 0.2]], dtype=torch.float64)
    found = Detections(torch.zeros(1, 1, 2).double(), (true + torch.tensor([shift, 0, 0, 0])).unsqueeze(0))
    loss = detection_loss([found], Objects(torch.tensor([0]), true, (1,)), Weights(label=0))
    assert math.isclose(float(loss.total), 5 * shift + 2 * (1 - overlap), abs_tol=1e-6)


def test_images_without_objects_and_more_objects_than_slots() -> None:
    layers = detections(2)
    empty = detection_loss(layers, objects((0, 0, 0)))
    nothing = sum(-each.logits.log_softmax(-1)[..., -1].mean() for each in layers)
    torch.testing.assert_close(empty.total / 3, nothing)
    crowded = objects((9, 0, 1))
    assert match_hungarian(*stacked(layers), crowded).shape == (4, 2 * (SLOTS + 1))
    assert detection_loss(layers, crowded).total.isfinite()


def test_a_model_gone_wrong_has_no_finite_loss_but_is_matched() -> None:
    (layer,) = detections()
    broken = Detections(layer.logits * math.nan, layer.boxes)
    assert detection_loss([broken], objects()).total.isnan()


def test_objects_are_shares_of_the_image_and_crowds_are_left_out() -> None:
    first = Boxes(np.array([[10, 20, 30, 60], [0, 0, 40, 80]]), ("cat", "dog"), (False, True))
    found = Objects.of([first, Boxes(np.zeros((0, 4)), ())], {"cat": 0, "dog": 1}, height=80, width=40)
    assert found.labels.tolist() == [0] and found.counts == (1, 0)
    torch.testing.assert_close(found.boxes, torch.tensor([[0.5, 0.5, 0.5, 0.5]]))
