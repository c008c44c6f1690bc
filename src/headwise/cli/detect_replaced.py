"""`headwise detect-replaced`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, Engine, File, Json, Threads, load_model, read_chunks


def detect_replaced(
    run: Path,
    *texts: str,
    file: File = None,
    above: Annotated[
        float, Parameter(validator=validators.Number(gte=0, lte=1), help="Mark words with at least this probability.")
    ] = 0.5,
    engine: Engine = "auto",
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Mark the words of texts that look replaced, with a run trained for replaced token detection (ELECTRA).

    They are printed as [word 0.93], with the probability. Texts are arguments, lines of --file, or lines of
    stdin; without any of these, a terminal prompts for them.

    For example:

        headwise detect-replaced runs/multi30k-electra --checkpoint last "a man in a red shirt is riding a sandwich ."
        headwise detect-replaced runs/multi30k-electra --file captions.txt --above 0.9
        echo "two dogs are playing in the guitar ." | headwise detect-replaced runs/multi30k-electra --json

    Parameters
    ----------
    run
        A run folder.
    texts
        Texts, each in quotes.
    """
    loaded = load_model(run, checkpoint, device, threads, engine=engine)
    task = loaded.check_task("replaced-tokens")
    for chunk in read_chunks(texts, file):
        for text, words in zip(chunk, task.detect_replaced(loaded.model, chunk), strict=True):
            if json_:
                print(json.dumps({"text": text, "words": [asdict(word) for word in words]}, ensure_ascii=False))
                continue
            marked = (
                f"[{word.word} {word.probability:.2f}]" if word.probability >= above else word.word for word in words
            )
            print(" ".join(marked))
