"""Average precision beside COCO's own code, and what it must do in cases one can count by hand."""

from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest

from headwise.errors import UserError
from headwise.evaluate.average_precision import average_precision
from headwise.vision.boxes import Boxes, Detections

LABELS = ("circle", "square", "star")
NAMES = ("AP", "AP50", "AP75", "AP small", "AP medium", "AP large")


def random_boxes(random: np.random.Generator, count: int) -> np.ndarray:
    low = random.integers(0, 120, (count, 2))
    return np.concatenate([low, low + random.integers(4, 160, (count, 2))], 1) / 1.0


def random_case(seed: int, images: int = 12) -> tuple[list[Detections], list[Boxes]]:
    """Boxes, some of them crowds; detections near some of them, with wrong labels, twins and false alarms."""
    random = np.random.default_rng(seed)
    found, truths = [], []
    for _ in range(images):
        count = int(random.integers(0, 6))
        corners = random_boxes(random, count)
        labels = tuple(random.choice(LABELS, count))
        truths.append(Boxes(corners, labels, tuple(random.random(count) < 0.15)))
        near = np.repeat(corners, 2, 0) + random.integers(-6, 7, (2 * count, 4))
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        ours = np.concatenate([near, random_boxes(random, 4)])
        given = tuple(np.where(random.random(len(ours)) < 0.8, [*np.repeat(labels, 2), *LABELS, "star"], "circle"))
        found.append(Detections(ours, given, random.integers(0, 30, len(ours)) / 30))  # ties are frequent
    return found, truths


def coco(found: list[Detections], truths: list[Boxes], most: int = 100) -> dict[str, float]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def plain(corners: np.ndarray) -> list[float]:
        x0, y0, x1, y1 = map(float, corners)
        return [x0, y0, x1 - x0, y1 - y0]

    boxes = [
        {"image_id": n, "category_id": LABELS.index(label), "bbox": plain(row), "iscrowd": int(crowd)}
        for n, each in enumerate(truths)
        for row, label, crowd in zip(each.corners, each.labels, each.crowd, strict=True)
    ]
    results = [
        {"image_id": n, "category_id": LABELS.index(label), "bbox": plain(row), "score": float(score)}
        for n, each in enumerate(found)
        for row, label, score in zip(each.corners, each.labels, each.scores, strict=True)
    ]
    with redirect_stdout(StringIO()):
        truth = COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": n} for n in range(len(truths))],
            "categories": [{"id": n, "name": label} for n, label in enumerate(LABELS)],
            "annotations": [{"id": n, "area": b["bbox"][2] * b["bbox"][3], **b} for n, b in enumerate(boxes, 1)],
        }
        truth.createIndex()
        judge = COCOeval(truth, truth.loadRes(results), "bbox")
        judge.params.maxDets = [most]
        judge.evaluate()
        judge.accumulate()
    table = judge.eval["precision"]  # (bars, shares, labels, sizes, most)

    def mean(values: np.ndarray) -> float:
        return 100 * float(values[values > -1].mean())

    every, small, medium, large = (table[..., size, -1] for size in range(4))
    return dict(zip(NAMES, map(mean, (every, every[:1], every[5:6], small, medium, large)), strict=True))


@pytest.mark.parametrize(("seed", "most"), [(0, 100), (1, 100), (2, 2)])
def test_equals_coco(seed: int, most: int) -> None:
    found, truths = random_case(seed)
    ours = {score.name: score.value for score in average_precision(found, truths, max_detections=most)}
    theirs = coco(found, truths, most)
    assert ours == pytest.approx(theirs, abs=1e-9)
    assert 1 < theirs["AP"] < 99


def test_what_is_found_exactly_is_worth_all_and_a_false_alarm_before_it_half() -> None:
    truth = [Boxes(np.array([[0, 0, 10, 10]]), ("circle",))]
    right = Detections(np.array([[0, 0, 10, 10], [20, 20, 30, 30]]), ("circle", "circle"), np.array([0.9, 0.1]))
    alarm = Detections(right.corners, right.labels, np.array([0.1, 0.9]))
    assert [score.value for score in average_precision([right], truth)] == pytest.approx([100, 100, 100, 100])
    assert average_precision([alarm], truth)[0].value == pytest.approx(50)


def test_two_detections_of_one_box_are_one_hit_and_one_miss() -> None:
    truth = [Boxes(np.array([[0, 0, 10, 10], [20, 0, 30, 10]]), ("star", "star"))]
    twice = Detections(np.array([[0, 0, 10, 10], [0, 0, 10, 10]]), ("star", "star"), np.array([0.9, 0.8]))
    # half of the boxes are found before the miss: precision 1 at shares 0 to .5, none beyond
    assert average_precision([twice], truth)[0].value == pytest.approx(100 * 51 / 101)


def test_nothing_found_is_zero_and_an_empty_image_is_no_harm() -> None:
    nothing = Detections(np.zeros((0, 4)), (), np.zeros(0))
    truths = [Boxes(np.array([[0, 0, 10, 10]]), ("star",)), Boxes(np.zeros((0, 4)), ())]
    assert average_precision([nothing, nothing], truths)[0].value == 0
    with pytest.raises(UserError, match="empty"):
        average_precision([], [])


def test_intervals_are_over_images() -> None:
    found, truths = random_case(3, images=40)
    whole = average_precision(found, truths, resamples=60)[0]
    assert whole.low < whole.value < whole.high
    again = average_precision(found * 2, truths * 2)[0]
    assert again.value == pytest.approx(whole.value, abs=3)
    same = Detections(np.array([[0, 0, 10, 10]]), ("star",), np.array([0.5]))
    alike = average_precision([same] * 5, [Boxes(same.corners, same.labels)] * 5, resamples=20)[0]
    assert (alike.low, alike.high) == (100, 100)
