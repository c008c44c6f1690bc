"""Experiment files, tables of comparisons, ladders and parts files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from hostile_corpus import Commands, Sandbox

DEEP = "[" * 60_000
VALID = """
seed = 1
[data]
train = "pairs.tsv"
[model]
kind = "transformer-tiny"
[train]
steps = 1
threads = 1
samples = 0
"""
FILES: dict[str, str | bytes] = {
    "empty": "",
    "bytes": b"\xff\xfe\0",
    "deep": f"a = {DEEP}",
    "deep tables": "[" + ".".join("a" * 30_000) + "]\nb = 1",
    "deep keys": ".".join("a" * 30_000) + " = 1",
    "many keys of two parts": "".join(f"a.b{n} = 1\n" for n in range(100_000)),
    "a table a thousand times": "".join(f"[a{n}.b.c.d]\n" for n in range(20_000)),
    "long number": VALID.replace("seed = 1", "seed = " + "9" * 9999),
    "seed": VALID.replace("seed = 1", "seed = 99999999999999999999"),
    "name outside": 'name = "../escape"\n' + VALID,
    "name absolute": 'name = "/tmp/escape"\n' + VALID,
    "long name": f'name = "{"x" * 10_000}"\n' + VALID,
    "duplicate": VALID + "[train]\nsteps = 2\n",
    "date": VALID.replace("seed = 1", "seed = 1979-05-27T07:32:00Z"),
    "kind path": VALID.replace("transformer-tiny", "../../outside"),
    "kind module": VALID.replace("transformer-tiny", "os:system"),
    "init_from device": 'init_from = "/dev/zero"\n' + VALID,
    "a million entries": "a = [" + "1," * 10**6 + "]",
    "a text of 50 MB": f'a = "{"x" * 50_000_000}"',
    "large width": VALID.replace('"transformer-tiny"', '"transformer-tiny"\nwidth = 10000000'),
    "larger width": VALID.replace('"transformer-tiny"', f'"transformer-tiny"\nwidth = {2**62}'),
    "depth": VALID.replace('"transformer-tiny"', '"transformer-tiny"\ndepth = 100000000'),
    "heads": VALID.replace('"transformer-tiny"', '"transformer-tiny"\nheads = 1000000000'),
    "hidden": VALID.replace('"transformer-tiny"', '"transformer-tiny"\nhidden = 1000000000000'),
    "batch": VALID.replace("steps = 1", "steps = 1\nbatch_size = 1000000000000000000000"),
    "learning rate": VALID.replace("steps = 1", 'steps = 4\nschedule = {kind = "constant", lr = 3e38}'),
    "NaN": VALID.replace("steps = 1", 'steps = 4\nschedule = {kind = "constant", lr = nan}'),
    "observer": VALID.replace("steps = 1", 'steps = 1\nobservers = ["os.system"]'),
}
SIZES = {  # settings of `show`, which counts models on the meta device, or refuses them
    "gpt2": ("width=10000000", "depth=100000000", "heads=1000000000", "hidden=10000000000000"),
    "transformer-tiny": ("model.depth=100000000", "model.width=10000000", "encoder.depth=100000000"),
    "vit-tiny": ("image_size=1000000", "patch=1000000", "width=100000000", "channels=1000000000"),
    "lstm": ("depth=100000000", "width=1000000000"),
    "switch": ("feedforward.experts=1000000000",),
    "detr-small": ("queries=1000000000000",),
    "performer": ("mixer.features=1000000000000",),
    "ngram": ("order=1000000000",),
    "resnet": ("depths=[100000000, 1, 1, 1]",),
}
HARMLESS = ("batch", "learning rate", "date")


def use(sandbox: Sandbox, text: str | bytes) -> Commands:
    sandbox.copy("pairs.tsv")
    sandbox.write("experiment.toml", text)
    return [["train", "experiment.toml"], ["compare", "experiment.toml", "--dry-run"]]


def put(text: str | bytes) -> Callable[[Sandbox], Commands]:
    return lambda sandbox: use(sandbox, text)


def put_fifo(sandbox: Sandbox) -> Commands:
    os.mkfifo(sandbox.work / "experiment.toml")
    return [[name, "experiment.toml"] for name in ("train", "compare", "search", "scaling")] + [
        ["show", "gpt2", "--with", "experiment.toml"]
    ]


def put_device(sandbox: Sandbox) -> Commands:
    (sandbox.work / "experiment.toml").symlink_to("/dev/zero")
    return [[name, "experiment.toml"] for name in ("train", "compare", "search", "scaling")]


def set_size(model: str, setting: str) -> Callable[[Sandbox], Commands]:
    return lambda sandbox: [["show", model, "--set", setting]]


def train_size(setting: str) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        use(sandbox, VALID)
        return [["train", "experiment.toml", "--set", setting]]

    return make


def put_parts(source: str | bytes) -> Callable[[Sandbox], Commands]:
    """Files for `--with`, which executes them: those that are no Python are refused."""
    return lambda sandbox: [["list", "--with", str(sandbox.write("parts.py", source))]]


def list_cases() -> Iterator[tuple[str, Callable[[Sandbox], Commands], bool]]:
    for name, text in FILES.items():
        yield name, put(text), name not in HARMLESS
    yield "FIFO", put_fifo, True
    yield "device", put_device, True
    for model, settings in SIZES.items():
        for setting in settings:
            yield f"{model} {setting}", set_size(model, setting), False  # counted, not allocated
    for setting in (
        *("model.depth=100000000", "model.width=10000000", "model.hidden=100000000000", "name=../escape"),
        *("train.schedule.lr=1e400", "seed=99999999999999999999", "model.positions.max_length=1000000000000"),
    ):
        yield f"--set {setting}", train_size(setting), True
    for name, source in {
        "deep": "(" * 100_000, "NUL": "a\0b", "bytes": b"\xff\xfe", "long number": "a = " + "9" * 9999,
        "huge": "#" * 2**23,
        "deep operators": "a = " + "-" * 100_000 + "1",
    }.items():  # fmt: skip
        yield f"parts {name}", put_parts(source), True
