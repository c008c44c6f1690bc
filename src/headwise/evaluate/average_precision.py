"""Average precision of object detection as in COCO (Lin et al. 2014; the rules are those of pycocotools).

For each label and IoU threshold, the detections of all images are ranked by score; each is matched with the box of its
image that has the largest IoU and is not matched yet. AP is the mean of the interpolated precision over 101 recall
levels, labels and the IoU thresholds .50, .55, ..., .95. Ignored boxes (crowds, other sizes) and detections matched
with them count neither as right nor as wrong.

DISCREPANCY: COCO takes the areas of segmentation masks for small, medium and large; here it is those of the boxes.

Letters: N images, D detections and G boxes of a label, K IoU thresholds, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwise.evaluate.bootstrap import Floats, bootstrap_interval, check_paired
from headwise.evaluate.score import Score
from headwise.vision.boxes import Boxes, Detections, area, intersection, iou

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALL_LEVELS = np.linspace(0, 1, 101)
SIDES = (32.0, 96.0)  # where medium and large begin: square roots of areas in pixels
MAX_DETECTIONS = 100  # of an image, by score
EVERY = slice(None)

# name -> IoU thresholds that it is the mean of, and the bounds of the size, of (0, medium, large, infinity)
SCORES = {
    "AP": (EVERY, 0, 3),
    "AP50": (slice(0, 1), 0, 3),
    "AP75": (slice(5, 6), 0, 3),
    "AP small": (EVERY, 0, 1),
    "AP medium": (EVERY, 1, 2),
    "AP large": (EVERY, 2, 3),
}


@dataclass(frozen=True, eq=False)
class RankedDetections:
    """The detections of one label in all images, by falling score, and the number of boxes to detect."""

    images: np.ndarray  # (D,) numbers
    right: np.ndarray  # (K, D) true positives
    wrong: np.ndarray  # (K, D) false positives; ignored detections are neither
    boxes: np.ndarray  # (N,) boxes of each image, ignored ones left out

    def average_precision(self, weights: Floats, thresholds: slice = EVERY) -> float:
        """The mean precision over recall levels and thresholds, with `weights` (N,) of images; NaN without a box."""
        total = weights @ self.boxes
        if not total:
            return np.nan
        times = weights[self.images]
        right, wrong = (self.right[thresholds] * times).cumsum(1), (self.wrong[thresholds] * times).cumsum(1)  # (K, D)
        precision = right / np.maximum(right + wrong, np.spacing(1))
        interpolated = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
        padded = np.pad(interpolated, ((0, 0), (0, 1)))  # 0 at recall levels that are never reached
        columns = (np.searchsorted(recall, RECALL_LEVELS) for recall in right / total)
        return float(np.mean([row[column] for row, column in zip(padded, columns, strict=True)]))


def average_precision(
    detections: Sequence[Detections],
    truths: Sequence[Boxes],
    resamples: int = 0,
    names: Sequence[str] = tuple(SCORES),
    sides: tuple[float, float] = SIDES,
    max_detections: int = MAX_DETECTIONS,
) -> list[Score]:
    """Mean average precision (mAP): AP, AP50, AP75, and AP of small, medium and large boxes where there are some, in
    per cent; with intervals over images if there are `resamples`."""
    check_paired(detections, truths)
    bounds = [0.0, *(side**2 for side in sides), np.inf]
    by_size, scores = dict[tuple[float, float], list[RankedDetections]](), []
    for name in names:
        thresholds, low, high = SCORES[name]
        sizes = (bounds[low], bounds[high])
        if sizes not in by_size:
            by_size[sizes] = _rank_by_label(detections, truths, sizes, max_detections)
        if labels := [ranked for ranked in by_size[sizes] if ranked.boxes.any()]:
            scores.append(_score(name, labels, thresholds, len(truths), resamples))
    return scores


def _score(name: str, labels: Sequence[RankedDetections], thresholds: slice, images: int, resamples: int) -> Score:
    def mean(draws: Floats) -> Floats:
        """(R, N) -> (R,): the mean over the labels that have a box in a draw."""
        values = np.array([[ranked.average_precision(weights, thresholds) for ranked in labels] for weights in draws])
        return 100 * np.nansum(values, 1) / np.maximum((~np.isnan(values)).sum(1), 1)  # (R, labels) -> (R,)

    value = float(mean(np.ones((1, images)))[0])
    # sums of rows of the identity are how often each image was drawn
    low, high = bootstrap_interval(np.eye(images) if resamples else [[0.0]], mean, resamples)
    boxes = int(sum(ranked.boxes.sum() for ranked in labels))
    return Score(name, value, low, high, f"{boxes} boxes in {images} images", unit="%")


def _rank_by_label(
    detections: Sequence[Detections], truths: Sequence[Boxes], sizes: tuple[float, float], max_detections: int
) -> list[RankedDetections]:
    """The ranked detections of each label that has boxes."""
    names = sorted({label for boxes in truths for label in boxes.labels})
    return [_rank(label, detections, truths, sizes, max_detections) for label in names]


def _rank(
    label: str,
    detections: Sequence[Detections],
    truths: Sequence[Boxes],
    sizes: tuple[float, float],
    max_detections: int,
) -> RankedDetections:
    images, scores, verdicts, counts = [], [], [], []
    for number, (detected, truth) in enumerate(zip(detections, truths, strict=True)):
        of_label = np.array([name == label for name in detected.labels], bool)
        order = np.argsort(-detected.scores[of_label], kind="stable")[:max_detections]
        boxes = truth.select(np.array([name == label for name in truth.labels], bool))
        counted = ~np.array(boxes.crowd, bool) & _has_size(boxes.corners, sizes)
        verdicts.append(_match(detected.corners[of_label][order], boxes, counted, sizes))
        scores.append(detected.scores[of_label][order])
        images.append(np.full(len(order), number))
        counts.append(counted.sum())
    order = np.argsort(-np.concatenate(scores), kind="stable")
    right, wrong = np.concatenate(verdicts, axis=2)[:, :, order]  # N x (2, K, d) -> 2 x (K, D)
    return RankedDetections(np.concatenate(images)[order], right, wrong, np.array(counts))


def _match(corners: np.ndarray, boxes: Boxes, counted: np.ndarray, sizes: tuple[float, float]) -> np.ndarray:
    """True and false positives at each threshold among the detections of one image, by falling score: (2, K, d)."""
    order = np.argsort(~counted, kind="stable")  # counted boxes are preferred to ignored ones
    boxes, counted = boxes.select(order), counted[order]
    crowd = np.array(boxes.crowd, bool)
    detected, true = corners.astype(np.float64)[:, None], boxes.corners.astype(np.float64)
    # (d, G); with a crowd: the share of the detection that is inside it
    overlaps = np.where(
        crowd, intersection(detected, true) / np.maximum(area(detected), 1e-9), iou(detected, true)
    )  # (d, G)
    thresholds = np.minimum(IOU_THRESHOLDS, 1 - 1e-10)[:, None]
    matched = np.zeros((len(thresholds), len(boxes)), bool)
    verdicts = np.zeros((2, len(thresholds), len(corners)), bool)
    rows = np.arange(len(thresholds))
    for number, overlap in enumerate(overlaps):
        allowed = (overlap >= thresholds) & (~matched | crowd)  # (K, G)
        allowed &= counted | ~(allowed & counted).any(1, keepdims=True)
        # the largest overlap; of equal ones the last, as pycocotools
        best = len(boxes) - 1 - np.where(allowed, overlap, -1.0)[:, ::-1].argmax(1) if len(boxes) else rows
        hit = allowed.any(1)
        matched[rows[hit], best[hit]] = True
        outside = not _has_size(corners[number], sizes)
        verdicts[0, hit, number] = counted[best[hit]]
        verdicts[1, :, number] = ~hit & ~outside
    return verdicts


def _has_size(corners: np.ndarray, sizes: tuple[float, float]) -> np.ndarray:
    """Whether areas are within these bounds, both included."""
    areas = area(corners.astype(np.float64))
    return (areas >= sizes[0]) & (areas <= sizes[1])
