"""`headwise fill-mask`."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import chain, repeat
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import (
    Checkpoint,
    Device,
    Engine,
    File,
    Json,
    Threads,
    escape_controls,
    load_model,
    read_chunks,
)


def fill_mask(
    run: Path,
    *texts: str,
    file: File = None,
    count: Annotated[int, Parameter(validator=validators.Number(gte=1), help="Number of words to print per mask.")] = 5,
    engine: Engine = "auto",
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Predict masked words: the most probable ones for each [MASK] of texts, with their probabilities.

    With several masks in a text, each has its own lines, separated by an empty one. Line breaks and other control
    characters are printed as escapes, such as \\n. A masked language model predicts one token per mask, a denoising one
    any number. Texts are arguments, lines of --file, or lines of stdin; without any of these, a terminal prompts for
    them.

    For example:

        headwise fill-mask runs/bert "the [MASK] sat on the mat"
        headwise fill-mask runs/bert "[MASK] and [MASK]" --count 3 --json
        echo "to be or not to [MASK]" | headwise fill-mask runs/bert

    Parameters
    ----------
    run
        A run folder of a masked or denoising language model.
    texts
        Texts with [MASK] in them, each in quotes.
    """
    loaded = load_model(run, checkpoint, device, threads, engine=engine)
    loaded.check_command("fill-mask")
    separators = chain([""], repeat("\n"))
    for chunk in read_chunks(texts, file):
        for text, masks in zip(chunk, loaded.fill_mask(chunk, count), strict=True):
            if json_:
                rows = [[asdict(candidate) for candidate in candidates] for candidates in masks]
                print(json.dumps({"text": text, "masks": rows}, ensure_ascii=False))
                continue
            for candidates in masks:
                lines = (f"{filled.probability:.4f}\t{escape_controls(filled.word)}" for filled in candidates)
                print(next(separators) + "\n".join(lines))
