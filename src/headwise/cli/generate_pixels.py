"""`headwise generate` of a model of pixels: it completes images and writes a picture of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel

SHOWN = 10  # images of the test split, where none are named


def write_completions(
    loaded: TrainedModel,
    files: Sequence[str],
    out: Path | None,
    keep: float,
    temperature: float | None,
    seed: int | None,
    json_: bool,
) -> None:
    """Complete image files, or the first images of the run's test split, and write the picture `out`."""
    import numpy as np

    from headwise.inspect.pixel_sheet import draw_completions
    from headwise.utils.files import write

    task = loaded.check_task("pixels")
    out = out or Path("completed.png")
    if out.suffix.lower() != ".png":
        raise UserError(f"--out {out}: pictures of pixels are PNG files; name one that ends with .png")
    if files:
        images = np.stack([task.pixels.read(file).numpy() for file in files])
    else:
        images = np.array(loaded.held_out().pixels[:SHOWN])
    completed = task.complete_images(
        loaded.model, images, keep, 1.0 if temperature is None else temperature, 0 if seed is None else seed
    )
    write(out, draw_completions(task.complete_images(loaded.model, images, keep=1.0), completed, keep))  # as quantised
    message = f"{len(images)} images, completed below {keep:.0%} of their rows, are in {out}"
    print(json.dumps({"images": len(images), "keep": keep, "out": str(out)}) if json_ else message)
