"""One headless chromium for all browser tests, and small models of images."""

import shutil
from collections.abc import Callable, Iterator

import pytest
import torch
from playwright.sync_api import Page, sync_playwright

from headwise.config.base import validate
from headwise.config.experiment import Experiment
from headwise.loaded import Loaded, task_of
from headwise.text.listed import Labels
from headwise.text.tokenisers import Tokenisers
from headwise.vision.pixels import Pixels

OPTIONS = (
    "--no-sandbox --headless=new --disable-gpu --disable-background-networking --no-first-run "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(scope="session")
def page() -> Iterator[Page]:
    """A browser page; the one permitted skip of the whole suite is a machine without chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("NO BROWSER: chromium is not installed, so the attention page is NOT TESTED (apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=OPTIONS.split())
        yield browser.new_page(viewport={"width": 1180, "height": 860})
        browser.close()


@pytest.fixture
def pictured() -> Callable[..., Loaded]:
    """A run of a model of images, as yet untrained, by the name of its model."""

    def made(name: str, task: str = "classify-images", data: str = "digits", **settings: object) -> Loaded:
        torch.manual_seed(0)
        tables = {"model": {"kind": name, **settings}, "task": {"kind": task}, "data": {"kind": "images", "name": data}}
        experiment = validate(Experiment, {**tables, "train": {"steps": 1}})
        (height, width), channels = experiment.model.image, experiment.model.channels
        pixels = Pixels(height, width, channels, (0.5,) * channels, (0.25,) * channels)
        tokenisers = Tokenisers(pixels, Labels(["cat", "dog", "elk"]))
        return Loaded(task_of(experiment, tokenisers).build(experiment.model).eval(), tokenisers, experiment)

    return made
