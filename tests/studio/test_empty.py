"""A studio without runs: what needs none works, what needs one says how to make it, and later runs show up."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from headwise.cli.main import main

NEEDY = ["look", "step", "intervene", "explain?topic=heads", "explain?topic=neuron", "explain?topic=positions&kind=run"]
FREE = [*(f"explain?topic={topic}" for topic in ("attention", "masks", "positions", "order")), "catalogue"]


@pytest.fixture(scope="module")
def empty(serve, tmp_path_factory):
    with serve(tmp_path_factory.mktemp("empty") / "runs") as address:
        yield address


def opened(page: Page, address, view: str) -> None:
    page.goto("about:blank")
    page.goto(f"{address.url}#/{view}")
    expect(page.locator("main[data-ready]")).to_have_count(1, timeout=60_000)


@pytest.mark.parametrize("view", NEEDY)
def test_views_that_need_a_run_say_how_to_train_one(page, empty, view):
    opened(page, empty, view)
    expect(page.locator("main [role=alert]")).to_contain_text(
        "There is no trained run here yet; train one with `headwise demo`"
    )


def test_the_runs_view_says_how_to_train_one(page, empty):
    opened(page, empty, "runs")
    expect(page.locator("main")).to_contain_text("train one with `headwise demo`")
    expect(page.locator("main [role=alert]")).to_be_empty()


@pytest.mark.parametrize("view", FREE)
def test_views_without_a_run_work(page, empty, view):
    opened(page, empty, view)
    expect(page.locator("main [role=alert]")).to_be_empty()


def test_requests_without_runs_are_refused_in_a_sentence(empty):
    with urllib.request.urlopen(f"{empty.url}api/runs") as answer:
        assert json.load(answer) == []
    body = json.dumps({"run": "demo", "text": "a"}).encode()
    request = urllib.request.Request(f"{empty.url}api/look", body, {"content-type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as answer:
        assert answer.code == 400 and "headwise demo" in json.load(answer)["error"]


@pytest.mark.parametrize("view", ["look", "step"])
def test_a_new_run_appears(page, serve, runs, tmp_path, view):
    with serve(tmp_path / "runs") as address:
        opened(page, address, view)
        expect(page.get_by_label("Run").locator("option")).to_have_count(0)
        (tmp_path / "runs").symlink_to(runs)
        expect(page.locator("option", has_text="reverse")).to_have_count(1, timeout=15_000)
        expect(page.locator("main [role=alert]")).to_be_empty()


def test_the_command_starts_in_a_folder_without_runs(tmp_path: Path):
    command = [sys.executable, "-u", "-m", "headwise", "studio", "--no-browser", "--port", "0"]
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert "headwise demo" in process.stderr.readline()
            door = process.stderr.readline()
            with urllib.request.urlopen(door.split()[4]) as answer:
                assert answer.status == 200 and b"Headwise studio" in answer.read()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(10)
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_refused(capsys):
    with pytest.raises(SystemExit) as leave:
        main(["studio", "nowhere", "--no-browser"])
    assert leave.value.code == 2 and "nowhere: there is no such folder" in capsys.readouterr().err
