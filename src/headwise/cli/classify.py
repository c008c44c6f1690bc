"""`headwise classify`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from headwise.cli.common import Checkpoint, Device, Engine, File, Json, Threads, load_model, read_chunks


def classify(
    run: Path,
    *texts: str,
    file: File = None,
    engine: Engine = "auto",
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Classify texts or images: the most probable label and its probability; for a regression, the value or values.

    Texts, or image files, are arguments, lines of --file, or lines of stdin; without any of
    these, a terminal prompts for them.

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
        Texts, each in quotes; or image files.
    """
    from headwise.tasks.regress import Regress

    loaded = load_model(run, checkpoint, device, threads, engine=engine)
    task = loaded.check_task("classify", "classify-images", "regress")
    images = task.config.reads == "images"
    several = getattr(task.config, "function", "") == "none"  # numbers of a regression
    for chunk in read_chunks(texts, file):
        if isinstance(task, Regress):
            for text, value in zip(chunk, loaded.regress(chunk), strict=True):
                print(json.dumps({"text": text, "value": value}, ensure_ascii=False) if json_ else f"{value:.3f}")
            continue
        outputs: Iterable[dict[str, float]] = loaded.classify_images(chunk) if images else loaded.classify(chunk)
        for text, probabilities in zip(chunk, outputs, strict=True):
            if several:
                shown = "\t".join(f"{name} {value:.3f}" for name, value in probabilities.items())
                print(json.dumps({"text": text, "values": probabilities}, ensure_ascii=False) if json_ else shown)
                continue
            label = max(probabilities, key=probabilities.__getitem__)
            if json_:
                row = {"image" if images else "text": text, "label": label, "probabilities": probabilities}
                print(json.dumps(row, ensure_ascii=False))
            else:
                print(f"{label}\t{probabilities[label]:.3f}" + (f"\t{text}" if images else ""))
