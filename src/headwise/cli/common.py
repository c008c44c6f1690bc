"""Options that several commands share."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    import torch

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
Ensemble = Annotated[list[Path] | None, Parameter(name="--and", negative="", help="More runs: an ensemble.")]
Beams = Annotated[int | None, Parameter(help="Hypotheses to follow; 1 is greedy.")]
LengthPenalty = Annotated[float | None, Parameter(help="Of beam search; 0 favours short outputs.")]
Checkpoint = Annotated[str, Parameter(help="Which weights: best, last, average or step-N.")]


def say(text: str = "") -> None:
    """A line for people, on stderr: results alone go to stdout."""
    print(text, file=sys.stderr)


def warnings_to_stderr() -> None:
    """Show the library's warnings as plain lines."""
    logging.basicConfig(level=logging.WARNING, format="headwise: %(message)s", stream=sys.stderr)


def torch_device(name: str, threads: int = 0) -> torch.device:
    """The device that a name means here."""
    import torch

    from headwise.train.hardware import device

    if threads:
        torch.set_num_threads(threads)
    return device(name)
