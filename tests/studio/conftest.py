"""A studio on a free port over two small runs, and one headless chromium."""

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import uvicorn
from playwright.sync_api import Page, sync_playwright

from headwise.config.experiment import Experiment
from headwise.loaded import Loaded, task_of
from headwise.studio.app import application
from headwise.studio.server import bound
from headwise.studio.shelf import Shelf
from headwise.text.listed import Characters
from headwise.text.tokenisers import Tokenisers
from headwise.web.guard import Address

HOSTILE = "<b>x"
RUNS = {
    "reverse": {"task": "transduce", "model": "transformer-tiny"},
    HOSTILE.replace("/", ""): {"task": "language-model", "model": "gpt-tiny"},
}


def save_run(path: Path, settings: dict[str, str]) -> None:
    """A run of random weights: what is looked at need not be sensible."""
    torch.manual_seed(1)
    given = {**settings, "data": {"train": "none.tsv"}, "train": {"steps": 1}}
    experiment = Experiment.model_validate(given)
    letters = Characters("abcdefgh<>")
    tokenisers = Tokenisers(letters, letters)
    model = task_of(experiment, tokenisers).build(experiment.model).eval()
    Loaded(model, tokenisers, experiment).save(path)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studio") / "runs"
    for name, settings in RUNS.items():
        save_run(folder / name, settings)
    return folder


@pytest.fixture(scope="session")
def studio(runs: Path) -> Iterator[Address]:
    listener = bound(Address(port=0))
    address = Address(port=listener.getsockname()[1])
    server = uvicorn.Server(uvicorn.Config(application(Shelf([runs]), address), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield address
    server.should_exit = True
    thread.join(5)


@pytest.fixture(scope="session")
def page() -> Iterator[Page]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("NO BROWSER: chromium is not installed, so the studio is NOT TESTED (apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser.new_page(viewport={"width": 1180, "height": 860})
        browser.close()
