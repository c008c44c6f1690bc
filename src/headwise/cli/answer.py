"""`headwise answer`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import Checkpoint, Device, Engine, File, Json, Threads, load_model, read_chunks
from headwise.errors import UserError
from headwise.utils.files import read_bytes


def answer(
    run: Path,
    *questions: str,
    text: Annotated[Path | None, Parameter(help="The text file that contains the answers to all questions.")] = None,
    file: File = None,
    engine: Engine = "auto",
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Answer questions with a span of a text, with a run trained for question answering.

    With --text, all questions are about that file; without it, each has its own text after a tab. Questions are
    arguments, lines of --file, or lines of stdin; without any of these, a terminal prompts for them.

    For example:

        headwise answer runs/squad "Where does the river rise?" --text rhine.txt
        headwise answer runs/squad $'Who wrote it?\\tEmma is a novel by Jane Austen.'
        headwise answer runs/squad --file questions.tsv --json

    Parameters
    ----------
    run
        A run folder.
    questions
        Questions, each in quotes; without --text, each with a tab and its text.
    """
    context = None if text is None else read_context(text)
    loaded = load_model(run, checkpoint, device, threads, engine=engine)
    loaded.check_task("answer")
    for chunk in read_chunks(questions, file):
        pairs = [split_question(line) if context is None else (line, context) for line in chunk]
        for (question, _), span in zip(pairs, loaded.answer(pairs), strict=True):
            print(json.dumps({"question": question, "answer": span}, ensure_ascii=False) if json_ else span)


def read_context(path: Path) -> str:
    """A text file as one line."""
    try:
        return " ".join(read_bytes(path).decode().split())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--text {path}: cannot be read ({error})") from None


def split_question(line: str) -> tuple[str, str]:
    """Question and text, with a tab between them."""
    question, tab, context = line.partition("\t")
    if not tab:
        raise UserError(
            f"{line[:80]!r}: there is no text to answer from; name its file with --text, or write QUESTION<tab>TEXT"
        )
    return question, context
