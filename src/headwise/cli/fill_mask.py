"""`headwise fill-mask`."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import chain, repeat
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, File, Json, Threads, With, chunks, opened


def fill_mask(
    run: Path,
    *texts: str,
    file: File = None,
    count: Annotated[int, Parameter(validator=validators.Number(gte=1), help="How many words to show.")] = 5,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Fill in what is hidden: the most probable words for each [MASK] of texts, with their probabilities.

    A text may have several masks; each has its own lines, with an empty one between them. A masked language model gives
    a token for each, a denoising one any number of them. Texts are arguments, lines of --file, or lines of stdin; on a
    terminal without any of these it asks.

    For example:

        headwise fill-mask runs/bert "the [MASK] sat on the mat"
        headwise fill-mask runs/bert "[MASK] and [MASK]" --count 3 --json
        echo "to be or not to [MASK]" | headwise fill-mask runs/bert

    Parameters
    ----------
    run
        A run folder of a masked or a denoising language model.
    texts
        Texts with [MASK] in them, each in quotes.
    """
    loaded = opened(run, checkpoint, device, threads, with_)
    loaded.check_command("fill-mask")
    gaps = chain([""], repeat("\n"))
    for chunk in chunks(texts, file):
        for text, masks in zip(chunk, loaded.fill_mask(chunk, count), strict=True):
            if json_:
                found = [[asdict(each) for each in ways] for ways in masks]
                print(json.dumps({"text": text, "masks": found}, ensure_ascii=False))
                continue
            for ways in masks:
                print(next(gaps) + "\n".join(f"{each.probability:.4f}\t{each.word}" for each in ways))
