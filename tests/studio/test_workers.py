"""The processes in which the studio computes: cancelled, killed, and never in one another's way."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from headwise.cli.new import render_template
from headwise.config.plugins import forget_parts, list_parts_files, use_parts
from headwise.studio import worker_pool
from headwise.studio.run_registry import RunRegistry
from headwise.studio.workspace import MAX_MODELS, Workspace

# Thousands of tokens, hidden one after the other: minutes of work for any machine.
SWEEP = {"run": "reverse", "text": "abcdefgh" * 120, "target": "abcdefgh" * 12}
SECONDS = 60  # for what takes a moment on a machine that has nothing else to do


def ask(studio, path, body=None, headers=()):
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{studio.url}api/{path}", content, {"content-type": "application/json", **dict(headers)}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def describe(studio, name):
    (found,) = [each for each in json.loads(ask(studio, "workers")[1]) if each["name"] == name]
    return found


def wait_until(holds):
    end = time.monotonic() + SECONDS
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def begin_sweep(studio, progress="sweep"):
    """A connection on which a heavy request is being computed."""
    connection = http.client.HTTPConnection(studio.host, studio.port, timeout=SECONDS)
    headers = {"content-type": "application/json", "x-progress": progress}
    connection.request("POST", "/api/intervene/tokens", json.dumps(SWEEP), headers)
    wait_until(lambda: describe(studio, "heavy").get("running") == ["tokens"])
    return connection


def test_a_heavy_request_ends_with_its_connection(studio):
    connection = begin_sweep(studio)
    before = describe(studio, "heavy")
    connection.close()
    gone = time.monotonic()
    wait_until(lambda: describe(studio, "heavy").get("running") == [])
    after = describe(studio, "heavy")
    assert (after["pid"], after["restarts"]) == (before["pid"], before["restarts"])  # it obeyed
    assert time.monotonic() - gone < 20  # of minutes; it is a tenth of a second where nothing else is computed


def test_short_requests_do_not_wait_for_heavy_ones(studio):
    connection = begin_sweep(studio)
    status, _ = ask(studio, "step", {"run": "reverse", "text": "abc"})
    assert status == 200 and ask(studio, "runs")[0] == 200
    assert ask(studio, "look/none/encoder/0")[0] == 400  # cached maps are read beside it
    assert describe(studio, "heavy")["running"] == ["tokens"]
    connection.close()


def test_progress_moves_and_a_second_request_waits(studio):
    connection = begin_sweep(studio, "first")

    def get_progress(name):
        return json.loads(ask(studio, f"progress/{name}")[1])

    first = wait_until(lambda: get_progress("first")["done"])
    later = wait_until(lambda: (found := get_progress("first"))["done"] > first and found)
    assert later["state"] == "running" and later["done"] < later["total"] == len(SWEEP["text"]) + 2
    answers = []
    body = {"run": "reverse", "text": "abc"}
    second = threading.Thread(target=lambda: answers.append(ask(studio, "step/beams", body, [("x-progress", "next")])))
    second.start()
    wait_until(lambda: get_progress("next")["state"] == "waiting")
    connection.close()
    second.join(SECONDS)
    assert answers[0][0] == 200
    assert get_progress("first") == get_progress("next") == {"state": "unknown", "done": 0, "total": 0}


def test_a_killed_worker_is_told_in_a_sentence_and_started_again(studio):
    connection = begin_sweep(studio)
    before = describe(studio, "heavy")
    os.kill(before["pid"], signal.SIGKILL)
    answer = connection.getresponse()
    assert answer.status == 503 and "try again" in json.load(answer)["error"]
    connection.close()
    assert ask(studio, "step", {"run": "reverse", "text": "abc"})[0] == 200  # the other one lives
    assert ask(studio, "step/beams", {"run": "reverse", "text": "abc"})[0] == 200
    after = describe(studio, "heavy")
    assert after["pid"] != before["pid"] and after["restarts"] == before["restarts"] + 1


def test_a_worker_that_does_not_obey_is_killed(studio):
    """A stopped process is as deaf as one that is caught in a library."""
    connection = begin_sweep(studio)
    before = describe(studio, "heavy")
    os.kill(before["pid"], signal.SIGSTOP)
    assert ask(studio, "step", {"run": "reverse", "text": "abc"})[0] == 200
    connection.close()
    assert ask(studio, "step/beams", {"run": "reverse", "text": "abc"})[0] == 200
    assert describe(studio, "heavy")["restarts"] == before["restarts"] + 1


def test_a_request_that_takes_too_long_is_given_up(studio, monkeypatch):
    monkeypatch.setattr(worker_pool, "MAX_SECONDS", 1.0)
    status, content = ask(studio, "intervene/tokens", SWEEP)
    assert status == 503 and "longer than 1 seconds; ask for less" in json.loads(content)["error"]
    wait_until(lambda: describe(studio, "heavy").get("running") == [])


def test_a_worker_that_cannot_start_says_why(serve, runs, tmp_path):
    """Its parts file was deleted after the studio was started."""
    file = tmp_path / "mine.py"
    file.write_text(render_template("mixer", "mine"))
    use_parts(file)
    try:
        file_path = file.resolve()
        with serve(runs) as address:
            file.unlink()
            status, content = ask(address, "step", {"run": "reverse", "text": "abc"})
        assert status == 503 and json.loads(content) == {"error": f"{file_path}: there is no such file"}
    finally:
        for parts in list_parts_files():
            forget_parts(parts)


def test_models_are_loaded_once_and_again_when_there_is_a_newer_checkpoint(runs):
    workspace = Workspace(RunRegistry([runs]))
    first = workspace.get_model("reverse")
    assert workspace.get_model("reverse") is first
    pointer = runs / "reverse" / "last"
    os.utime(pointer, (pointer.stat().st_atime, pointer.stat().st_mtime + 1))
    assert workspace.get_model("reverse") is not first and len(workspace.models) == 1
    for name in ("align", "<b>x", "seen"):
        workspace.get_model(name)
    assert len(workspace.models) == MAX_MODELS


def test_the_front_never_imports_torch(runs):
    """All that answers pages: the process that holds the connections stays small, and is there at once."""
    code = f"""
import asyncio, json, sys, urllib.request
from pathlib import Path
from headwise.studio.app import build_app
from headwise.studio.run_registry import RunRegistry
from headwise.studio.worker_pool import WorkerPool
from headwise.web.guard import Address
from headwise.web.server import bind_socket, make_server

PATHS = ["", "api/runs", "api/runs/histories", "api/comparisons", "api/catalogue", "api/catalogue/parts",
         "api/catalogue/gpt-tiny/structure", "api/explain/masks", "api/explain/sentences?run=reverse", "api/workers"]

async def main():
    listener = bind_socket(Address(port=0))
    address = Address(port=listener.getsockname()[1])
    pool = WorkerPool(RunRegistry([Path({str(runs)!r})]))
    server = make_server(build_app(pool, address))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    for path in PATHS:
        assert await asyncio.to_thread(lambda: urllib.request.urlopen(address.url + path).read()), path
    server.should_exit = True
    await serving
    await pool.stop()

asyncio.run(main())
print([name for name in ("torch", "transformers") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "[]\n"), found.stderr
