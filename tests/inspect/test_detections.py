"""Pictures of detections."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from headwise.inspect.detections import draw_attention, draw_detections, draw_image
from headwise.inspect.panels import overlay_weights, resize_for_tile
from headwise.vision.boxes import Detections

WEIGHTS = np.array([[0.0, 0.1], [0.2, 0.7]])


def test_attention_is_drawn_over_the_crop_that_the_model_reads() -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))
    axes = Figure().subplots()
    draw_image(axes, image)
    draw_attention(axes, image, WEIGHTS, (5.0, 0.0, 25.0, 20.0))
    over = axes.images[-1]
    assert over.get_extent() == [5, 25, 20, 0]
    assert np.array_equal(over.get_array(), overlay_weights(resize_for_tile(image.crop((5, 0, 25, 20))), WEIGHTS))
    assert axes.get_xlim() == (0, 30) and axes.get_ylim() == (20, 0)  # what it was not given is shown as well


def test_each_box_has_a_panel(tmp_path: Path) -> None:
    detections = Detections(
        np.array([[2, 2, 10, 9], [4, 1, 15, 15]]), ("star", "$star"), np.array([0.9, 0.6]), np.arange(2)
    )
    path = draw_detections(
        tmp_path / "boxes.svg", Image.new("RGB", (16, 16), "red"), detections, np.stack([WEIGHTS, WEIGHTS.T])
    )
    assert path.read_text().count("<image") == 3
