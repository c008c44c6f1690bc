"""`headwise complete`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, File, Json, Threads, load_model, read_chunks, say


def complete(
    run: Path,
    *texts: str,
    file: File = None,
    count: Annotated[int, Parameter(validator=validators.Number(gte=1), help="Number of words to print.")] = 5,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Complete the last word of texts with a language model: the most probable words, with their probabilities.

    After a space it predicts the next word. Texts are arguments, lines of --file, or lines of stdin; without any of
    these, a terminal prompts for them.

    For example:

        headwise complete runs/shakespeare-ngram "the pre"
        headwise complete runs/shakespeare-lstm "my lord, I " --count 10
        echo "good mor" | headwise complete runs/shakespeare-ngram --json

    Parameters
    ----------
    run
        A run folder of a language model.
    texts
        Texts, each in quotes.
    """
    loaded = load_model(run, checkpoint, device, threads)
    loaded.check_task("language-model")
    from headwise.blocks.evaluation import get_device
    from headwise.inference.completion import Completer

    completer = Completer(loaded.model, loaded.tokenisers.target, get_device(loaded.model))
    for chunk in read_chunks(texts, file):
        for text in chunk:
            completions = completer(text, count)
            if json_:
                words = [asdict(completion) for completion in completions]
                print(json.dumps({"text": text, "completions": words}, ensure_ascii=False))
            elif completions:
                print("\n".join(f"{completion.probability:.4f}\t{completion.word}" for completion in completions))
            else:
                say(f"'{text}': no word of the vocabulary begins with its last characters")
