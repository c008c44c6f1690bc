"""A studio on a free port over small runs."""

import asyncio
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest
import torch
import uvicorn
from playwright.sync_api import Page, expect

from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.studio.app import build_app
from headwise.studio.run_registry import RunRegistry
from headwise.studio.worker_pool import WorkerPool
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Labels
from headwise.vision.pixels import Pixels
from headwise.web.guard import Address
from headwise.web.server import bind_socket

HOSTILE = "<b>x"
RUNS = {
    "reverse": {"task": "transduce", "model": "transformer-tiny"},
    "align": {"task": "transduce", "model": "bahdanau-tiny"},
    HOSTILE: {"task": "language-model", "model": "gpt-tiny"},
}


def save_run(path: Path, settings: dict[str, str]) -> None:
    """A run of random weights: what is looked at need not be sensible."""
    torch.manual_seed(1)
    given = {**settings, "data": {"train": "none.tsv"}, "train": {"steps": 1}}
    experiment = Experiment.model_validate(given)
    letters = Characters("abcdefgh<>")
    tokenisers = Tokenisers(letters, letters)
    model = experiment.create_task(tokenisers).build(experiment.model).eval()
    TrainedModel(model, tokenisers, experiment).save(path)


def save_pictured(path: Path) -> None:
    """A run that reads images of 8 x 8 pixels."""
    torch.manual_seed(1)
    model = {"kind": "vit-tiny", "image": 8, "patch": 2}
    given = {"task": "classify-images", "data": {"name": "digits"}, "model": model, "train": {"steps": 1}}
    experiment = Experiment.model_validate(given)
    tokenisers = Tokenisers(Pixels(8, 8, 1, (0.3,), (0.4,)), Labels(["one", "two", "<b>"]))
    TrainedModel(experiment.create_task(tokenisers).build(experiment.model).eval(), tokenisers, experiment).save(path)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studio") / "runs"
    for name, settings in RUNS.items():
        save_run(folder / name, settings)
    save_pictured(folder / "seen")
    return folder


class Studio(uvicorn.Server):
    """A server with workers of its own, in a thread."""

    def __init__(self, runs: Path, address: Address):
        self.pool = WorkerPool(RunRegistry([runs]))
        super().__init__(
            uvicorn.Config(build_app(self.pool, address), log_level="critical", timeout_graceful_shutdown=1)
        )

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().serve(sockets)
        finally:
            await self.pool.stop()
            # a browser may have connected while the server stopped; the end of a process would close that connection
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0.05)


@contextmanager
def served(runs: Path, port: int = 0, keys: tuple[str, ...] = ()) -> Iterator[Address]:
    listener = bind_socket(Address(port=port))
    address = Address(port=listener.getsockname()[1], keys=keys)
    server = Studio(runs, address)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield address
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def serve() -> Callable[..., AbstractContextManager[Address]]:
    """A real server of one's own, to be stopped at will."""
    return served


@pytest.fixture(scope="session")
def studio(runs: Path) -> Iterator[Address]:
    with served(runs) as address:
        for path in ("api/runs", "api/look/none/encoder/0"):  # both workers import torch, one after the other
            with suppress(urllib.error.HTTPError), urllib.request.urlopen(address.url + path):
                pass
        yield address


@pytest.fixture
def visit(page: Page, studio: Address) -> Callable[..., None]:
    """Go to a view by its address, and wait until it is drawn; within the studio nothing is loaded again."""

    def visited(view: str, state: str, ready: str = "") -> None:
        if not page.url.startswith(studio.url):
            page.goto(studio.url)
        page.evaluate(
            """(hash) => {
                document.getElementById("view").removeAttribute("data-ready");
                history.replaceState(null, "", hash);
                dispatchEvent(new Event("hashchange"));
            }""",
            f"#/{view}?{state}",
        )
        expect(page.locator("main")).to_have_attribute("data-ready", ready or view, timeout=60_000)

    return visited
