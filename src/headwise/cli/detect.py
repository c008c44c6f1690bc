"""`headwise detect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, Json, Threads, With, opened, say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.vision.boxes import Found

SHARE = validators.Number(gte=0, lte=1)


def detect(
    run: Path,
    *images: Path,
    above: Annotated[float, Parameter(validator=SHARE, help="The least score of what is told.")] = 0.5,
    out: Annotated[Path | None, Parameter(help="Draw the boxes of one image to this .svg or .png.")] = None,
    attention: Annotated[
        bool, Parameter(negative="", help="In the picture, where the model looked for each box, too.")
    ] = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Find what is in images, with a run that learnt to detect: label, score, the box x0 y0 x1 y1 in pixels, file.

    For example:

        headwise detect runs/scenes-detr scene.png
        headwise detect runs/scenes-detr scene.png --out boxes.svg --attention
        headwise detect runs/scenes-detr photos/*.jpg --above 0.8 --json

    Parameters
    ----------
    run
        A run folder or a Hugging Face folder.
    images
        Image files.
    """
    from headwise.inspect.files import check_ending

    if not images:
        raise UserError("there is no image to look at; name one or more files")
    if attention and not out:
        raise UserError("--attention: is drawn, not printed; name a picture with --out")
    if out:
        check_ending(out, ".svg", ".png")
        if len(images) > 1:
            raise UserError(f"--out: a picture shows one image, not {len(images)}; name one")
    loaded = opened(run, checkpoint, device, threads, with_)
    task = loaded.check_task("detect")
    from headwise.inspect.detections import draw
    from headwise.vision.decode import shown

    for file in images:
        picture = shown(file)
        (found,) = loaded.detect([picture], above)
        _tell(file, found, json_)
        if out:
            maps = task.attention_maps(loaded.model, task.pixels.read(picture))[found.slots] if attention else None
            say(f"the picture is {draw(out, picture, found, maps, task.visible_window(picture.size))}")


def _tell(file: Path, found: Found, as_json: bool) -> None:
    rows = list(zip(found.labels, found.scores.tolist(), found.corners.tolist(), strict=True))
    if as_json:
        told = [{"label": label, "score": score, "box": corners} for label, score, corners in rows]
        print(json.dumps({"image": str(file), "objects": told}, ensure_ascii=False))
        return
    for label, score, corners in rows:
        print(f"{label}\t{score:.3f}\t{' '.join(f'{side:.1f}' for side in corners)}\t{file}")
