"""Average precision of detections as COCO defines it (Lin et al. 2014; the rules are those of its evaluation code).

For each label and each bar of overlap, detections of all images stand in one line, the surest first; each takes the box
of its image that it fits best and that nobody took before. Precision at 101 shares of found boxes, made to fall, and
its mean over shares, labels and bars .50, .55, ..., .95: that is AP. Boxes that do not count (crowds, other sizes)
neither help nor harm, nor does what is found at them.

DISCREPANCY: COCO takes the areas of outlines for small, medium and large; here it is those of the boxes.

Letters: N images, D detections and G boxes of a label, K bars of overlap, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwise.evaluate.bootstrap import Floats, bootstrap_interval, check_paired
from headwise.evaluate.score import Score
from headwise.vision.boxes import Boxes, Found, area, common, iou

BARS = np.linspace(0.5, 0.95, 10)
SHARES = np.linspace(0, 1, 101)  # of found boxes, at which precision is read
SIDES = (32.0, 96.0)  # where medium and large begin: roots of areas in pixels
MOST = 100  # detections of an image that count
EVERY = slice(None)

# name -> bars that it is the mean of, and between which two of (0, where medium begins, where large begins, any) sizes
SCORES = {
    "AP": (EVERY, 0, 3),
    "AP50": (slice(0, 1), 0, 3),
    "AP75": (slice(5, 6), 0, 3),
    "AP small": (EVERY, 0, 1),
    "AP medium": (EVERY, 1, 2),
    "AP large": (EVERY, 2, 3),
}


@dataclass(frozen=True, eq=False)
class Line:
    """The detections of one label in all images, the surest first, and how many boxes there were to find."""

    images: np.ndarray  # (D,) numbers
    right: np.ndarray  # (K, D)
    wrong: np.ndarray  # (K, D); what is neither does not count
    boxes: np.ndarray  # (N,) how many of each image count

    def precision(self, weights: Floats, bars: slice = EVERY) -> float:
        """The mean over shares and bars; images count as often as `weights` (N,) says. NaN without a box."""
        total = weights @ self.boxes
        if not total:
            return np.nan
        times = weights[self.images]
        hits, misses = (self.right[bars] * times).cumsum(1), (self.wrong[bars] * times).cumsum(1)  # (K, D)
        precision = hits / np.maximum(hits + misses, np.spacing(1))
        falling = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
        padded = np.pad(falling, ((0, 0), (0, 1)))  # shares that are never reached have none
        places = (np.searchsorted(row, SHARES) for row in hits / total)
        return float(np.mean([row[place] for row, place in zip(padded, places, strict=True)]))


def average_precision(
    found: Sequence[Found],
    truths: Sequence[Boxes],
    resamples: int = 0,
    names: Sequence[str] = tuple(SCORES),
    sides: tuple[float, float] = SIDES,
    most: int = MOST,
) -> list[Score]:
    """Average precision: AP, AP50, AP75, and AP of small, medium and large boxes where there are some, in per cent;
    with intervals over images where `resamples` says so."""
    check_paired(found, truths)
    sizes = [0.0, *(side**2 for side in sides), np.inf]
    lines, scores = dict[tuple[float, float], list[Line]](), []
    for name in names:
        bars, low, high = SCORES[name]
        between = (sizes[low], sizes[high])
        if between not in lines:
            lines[between] = _lines(found, truths, between, most)
        if own := [line for line in lines[between] if line.boxes.any()]:
            scores.append(_score(name, own, bars, len(truths), resamples))
    return scores


def _score(name: str, lines: Sequence[Line], bars: slice, images: int, resamples: int) -> Score:
    def mean(draws: Floats) -> Floats:
        """(R, N) -> (R,): labels that a draw has no box of do not count in it."""
        each = np.array([[line.precision(weights, bars) for line in lines] for weights in draws])  # (R, labels)
        return 100 * np.nansum(each, 1) / np.maximum((~np.isnan(each)).sum(1), 1)

    value = float(mean(np.ones((1, images)))[0])
    # a draw of images is how often each of them was drawn, which is what sums of rows of the identity say
    low, high = bootstrap_interval(np.eye(images) if resamples else [[0.0]], mean, resamples)
    boxes = int(sum(line.boxes.sum() for line in lines))
    return Score(name, value, low, high, f"{boxes} boxes in {images} images", unit="%")


def _lines(found: Sequence[Found], truths: Sequence[Boxes], sizes: tuple[float, float], most: int) -> list[Line]:
    """One for each label that there are boxes of."""
    names = sorted({label for boxes in truths for label in boxes.labels})
    return [_line(label, found, truths, sizes, most) for label in names]


def _line(label: str, found: Sequence[Found], truths: Sequence[Boxes], sizes: tuple[float, float], most: int) -> Line:
    images, scores, verdicts, counts = [], [], [], []
    for number, (ours, boxes) in enumerate(zip(found, truths, strict=True)):
        chosen = np.array([each == label for each in ours.labels], bool)
        order = np.argsort(-ours.scores[chosen], kind="stable")[:most]
        own = boxes.chosen(np.array([each == label for each in boxes.labels], bool))
        counting = ~np.array(own.crowd, bool) & _between(own.corners, sizes)
        verdicts.append(_matched(ours.corners[chosen][order], own, counting, sizes))
        scores.append(ours.scores[chosen][order])
        images.append(np.full(len(order), number))
        counts.append(counting.sum())
    order = np.argsort(-np.concatenate(scores), kind="stable")
    right, wrong = np.concatenate(verdicts, axis=2)[:, :, order]  # N x (2, K, d) -> 2 x (K, D)
    return Line(np.concatenate(images)[order], right, wrong, np.array(counts))


def _matched(corners: np.ndarray, boxes: Boxes, counting: np.ndarray, sizes: tuple[float, float]) -> np.ndarray:
    """Which detections of one image, the surest first, are right and which wrong at each bar: (2, K, d)."""
    order = np.argsort(~counting, kind="stable")  # a box that counts is preferred to any that does not
    boxes, counting = boxes.chosen(order), counting[order]
    crowd = np.array(boxes.crowd, bool)
    mine, theirs = corners.astype(np.float64)[:, None], boxes.corners.astype(np.float64)
    # a detection fits a crowd as far as it is inside it
    fits = np.where(crowd, common(mine, theirs) / np.maximum(area(mine), 1e-9), iou(mine, theirs))  # (d, G)
    bars = np.minimum(BARS, 1 - 1e-10)[:, None]
    taken = np.zeros((len(BARS), len(boxes)), bool)
    verdicts = np.zeros((2, len(BARS), len(corners)), bool)
    every = np.arange(len(BARS))
    for number, fit in enumerate(fits):
        able = (fit >= bars) & (~taken | crowd)  # (K, G)
        able &= counting | ~(able & counting).any(1, keepdims=True)
        # the best, and of equal ones the last
        best = len(boxes) - 1 - np.where(able, fit, -1.0)[:, ::-1].argmax(1) if len(boxes) else every
        hit = able.any(1)
        taken[every[hit], best[hit]] = True
        outside = not _between(corners[number], sizes)
        verdicts[0, hit, number] = counting[best[hit]]
        verdicts[1, :, number] = ~hit & ~outside
    return verdicts


def _between(corners: np.ndarray, sizes: tuple[float, float]) -> np.ndarray:
    """Whether areas are within these, both ends included."""
    areas = area(corners.astype(np.float64))
    return (areas >= sizes[0]) & (areas <= sizes[1])
