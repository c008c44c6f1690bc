"""`headwise caption`."""

from __future__ import annotations

import json
from pathlib import Path

from headwise.cli.common import Beams, Checkpoint, Device, File, Json, Threads, With, chunks, opened


def caption(
    run: Path,
    *images: str,
    file: File = None,
    beams: Beams = None,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Say in a sentence what is in images, with a run that learnt to caption.

    Names of image files are arguments, lines of --file, or lines of stdin; on a terminal without any of these it asks.

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
    loaded = opened(run, checkpoint, device, threads, with_)
    loaded.check_task("caption")
    settings = {} if beams is None else {"beams": beams}
    for chunk in chunks(images, file):
        for name, sentence in zip(chunk, loaded.caption(chunk, **settings), strict=True):
            print(json.dumps({"image": name, "caption": sentence}) if json_ else f"{sentence}\t{name}")
