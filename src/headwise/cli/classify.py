"""`headwise classify`."""

from __future__ import annotations

import json
from pathlib import Path

from headwise.cli.common import Checkpoint, Device, File, Json, Threads, With, chunks, opened


def classify(
    run: Path,
    *texts: str,
    file: File = None,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Label texts, with a run that learnt to classify: the most probable label and its probability.

    Texts are arguments, lines of --file, or lines of stdin; on a terminal without any of these it asks.

    For example:

        headwise classify runs/polarity-lstm "a fine film , warm and funny"
        headwise classify runs/polarity-lstm --file reviews.txt | cut -f1 | sort | uniq -c
        echo "dull from start to end" | headwise classify runs/polarity-lstm --json

    Parameters
    ----------
    run
        A run folder.
    texts
        What to classify, each in quotes.
    """
    loaded = opened(run, checkpoint, device, threads, with_)
    loaded.able("classify")
    for chunk in chunks(texts, file):
        for text, found in zip(chunk, loaded.classify(chunk), strict=True):
            label = max(found, key=found.__getitem__)
            if json_:
                print(json.dumps({"text": text, "label": label, "probabilities": found}, ensure_ascii=False))
            else:
                print(f"{label}\t{found[label]:.3f}")
