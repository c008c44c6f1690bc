"""`headwise translate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from headwise.cli.common import (
    Beams,
    Checkpoint,
    Device,
    Ensemble,
    Json,
    LengthPenalty,
    Threads,
    With,
    say,
    warnings_to_stderr,
)
from headwise.errors import UserError

CHUNK = 4096  # lines decoded together: enough to sort by length, few enough to answer soon


def translate(
    run: Path,
    *texts: str,
    file: Annotated[Path | None, Parameter(help="Read lines from a file instead of stdin.")] = None,
    and_: Ensemble = None,
    beams: Beams = None,
    length_penalty: LengthPenalty = None,
    nbest: Annotated[int | None, Parameter(help="Print this many outputs a line, with scores.")] = None,
    temperature: Annotated[float | None, Parameter(help="Above 0: draw at random.")] = None,
    top_k: Annotated[int | None, Parameter(help="Draw among the k most probable tokens.")] = None,
    top_p: Annotated[float | None, Parameter(help="Draw among the fewest tokens whose P adds up to p.")] = None,
    seed: Annotated[int | None, Parameter(help="Of the draws.")] = None,
    engine: Annotated[
        Literal["auto", "native", "ctranslate2"],
        Parameter(help="auto: CTranslate2 where it is installed and can express the model."),
    ] = "auto",
    int8: Annotated[bool, Parameter(negative="", help="8-bit weights: faster, almost as exact.")] = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Turn texts into outputs with a trained run.

    Texts are arguments, lines of --file, or lines of stdin; on a terminal without any of these it asks.

    For example:

        headwise translate runs/demo transformer attention
        headwise translate runs/multi30k --file test.en --beams 5 > test.de
        echo "zebra" | headwise translate runs/demo --nbest 3 --beams 5

    Parameters
    ----------
    run
        A run folder, or a Hugging Face Marian folder.
    texts
        What to translate.
    """
    warnings_to_stderr()
    from headwise.cli.common import torch_device
    from headwise.engines import choose
    from headwise.loaded import load
    from headwise.plugins import add_parts

    add_parts(with_ or ())
    loaded = load([run, *(and_ or ())], which=checkpoint, device=torch_device(device, threads))
    given = {
        "beams": beams, "length_penalty": length_penalty, "nbest": nbest, "temperature": temperature,
        "top_k": top_k, "top_p": top_p, "seed": seed,
    }  # fmt: skip
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    search = loaded.decoding(**settings).search  # a wrong setting is said before anything is read
    loaded = choose(loaded, engine, int8, threads or 1, sampling=search == "sample")
    lines = _lines(texts, file)
    while chunk := list(islice(lines, CHUNK if texts or file or not sys.stdin.isatty() else 1)):
        for text, found in zip(chunk, loaded.candidates(chunk, **settings), strict=True):
            if json_:
                outputs = [{"text": each.text, "score": each.score, "log_prob": each.log_prob} for each in found]
                print(json.dumps({"source": text, "outputs": outputs}, ensure_ascii=False))
            elif nbest:
                print("\n".join(f"{each.score:.4f}\t{each.text}" for each in found))
            else:
                print(found[0].text)
        sys.stdout.flush()


def _lines(texts: tuple[str, ...], file: Path | None) -> Iterator[str]:
    """The texts, wherever they come from."""
    if texts and file:
        raise UserError("give texts as arguments or --file, not both")
    if texts:
        yield from texts
    elif file:
        try:
            with file.open(encoding="utf-8") as opened:
                yield from (line.rstrip("\n") for line in opened)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--file {file}: cannot be read ({error})") from None
    elif sys.stdin.isatty():
        yield from _asked()
    else:
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
        yield from (line.rstrip("\n") for line in sys.stdin)


def _asked() -> Iterator[str]:
    say("type a text and press Enter; Ctrl-D ends")
    while True:
        try:
            text = input("> ")
        except EOFError:
            return
        if text.strip():
            yield text
