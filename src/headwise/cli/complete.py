"""`headwise complete`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, File, Json, Threads, With, chunks, opened, say


def complete(
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
    """Complete the last word of texts with a language model: the most probable words, with their probabilities.

    After a space it proposes the next word. Texts are arguments, lines of --file, or lines of stdin; on a terminal
    without any of these it asks.

    For example:

        headwise complete runs/shakespeare-ngram "the pre"
        headwise complete runs/shakespeare-lstm "my lord, I " --count 10
        echo "good mor" | headwise complete runs/shakespeare-ngram --json

    Parameters
    ----------
    run
        A run folder of a language model.
    texts
        What to complete, each in quotes.
    """
    loaded = opened(run, checkpoint, device, threads, with_)
    loaded.check_task("language-model")
    from headwise.blocks.evaluation import get_device
    from headwise.inference.completion import Completer

    completer = Completer(loaded.model, loaded.tokenisers.target, get_device(loaded.model))
    for chunk in chunks(texts, file):
        for text in chunk:
            found = completer(text, count)
            if json_:
                words = [asdict(each) for each in found]
                print(json.dumps({"text": text, "completions": words}, ensure_ascii=False))
            elif found:
                print("\n".join(f"{each.probability:.4f}\t{each.word}" for each in found))
            else:
                say(f"'{text}': the model knows no word that begins like its end")
