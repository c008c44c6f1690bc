"""For all tests."""

import os
import shutil
from collections.abc import Iterator

import pytest
import torch
from playwright.sync_api import Page, sync_playwright

from headwise.config.plugins import forget_parts, list_parts_files, set_trust

OPTIONS = (
    "--no-sandbox --headless=new --disable-gpu --disable-background-networking --no-first-run "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Tiny tensors: a second thread only costs, unless one asks how it rounds. And the same seed every time, and
    denormal numbers, which a training in the same process flushes and Hypothesis draws."""
    threads = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(int(os.environ.get("HEADWISE_TEST_SEED", "0")))
    torch.set_flush_denormal(False)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def no_parts_of_other_tests() -> Iterator[None]:
    """A process imports the parts files of one user; a test leaves none to the next."""
    yield
    for parts in list_parts_files():
        forget_parts(parts)
    set_trust(False)


@pytest.fixture(scope="session")
def page() -> Iterator[Page]:
    """A page of one headless browser for all tests; the one permitted skip of the suite is a machine without it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("NO BROWSER: chromium is not installed, so pages are NOT TESTED (apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=OPTIONS.split())
        yield browser.new_page(viewport={"width": 1180, "height": 860})
        browser.close()
