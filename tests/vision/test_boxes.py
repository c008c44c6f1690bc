"""Boxes: conversions, IoU in closed form, and equal results with NumPy and torch."""

import numpy as np
import pytest
import torch

from headwise.vision.boxes import Boxes, area, flip_corners, giou, intersection, iou, to_centred, to_corners


def some(count: int, seed: int) -> np.ndarray:
    low = np.random.default_rng(seed).uniform(0, 5, (count, 2))
    return np.concatenate([low, low + np.random.default_rng(seed + 1).uniform(0.5, 4, (count, 2))], 1)


@pytest.mark.parametrize("measure", [iou, giou, intersection])
def test_arrays_and_tensors_agree_for_all_pairs(measure) -> None:
    a, b = some(4, 0), some(3, 2)
    ours = measure(a[:, None], b)
    tensors = measure(torch.from_numpy(a)[:, None], torch.from_numpy(b))
    assert ours.shape == (4, 3)
    assert np.allclose(ours, tensors.numpy(), atol=1e-12)
    assert np.allclose(np.diag(measure(a[:3, None], b)), measure(a[:3], b))


def test_overlap_in_closed_form() -> None:
    left, right, far = np.array([[0.0, 0, 4, 2], [2, 0, 6, 2], [8, 0, 9, 2]])
    assert intersection(left, right) == 4
    assert iou(left, right) == pytest.approx(4 / 12)
    assert giou(left, right) == pytest.approx(4 / 12)  # their hull is their union
    assert giou(left, far) == pytest.approx(0 - (18 - 10) / 18)
    assert giou(left, left) == pytest.approx(1)


def test_boxes_without_area_have_no_overlap_and_no_nan() -> None:
    point, box = torch.tensor([1.0, 1, 1, 1]), torch.tensor([0.0, 0, 2, 2])
    assert iou(point, box) == 0
    assert iou(point, point) == 0
    assert torch.isfinite(giou(point, point))


def test_giou_has_a_gradient_between_disjoint_boxes() -> None:
    moving = torch.tensor([0.0, 0, 1, 1], requires_grad=True)
    giou(moving, torch.tensor([3.0, 0, 4, 1])).backward()
    assert moving.grad is not None
    assert moving.grad[2] > 0


def test_conversions_are_inverse_and_two_flips_are_the_identity() -> None:
    for boxes in (some(5, 4), torch.from_numpy(some(5, 4))):
        assert np.allclose(to_corners(to_centred(boxes)), boxes)
        assert np.allclose(flip_corners(flip_corners(boxes, 9.0), 9.0), boxes)
        assert np.allclose(area(flip_corners(boxes, 9.0)), area(boxes))


def test_boxes_are_clipped_to_the_image_or_dropped() -> None:
    boxes = Boxes(np.array([[0, 0, 4, 4], [6, 6, 12, 9], [20, 0, 30, 5]]), ("a", "b", "c"), (False, True, False))
    clipped = boxes.shift(1, 0).clip(10, 8)
    assert clipped.corners.tolist() == [[1, 0, 5, 4], [7, 6, 10, 8]]
    assert (clipped.labels, clipped.crowd) == (("a", "b"), (False, True))


def test_an_image_may_have_no_boxes() -> None:
    none = Boxes(np.zeros((0, 4)), ())
    assert none.corners.shape == (0, 4)
    assert len(none.flip(8).clip(4, 4)) == 0
    with pytest.raises(ValueError, match="as many labels"):
        Boxes(np.zeros((2, 4)), ("a",))
