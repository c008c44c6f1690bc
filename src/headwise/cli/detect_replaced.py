"""`headwise detect-replaced`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, File, Json, Threads, With, chunks, opened


def detect_replaced(
    run: Path,
    *texts: str,
    file: File = None,
    above: Annotated[
        float, Parameter(validator=validators.Number(gte=0, lte=1), help="Mark words of at least this probability.")
    ] = 0.5,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Tell which words of texts look replaced, with a run that learnt to detect replaced tokens (ELECTRA).

    Words that probably do not belong there are marked as [word 0.93]. Texts are arguments, lines of --file, or lines of
    stdin; on a terminal without any of these it asks.

    For example:

        headwise detect-replaced runs/multi30k-electra --checkpoint last "a man in a red shirt is riding a sandwich ."
        headwise detect-replaced runs/multi30k-electra --file captions.txt --above 0.9
        echo "two dogs are playing in the guitar ." | headwise detect-replaced runs/multi30k-electra --json

    Parameters
    ----------
    run
        A run folder.
    texts
        What to judge, each in quotes.
    """
    loaded = opened(run, checkpoint, device, threads, with_)
    task = loaded.check_task("replaced-tokens")
    for chunk in chunks(texts, file):
        for text, words in zip(chunk, task.detect_replaced(loaded.model, chunk), strict=True):
            if json_:
                print(json.dumps({"text": text, "words": [asdict(each) for each in words]}, ensure_ascii=False))
                continue
            marked = (
                f"[{each.word} {each.probability:.2f}]" if each.probability >= above else each.word for each in words
            )
            print(" ".join(marked))
