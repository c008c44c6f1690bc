"""`headwise tag`."""

from __future__ import annotations

import json
from pathlib import Path

from headwise.cli.common import Checkpoint, Device, File, Json, Threads, load_model, read_chunks


def tag(
    run: Path,
    *texts: str,
    file: File = None,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Tag the words of texts, as word/TAG, with a run trained for tagging.

    Words and punctuation marks are separated by spaces. Texts are arguments, lines of --file, or lines of stdin;
    without any of these, a terminal prompts for them.

    For example:

        headwise tag runs/ewt-lstm "The cat sat on the mat ."
        headwise tag runs/ewt-hmm --file sentences.txt > tagged.txt
        echo "Time flies like an arrow ." | headwise tag runs/ewt-lstm --json

    Parameters
    ----------
    run
        A run folder.
    texts
        What to tag, each in quotes.
    """
    loaded = load_model(run, checkpoint, device, threads)
    loaded.check_task("tag")
    for chunk in read_chunks(texts, file):
        for text, pairs in zip(chunk, loaded.tag(chunk), strict=True):
            if json_:
                words, tags = ([pair[side] for pair in pairs] for side in (0, 1))
                print(json.dumps({"text": text, "words": words, "tags": tags}, ensure_ascii=False))
            else:
                print(" ".join(f"{word}/{tag}" for word, tag in pairs))
