"""One headless chromium for all browser tests."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright

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
