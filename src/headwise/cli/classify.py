"""`headwise classify`."""

from __future__ import annotations

import json
from collections.abc import Iterable
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
    """Label texts or images, with a run that learnt to classify: the most probable label and its probability. A
    regression gives its number.

    Texts, or names of image files, are arguments, lines of --file, or lines of stdin; on a terminal without any of
    these it asks.

    For example:

        headwise classify runs/polarity-lstm "a fine film , warm and funny"
        headwise classify runs/polarity-lstm --file reviews.txt | cut -f1 | sort | uniq -c
        echo "dull from start to end" | headwise classify runs/polarity-lstm --json
        headwise classify runs/fashion-vit shoe.png coat.jpg
        ls photos/*.jpg | headwise classify runs/fashion-vit --json

    Parameters
    ----------
    run
        A run folder or a Hugging Face folder.
    texts
        What to classify, each in quotes; or image files.
    """
    loaded = opened(run, checkpoint, device, threads, with_)
    kind = loaded.check_task("classify", "classify-images", "regress").kind
    images = kind == "classify-images"
    for chunk in chunks(texts, file):
        if kind == "regress":
            for given, value in zip(chunk, loaded.regress(chunk), strict=True):
                print(json.dumps({"text": given, "value": value}, ensure_ascii=False) if json_ else f"{value:.3f}")
            continue
        answers: Iterable[dict[str, float]] = loaded.classify_images(chunk) if images else loaded.classify(chunk)
        for given, found in zip(chunk, answers, strict=True):
            label = max(found, key=found.__getitem__)
            if json_:
                row = {"image" if images else "text": given, "label": label, "probabilities": found}
                print(json.dumps(row, ensure_ascii=False))
            else:
                print(f"{label}\t{found[label]:.3f}" + (f"\t{given}" if images else ""))
