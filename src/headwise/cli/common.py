"""Options that several commands share, and how they come by a model and by texts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headwise.errors import UserError

if TYPE_CHECKING:
    import torch

    from headwise.inference.trained_model import TrainedModel

CHUNK = 4096  # texts that are worked on together: enough to sort by length, few enough to answer soon

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON on stdout.")]
Changes = Annotated[
    list[str] | None,
    Parameter(name="--set", negative="", help="Change a key of the experiment: --set train.steps=1000"),
]
With = Annotated[
    list[Path] | None, Parameter(name="--with", negative="", help="A Python file that adds parts of your own.")
]
Device = Annotated[str, Parameter(help="cpu, cuda, cuda:1, mps; auto takes the best there is.")]
Threads = Annotated[int, Parameter(help="Threads for torch; 0 leaves the choice to torch.")]
Int8 = Annotated[bool, Parameter(negative="", help="8-bit weights: faster, almost as exact.")]
File = Annotated[Path | None, Parameter(help="Read lines from a file instead of stdin.")]
Ensemble = Annotated[list[Path] | None, Parameter(name="--and", negative="", help="More runs: an ensemble.")]
Beams = Annotated[int | None, Parameter(help="Hypotheses to follow; 1 is greedy.")]
LengthPenalty = Annotated[float | None, Parameter(help="Of beam search; 0 favours short outputs.")]
TopK = Annotated[int | None, Parameter(help="Draw among the k most probable tokens.")]
TopP = Annotated[float | None, Parameter(help="Draw among the fewest tokens whose P adds up to p.")]
Seed = Annotated[int | None, Parameter(help="Of the draws.")]
Checkpoint = Annotated[str, Parameter(help="Which weights: best, last, average or step-N.")]


def say(text: str = "") -> None:
    """A line for people, on stderr: results alone go to stdout."""
    print(text, file=sys.stderr)


def printable(text: str) -> str:
    r"""A text from a file or a folder's name without what a terminal would obey or cannot encode.

    >>> printable("a\x1b[2J\n")
    'a?[2J?'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def warnings_to_stderr(level: int = logging.WARNING) -> None:
    """Show what the library logs as plain lines: warnings, or more."""
    logging.basicConfig(level=logging.WARNING, format="headwise: %(message)s", stream=sys.stderr)
    logging.getLogger("headwise").setLevel(level)


def torch_device(name: str, threads: int = 0) -> torch.device:
    """The device that a name means here, for a command that works with it until its end."""
    import torch

    from headwise.train.hardware import choose_device, tune_allocator

    tune_allocator()
    if threads:
        torch.set_num_threads(threads)
    return choose_device(name)


def opened(
    runs: Path | Sequence[Path],
    checkpoint: str = "best",
    device: str = "auto",
    threads: int = 0,
    parts: Sequence[Path] | None = None,
) -> TrainedModel:
    """The trained model of a run, or of several as an ensemble; warnings go to stderr from now on."""
    warnings_to_stderr()
    from headwise.experiment.load import load
    from headwise.utils.plugins import add_parts

    add_parts(parts or ())
    return load(runs, which=checkpoint, device=torch_device(device, threads))


def chunks(texts: Sequence[str], file: Path | None) -> Iterator[list[str]]:
    """The texts to work on, some at a time: arguments, lines of a file or of stdin; a terminal is asked for each."""
    found = _lines(texts, file)
    size = CHUNK if texts or file or not sys.stdin.isatty() else 1
    while chunk := list(islice(found, size)):
        yield chunk
        sys.stdout.flush()


def _lines(texts: Sequence[str], file: Path | None) -> Iterator[str]:
    if texts and file:
        raise UserError("give texts as arguments or --file, not both")
    if texts:
        yield from texts
    elif file:
        try:
            with file.open(encoding="utf-8") as source:
                yield from (line.rstrip("\n") for line in source)
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
