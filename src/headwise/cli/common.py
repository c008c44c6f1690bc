"""Options that several commands share; loading models and reading texts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from headwise.errors import UserError

if TYPE_CHECKING:
    import torch

    from headwise.inference.trained_model import TrainedModel

CHUNK = 4096  # texts processed together: enough to sort by length, few enough for early output

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON on stdout.")]
Changes = Annotated[
    list[str] | None,
    Parameter(name="--set", negative="", help="Change a key of the experiment: --set train.steps=1000"),
]
Device = Annotated[str, Parameter(help="cpu, cuda, cuda:1, mps; auto: an accelerator if there is one.")]
DataRoot = Annotated[
    Path | None,
    Parameter(help="The folder that has the run's data, if they are neither beside the run nor where they were."),
]
Threads = Annotated[int, Parameter(help="Threads of torch; 0: torch's default.")]
Int8 = Annotated[bool, Parameter(negative="", help="8-bit weights: faster, nearly the same outputs.")]
Engine = Annotated[
    Literal["auto", "native", "ctranslate2", "onnx"],
    Parameter(help="native: torch; onnx: onnxruntime. auto: CTranslate2 for translate, where it supports the model."),
]
File = Annotated[Path | None, Parameter(help="Read lines from a file instead of stdin.")]
Ensemble = Annotated[
    list[Path] | None, Parameter(name="--and", negative="", help="Further runs, to decode with an ensemble.")
]
Beams = Annotated[int | None, Parameter(help="Beam size; 1: greedy decoding.")]
LengthPenalty = Annotated[float | None, Parameter(help="Exponent of beam search; 0 favours short outputs.")]
CoveragePenalty = Annotated[
    float | None, Parameter(help="Weight of GNMT's coverage penalty in beam search; 0.2 is usual.")
]
TopK = Annotated[int | None, Parameter(help="Sample from the k most probable tokens.")]
TopP = Annotated[float | None, Parameter(help="Nucleus sampling: total probability of the tokens.")]
Seed = Annotated[int | None, Parameter(help="Random seed of sampling.")]
KeyFile = Annotated[
    Path | None,
    Parameter(help="A file with API keys, one on a line; without it, those in HEADWISE_API_KEY, separated by commas."),
]
Checkpoint = Annotated[str, Parameter(help="Checkpoint: best, last, average or step-N.")]


def say(text: str = "") -> None:
    """Print a message on stderr; stdout is for results."""
    print(text, file=sys.stderr)


def make_printable(text: str) -> str:
    r"""Replace control characters and others that a terminal cannot print.

    >>> make_printable("a\x1b[2J\n")
    'a?[2J?'
    """
    return "".join(character if character.isprintable() else "?" for character in text)


def escape_controls(text: str) -> str:
    r"""Write control characters as escapes, so that a text stays on its line.

    >>> escape_controls("a\n\tb")
    'a\\n\\tb'
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class _Once(logging.Filter):
    """Lets each message through once: files are read several times."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        new = message not in self.seen
        self.seen.add(message)
        return new


def log_to_stderr(level: int = logging.WARNING) -> None:
    """Print the library's log messages of this level and above on stderr, each once."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_Once())
    logging.basicConfig(level=logging.WARNING, format="headwise: %(message)s", handlers=[handler])
    logging.getLogger("headwise").setLevel(level)


def set_up_device(name: str, threads: int = 0) -> torch.device:
    """Set threads and allocator for the rest of the process; returns the device."""
    import torch

    from headwise.train.hardware import choose_device, tune_allocator

    tune_allocator()
    if threads:
        torch.set_num_threads(threads)
    return choose_device(name)


def load_model(
    runs: Path | Sequence[Path],
    checkpoint: str = "best",
    device: str = "auto",
    threads: int = 0,
    data_root: Path | None = None,
    engine: Literal["auto", "native", "ctranslate2", "onnx"] = "auto",
    states: bool = False,
) -> TrainedModel:
    """Load a trained model, or several runs as an ensemble; from now on warnings are printed on stderr. Models that
    generate are put on their engine when their settings are known; `states` is that of `choose_backend`."""
    log_to_stderr()
    from headwise.experiment.load import load

    loaded = load(runs, which=checkpoint, device=set_up_device(device, threads), data_root=data_root or "")
    if engine == "auto":
        return loaded
    from headwise.inference.backends import choose_backend

    return choose_backend(loaded, engine, threads=threads or 1, states=states)


def read_chunks(texts: Sequence[str], file: Path | None) -> Iterator[list[str]]:
    """Texts in chunks: arguments, lines of a file, or lines of stdin; on a terminal one at a time, after a prompt."""
    lines = _read_texts(texts, file)
    size = CHUNK if texts or file or not sys.stdin.isatty() else 1
    while chunk := list(islice(lines, size)):
        yield chunk
        sys.stdout.flush()


def _read_texts(texts: Sequence[str], file: Path | None) -> Iterator[str]:
    if texts and file:
        raise UserError("give texts as arguments or --file, not both")
    if texts:
        yield from texts
    elif file:
        try:
            with file.open("rb") as source:
                yield from _decode_lines(source, f"--file {file}")
        except OSError as error:
            raise UserError(f"--file {file}: cannot be read ({error.strerror})") from None
    elif sys.stdin.isatty():
        yield from _prompt_user()
    else:
        yield from _decode_lines(sys.stdin.buffer, "stdin")


def _decode_lines(source: Iterable[bytes], where: str) -> Iterator[str]:
    """Lines of UTF-8, with or without a byte-order mark, without their ends."""
    for number, line in enumerate(source, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            reason = f"byte {error.object[error.start]:#04x} is not UTF-8"
            raise UserError(f"{where}, line {number}: {reason}; convert the text to UTF-8, as with iconv") from None
        yield text.removesuffix("\n").removesuffix("\r")


def _prompt_user() -> Iterator[str]:
    say("type a text and press Enter; Ctrl-D to end")
    while True:
        try:
            text = input("> ")
        except EOFError:
            return
        if text.strip():
            yield text
