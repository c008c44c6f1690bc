"""The documentation site builds without warnings, offline, and holds every page, package, command and key."""

import doctest
import fcntl
import html
import json
import os
import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Page, expect

from headwise.cli.main import build_app
from headwise.experiment.config import Experiment
from headwise.train.config import TrainConfig

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/headwise"
PACKAGES = sorted(file.parent for file in PACKAGE.rglob("__init__.py") if file.parent != PACKAGE)
LOADED = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^"'>\s]+""")


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """Built once for all processes of pytest: the first one builds, the others wait."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            # not --quiet: warnings that are not logged are not counted either
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
            environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
            built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            assert built.returncode == 0 and "WARNING" not in built.stderr, built.stderr + built.stdout
            (folder / "whole").touch()
    return folder


@pytest.fixture(scope="session")
def address(site):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def text_of(page: Path) -> str:
    """The words of a page, without markup."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page.read_text())))


def navigation() -> str:
    return (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\nexclude_docs:")[0]


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_is_in_the_navigation(page):
    assert f": {page.relative_to(ROOT / 'docs')}\n" in navigation()


def test_pages_of_the_navigation_and_of_the_root_are_there(site):
    for page in re.findall(r": (\S+)\.md$", navigation(), flags=re.M):
        assert (site / f"{page}.html").exists(), page
    assert "make demo" in text_of(site / "index.html")
    assert "Add a mixer" in text_of(site / "contributing.html")


def test_each_package_and_module_has_a_page_of_its_own_name(site):
    api = site / "reference/api"
    assert len(PACKAGES) > 25
    for package in PACKAGES:
        name = ".".join(package.relative_to(ROOT / "src").parts)
        assert f'id="{name}"' in (api / name / "index.html").read_text()
        for module in package.glob("[!_]*.py"):
            assert f'id="{name}.{module.stem}"' in (api / f"{name}.{module.stem}.html").read_text()


def test_docstrings_become_markdown():
    spec = spec_from_file_location("docstrings", ROOT / "docs/hooks/docstrings.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert doctest.testmod(module) == (0, 2)
    code = "Rows:\n\n    a[0][1] * b\n\n    <pad>\n\nOr __x__."
    assert module.to_markdown(code) == code.replace("__x__", r"\_\_x\_\_")


def test_public_names_come_first(site):
    front = (site / "reference/api/index.html").read_text()
    for name in ("build", "fit", "load", "train_experiment", "UserError"):
        assert f'id="headwise.{name}"' in front, name
    assert "A model of the catalogue with random weights" in text_of(site / "reference/api/index.html")


def test_terms_of_the_glossary_lead_to_the_api(site):
    rows = re.findall(r"`[\w/]+\.py:[\w.]+`", (ROOT / "docs/glossary.md").read_text())
    links = re.findall(r'href="reference/api/[^"]+#headwise\.[\w.]+"', (site / "glossary.html").read_text())
    assert len(links) == len(rows) > 80


def test_every_command_is_described_with_its_options(site):
    page = text_of(site / "reference/command-line.html")
    for name in build_app():
        if not name.startswith("-"):
            assert f"headwise {name}" in page, name
    assert "headwise bench decode [OPTIONS]" in page
    assert "--resume PATH: Resume this run." in page
    assert "headwise train experiments/cmudict.toml" in page  # examples


def test_every_key_of_an_experiment_is_described(site):
    keys = site / "reference/keys"
    for name in Experiment.model_fields:
        assert f"<code>{name}</code>" in (keys / "index.html").read_text(), name
    train = (keys / "train.html").read_text()
    for name in TrainConfig.model_fields:
        assert f"<code>{name}</code>" in train, name
    assert "clip_norm number ≥ 0 1.0 gradient clipping: maximum global norm" in text_of(keys / "train.html")
    assert "swiglu" in text_of(keys / "model.html")
    assert 'href="optimizer.html"' in train


@pytest.mark.parametrize("phrase", ["KV cache", "nucleus sampling", "gradient clipping", "Hungarian matching"])
def test_the_search_index_has_the_words_of_the_field(site, phrase):
    pages = json.loads((site / "search/search_index.json").read_text())["docs"]
    found = {page["location"].partition("#")[0] for page in pages if phrase.lower() in page["text"].lower()}
    assert "glossary.html" in found and any(page.startswith("reference/api/") for page in found)


def test_nothing_is_loaded_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 300
    for page in pages:
        assert not LOADED.findall(page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet


@pytest.fixture
def tab(page: Page):
    """A page without what other tests left on theirs."""
    browser = page.context.browser
    assert browser is not None
    tab = browser.new_page(viewport={"width": 420, "height": 800})
    yield tab
    tab.close()


@pytest.mark.parametrize("term", ["KV cache", "nucleus sampling"])
def test_the_search_box_leads_to_the_glossary_without_the_network(address, tab: Page, term):
    requests: list[str] = []
    tab.on("request", lambda request: requests.append(request.url))
    tab.set_viewport_size({"width": 1180, "height": 860})
    tab.goto(f"{address}/index.html")
    tab.locator(".md-search__input").fill(term)
    first = tab.locator(".md-search-result__item").first
    expect(first).to_contain_text("Glossary", timeout=60_000)
    first.locator("a").first.click()
    expect(tab.locator("article mark").first).to_be_visible()  # the term, marked
    assert all(url.startswith((address, "data:", "blob:")) for url in requests), requests


@pytest.mark.parametrize(
    "name", ["index", "glossary", "results", "reference/keys/model", "reference/api/headwise.blocks.cache"]
)
def test_in_a_narrow_window_tables_scroll_and_the_page_does_not(address, tab: Page, name):
    tab.goto(f"{address}/{name}.html")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 420
