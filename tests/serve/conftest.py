"""Real servers on loopback over tiny models with random weights: what they write need not be sensible."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openai
import pytest
import torch

from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Labels, Words
from headwise.vision.pixels import Pixels

collect_ignore = [] if find_spec("ray") else ["ray_cluster.py"]  # of `make test-ray`, which installs it
LETTERS = "abcdefghijklmnopqrstuvwxyz <>.,\n"
TASKS: dict[str, dict[str, Any]] = {
    "lm": {"task": "language-model", "model": "gpt-tiny"},
    "reverse": {"task": "transduce", "model": "transformer-tiny"},
    "bert": {"task": "masked", "model": "bert-tiny"},
    "polar": {"task": "classify", "model": "bert-tiny"},
    "long": {"task": {"kind": "language-model", "context": 4096}, "model": "llama-tiny"},
}
LABELS = ("good", "bad", "<b>x")


def save_run(path: Path, settings: dict[str, Any]) -> None:
    torch.manual_seed(1)
    given = {**settings, "data": {"train": "none.tsv"}, "train": {"steps": 1}}
    experiment = Experiment.model_validate(given)
    letters = Characters(LETTERS)
    sides = {"classify": (Words(["a", "fine", "film"]), Labels(LABELS)), "masked": (Words(["a", "fine", "film"]),) * 2}
    tokenisers = Tokenisers(*sides.get(str(settings["task"]), (letters, letters)))
    model = experiment.create_task(tokenisers).build(experiment.model).eval()
    TrainedModel(model, tokenisers, experiment).save(path)


def save_pictured(path: Path) -> None:
    torch.manual_seed(1)
    model = {"kind": "vit-tiny", "image": 8, "patch": 2}
    given = {"task": "classify-images", "data": {"name": "digits"}, "model": model, "train": {"steps": 1}}
    experiment = Experiment.model_validate(given)
    tokenisers = Tokenisers(Pixels(8, 8, 1, (0.3,), (0.4,)), Labels(LABELS))
    TrainedModel(experiment.create_task(tokenisers).build(experiment.model).eval(), tokenisers, experiment).save(path)


@dataclass
class Served:
    """A running `headwise serve`."""

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, key: str = "none", **settings: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, **settings)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one request; bytes are sent as they are."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if content is not None else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(
            method, path, content, given | {key.replace("_", "-"): each for key, each in headers.items()}
        )
        reply = connection.getresponse()
        found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        connection.close()
        return found

    def post(self, path: str, body: Any) -> Any:
        """The JSON of an answer that must be good."""
        status, _, content = self.ask("POST", path, body)
        assert status == 200, content
        return json.loads(content)

    def list_workers(self) -> list[int]:
        """The processes of its models."""
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        return [int(word) for word in found.stdout.split()]


@contextmanager
def serving(*words: str, **environment: str) -> Iterator[Served]:
    """`headwise serve` as a process, on a free port, until it says that it serves."""
    command = [sys.executable, "-m", "headwise", "serve", *words, "--port", "0", "--threads", "1", "--no-spare"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    try:
        said = ""
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if found := re.search(r"served at https?://[^ ]*:(\d+)/", line):
                break
        else:
            raise AssertionError(said)
        yield Served(process, int(found[1]))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        process.stderr.close()


@pytest.fixture(scope="session")
def serve() -> Callable[..., AbstractContextManager[Served]]:
    """A server of one's own."""
    return serving


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve") / "runs"
    for name, settings in TASKS.items():
        save_run(folder / name, settings)
    save_pictured(folder / "seen")
    return folder


@pytest.fixture(scope="session")
def server(runs: Path) -> Iterator[Served]:
    """A server of several models, for tests that do it no harm."""
    names = ("lm", "reverse", "bert", "polar", "seen")
    with serving(*(str(runs / name) for name in names), "--rows", "8", "--languages", "reverse=en:ne") as served:
        yield served
