"""Episodes as pictures: an animated GIF, or a strip of some frames as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from headwise.inspect.files import check_ending
from headwise.utils.files import write

STRIP = 10  # frames of a strip
SMALLEST = 256  # pixels of a frame's smaller side; smaller frames are enlarged by whole numbers
FRAMES_PER_SECOND = 12


def enlarge(frame: np.ndarray) -> np.ndarray:
    """A frame (H, W, 3) whose pixels are repeated, so that it can be seen."""
    times = max(1, SMALLEST // min(frame.shape[:2]))
    return frame.repeat(times, 0).repeat(times, 1)


def write_film(frames: Sequence[np.ndarray], path: Path) -> Path:
    """Write frames (H, W, 3) of bytes as .gif, or as .png with frames at equal distances, the first and the last
    included."""
    check_ending(path, ".gif", ".png")
    file = BytesIO()
    if path.suffix.lower() == ".gif":
        first, *rest = (Image.fromarray(enlarge(frame)) for frame in frames)
        options = {"save_all": True, "append_images": rest, "loop": 0, "duration": 1000 // FRAMES_PER_SECOND}
        first.save(file, "GIF", **options)
    else:
        chosen = np.unique(np.linspace(0, len(frames) - 1, STRIP).round().astype(int))
        parts = [enlarge(frames[number]) for number in chosen]
        gap = np.full((len(parts[0]), 4, 3), 255, np.uint8)
        strip = [piece for part in parts for piece in (part, gap)][:-1]
        Image.fromarray(np.concatenate(strip, axis=1)).save(file, "PNG")
    return write(path, file.getvalue())
