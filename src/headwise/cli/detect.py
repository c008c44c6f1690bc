"""`headwise detect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, Engine, Json, Threads, load_model, say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.vision.boxes import Detections

SHARE = validators.Number(gte=0, lte=1)


def detect(
    run: Path,
    *images: Path,
    above: Annotated[float, Parameter(validator=SHARE, help="Minimum score.")] = 0.5,
    out: Annotated[Path | None, Parameter(help="Draw the boxes of one image to this .svg or .png.")] = None,
    attention: Annotated[bool, Parameter(negative="", help="Draw the attention map of each box, too.")] = False,
    engine: Engine = "auto",
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Detect objects in images: prints label, score, box as x0 y0 x1 y1 in pixels, and file.

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
        raise UserError("there is no image; name one or more files")
    if attention and not out:
        raise UserError("--attention: is drawn; name a picture with --out")
    if out:
        check_ending(out, ".svg", ".png")
        if len(images) > 1:
            raise UserError(f"--out: draws one image, not {len(images)}; name one")
    loaded = load_model(run, checkpoint, device, threads, engine=engine)
    task = loaded.check_task("detect")
    from headwise.inspect.detections import draw_detections
    from headwise.vision.decode import load_upright

    for file in images:
        picture = load_upright(file)
        (objects,) = loaded.detect([picture], above)
        _print_objects(file, objects, json_)
        if out:
            pixels = task.pixels.read(picture)
            maps = task.attention_maps(loaded.model, pixels)[objects.queries] if attention else None
            say(f"picture: {draw_detections(out, picture, objects, maps, task.visible_window(picture.size))}")


def _print_objects(file: Path, objects: Detections, as_json: bool) -> None:
    rows = list(zip(objects.labels, objects.scores.tolist(), objects.corners.tolist(), strict=True))
    if as_json:
        listed = [{"label": label, "score": score, "box": corners} for label, score, corners in rows]
        print(json.dumps({"image": str(file), "objects": listed}, ensure_ascii=False))
        return
    for label, score, corners in rows:
        print(f"{label}\t{score:.3f}\t{' '.join(f'{side:.1f}' for side in corners)}\t{file}")
