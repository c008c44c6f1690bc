"""`headwise caption`."""

from __future__ import annotations

import json
from pathlib import Path

from headwise.cli.common import Beams, Checkpoint, Device, File, Json, Threads, load_model, read_chunks


def caption(
    run: Path,
    *images: str,
    file: File = None,
    beams: Beams = None,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Caption images with a run trained for captioning.

    Image files are arguments, lines of --file, or lines of stdin; without any of these, a terminal prompts for them.

    For example:

        headwise caption runs/scenes-captions scene.png
        ls photos/*.jpg | headwise caption runs/scenes-captions --beams 4 --json

    Parameters
    ----------
    run
        A run folder.
    images
        Image files.
    """
    loaded = load_model(run, checkpoint, device, threads)
    loaded.check_task("caption")
    settings = {} if beams is None else {"beams": beams}
    for chunk in read_chunks(images, file):
        for name, sentence in zip(chunk, loaded.caption(chunk, **settings), strict=True):
            print(json.dumps({"image": name, "caption": sentence}) if json_ else f"{sentence}\t{name}")
