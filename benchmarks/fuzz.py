"""Fuzz the readers of foreign files: each either reads them, or refuses them with a UserError.

    python benchmarks/fuzz.py                        # each target for a minute
    python benchmarks/fuzz.py gguf arpa --minutes 10

With atheris, which follows coverage (libFuzzer), or else with Hypothesis. Each target runs in a process of its own,
which stops at the first other exception, or at 30 s for one input, and prints the input. Status 1 if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hostile_corpus.data import TEXTS
from hostile_corpus.images import FILES
from hostile_corpus.runs import CONTENTS
from hostile_corpus.weights import ARPA, GGUF, HEADERS

MAX_SEED = 4096  # bytes of a file of the corpus to start from
MAX_LENGTH = 8192  # bytes of an input
Read = Callable[[Path], object]


def read_gguf(path: Path) -> None:
    from headwise.interop.gguf import GgufFile

    file = GgufFile(path)
    for name in file.tensors:
        file.load_tensor(name)


def read_safetensors(path: Path) -> None:
    from headwise.interop.hf.files import open_safetensors

    open_safetensors(path)


def read_run(path: Path) -> None:
    """The input is each of the files of a run that are JSON."""
    from headwise.runs.data_record import read_record
    from headwise.runs.run import Run, read_state, summarize_run

    run = Run(path.parent)
    for name in ("config.toml", "info.json", "metrics.jsonl", "data.json", "state.json", "best", "manifest.json"):
        (path.parent / name).write_bytes(path.read_bytes())
    summarize_run(run)
    for read in (lambda: read_record(run), lambda: read_state(path.parent), run.verify, lambda: run.config):
        with refusals():
            read()


def read_experiment(path: Path) -> None:
    from headwise.experiment.config import Experiment

    Experiment.read(path)


def read_arpa(path: Path) -> None:
    from headwise.ngram.arpa import from_arpa

    from_arpa(path)


def read_conll(path: Path) -> None:
    from headwise.data.config import TABLES
    from headwise.data.readers.base import ReadOptions
    from headwise.data.readers.tables import READERS

    for format in ("conll", "conllu", "csv", "tsv", "jsonl", "json", "squad"):
        with refusals():
            options = ReadOptions(columns=("a", "b")) if format in TABLES else ReadOptions()
            for _ in READERS[format](path, options):
                pass


def read_image_list(path: Path) -> None:
    from headwise.vision.config import ImagesConfig
    from headwise.vision.readers.captions import read_captions
    from headwise.vision.readers.coco import read_coco

    for read in (read_coco, read_captions):
        with refusals():
            read((path, path.parent), ImagesConfig(train=(str(path),)))


def read_image(path: Path) -> None:
    from headwise.vision.decode import decode_image

    decode_image(path)


def encode(content: str | bytes) -> bytes:
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content


SEEDS: dict[str, list[bytes]] = {
    "gguf": list(GGUF.values()),
    "safetensors": list(HEADERS.values()),
    "runs": [encode(content) for _, _, content in CONTENTS],
    "experiments": [path.read_bytes() for path in sorted(Path(__file__).parents[1].glob("experiments/*.toml"))],
    "arpa": [encode(content) for content in ARPA.values()],
    "texts": [encode(content) for _, content, _ in TEXTS.values()],
    "image-lists": [b'{"images": [{"id": 1, "file_name": "a.png", "width": 8, "height": 8}], "annotations": [], '
                    b'"categories": []}', b"a.png\ta dog\n"],
    "images": list(FILES.values()),
}  # fmt: skip
TARGETS: dict[str, tuple[Read, str]] = {  # the reader and the name of its file
    "gguf": (read_gguf, "a.gguf"),
    "safetensors": (read_safetensors, "a.safetensors"),
    "runs": (read_run, "input"),
    "experiments": (read_experiment, "a.toml"),
    "arpa": (read_arpa, "a.arpa"),
    "texts": (read_conll, "a.txt"),
    "image-lists": (read_image_list, "a.json"),
    "images": (read_image, "a.png"),
}


@contextlib.contextmanager
def refusals():
    """Let a UserError pass: the input is refused."""
    from headwise.errors import UserError

    try:
        yield
    except UserError as error:
        if not str(error).strip():
            raise RuntimeError("a refusal without a sentence") from error


def make_test(name: str, folder: Path) -> Callable[[bytes], None]:
    read, file = TARGETS[name]
    path = folder / file

    def test(data: bytes) -> None:
        path.write_bytes(data)
        with refusals():
            read(path)

    test(b"")  # imports
    return test


def fuzz_with_atheris(name: str, minutes: float, folder: Path) -> None:
    import atheris

    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seed for seed in SEEDS[name] if len(seed) <= MAX_SEED):
        (corpus / str(number)).write_bytes(seed)
    with atheris.instrument_imports(include=["headwise", "tomllib"]):
        test = make_test(name, folder)
    options = [f"-max_total_time={minutes * 60:.0f}", f"-max_len={MAX_LENGTH}", "-timeout=30", "-rss_limit_mb=4096"]
    atheris.Setup([name, str(corpus), *options, f"-artifact_prefix={folder}/"], test)
    atheris.Fuzz()


def fuzz_with_hypothesis(name: str, minutes: float, folder: Path) -> None:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    test, end = make_test(name, folder), time.monotonic() + minutes * 60
    seeds = [seed for seed in SEEDS[name] if len(seed) <= MAX_SEED]

    @st.composite
    def inputs(draw: st.DrawFn) -> bytes:
        data = bytearray(draw(st.sampled_from(seeds)))
        for _ in range(draw(st.integers(0, 4))):
            start = draw(st.integers(0, len(data)))
            data[start : start + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
        return bytes(data)

    while time.monotonic() < end:
        settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))(
            given(inputs())(test)
        )()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    engine = "atheris" if importlib.util.find_spec("atheris") else "hypothesis"
    if options.inside:
        logging.disable()
        with tempfile.TemporaryDirectory() as folder:
            fuzz = fuzz_with_atheris if engine == "atheris" else fuzz_with_hypothesis
            fuzz(options.targets[0], options.minutes, Path(folder))
        return
    failed = 0
    for name in options.targets or TARGETS:
        command = [sys.executable, __file__, name, "--inside", "--minutes", str(options.minutes)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        runs = [line for line in done.stderr.splitlines() if line.startswith(("Done ", "stat::", "#"))]
        print(f"{name:<14}{engine}: {'FAILED' if done.returncode else 'ok'}; {runs[-1] if runs else ''}", flush=True)
        if done.returncode:
            failed += 1
            lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
            start = next((n for n, line in enumerate(lines) if "Uncaught" in line or "Traceback" in line), 0)
            print("\n".join(lines[start : start + 60]))
    sys.exit(int(failed > 0))


if __name__ == "__main__":
    main()
