"""`headwise answer`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import Checkpoint, Device, Json, Threads, load_model
from headwise.errors import UserError
from headwise.utils.files import read_bytes


def answer(
    run: Path,
    *questions: str,
    text: Annotated[Path, Parameter(help="The text file that contains the answers.")],
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Answer questions with a span of a text, with a run trained for question answering.

    For example:

        headwise answer runs/squad "Where does the river rise?" --text rhine.txt
        headwise answer runs/squad "Who?" "When?" --text article.txt --json

    Parameters
    ----------
    run
        A run folder.
    questions
        Questions, each in quotes.
    """
    if not questions:
        raise UserError("name at least one question, in quotes")
    try:
        context = " ".join(read_bytes(text).decode().split())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--text {text}: cannot be read ({error})") from None
    loaded = load_model(run, checkpoint, device, threads)
    for question, span in zip(questions, loaded.answer([(q, context) for q in questions]), strict=True):
        print(json.dumps({"question": question, "answer": span}, ensure_ascii=False) if json_ else span)
