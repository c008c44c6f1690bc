"""The service as a process: signals, workers that die, clients that go, queues that are full, keys."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

KEY = "0123456789abcdef-key"


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether it became true; the bound only ends a test that fails."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


LONG = {"text": "to be", "max_tokens": 3000, "min_length": 3000, "temperature": 0}


def read_metric(server, name: str) -> float:
    text = server.ask("GET", "/metrics")[2].decode()
    return float(next(line.split()[-1] for line in text.splitlines() if line.startswith(name)))


def begin_stream(server) -> socket.socket:
    """A stream of 3,000 tokens that has begun."""
    body = json.dumps({**LONG, "stream": True}).encode()
    line = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    head = f"POST /api/generate HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    while b"data: " not in line.recv(4096):
        pass
    return line


@pytest.fixture(scope="module")
def long(serve, runs):
    """Two rows, and two that may wait."""
    with serve(str(runs / "long"), "--rows", "2", "--queue", "2", "--max-tokens", "3000") as served:
        yield served


def test_clients_that_go_give_their_rows_back(long):
    lines = [begin_stream(long) for _ in range(2)]
    assert read_metric(long, "headwise_worker_requests") == 2
    for line in lines:
        line.close()
    assert wait_until(lambda: read_metric(long, "headwise_worker_requests") == 0)
    assert long.post("/api/generate", {"text": "a", "max_tokens": 2})["outputs"]


def test_a_full_queue_refuses_at_once(long):
    lines = [begin_stream(long) for _ in range(2)]
    with ThreadPoolExecutor(8) as clients:
        waiting = [clients.submit(long.ask, "POST", "/api/generate", {"text": "a", "max_tokens": 2}) for _ in range(8)]
        assert wait_until(lambda: sum(each.done() for each in waiting) == 6)
        refused = [each.result() for each in waiting if each.done()]
        assert {status for status, _, _ in refused} == {503}
        assert all(int(headers["retry-after"]) >= 1 for _, headers, _ in refused)
        assert long.ask("GET", "/health")[0] == 200
        for line in lines:
            line.close()
        assert sorted(each.result()[0] for each in waiting) == [200, 200, *[503] * 6]


def test_a_worker_that_is_killed_comes_back(long):
    line = begin_stream(long)
    os.kill(long.list_workers()[0], signal.SIGKILL)
    rest = b""
    while piece := line.recv(65_536):
        rest += piece
        if b"[DONE]" in rest:
            break
    line.close()
    assert b'"error"' in rest
    assert long.ask("GET", "/health")[0] == 200
    assert wait_until(lambda: long.ask("POST", "/api/generate", {"text": "a", "max_tokens": 2})[0] == 200, 60)
    assert read_metric(long, "headwise_worker_restarts") == 1


def test_sigterm_finishes_what_was_begun(serve, runs):
    with serve(str(runs / "long"), "--max-tokens", "3000") as server:
        workers = server.list_workers()
        with ThreadPoolExecutor(4) as clients:
            body = LONG | {"max_tokens": 400, "min_length": 400}
            answers = [clients.submit(server.ask, "POST", "/api/generate", body) for _ in range(4)]
            assert wait_until(lambda: read_metric(server, "headwise_worker_requests") == 4)
            server.process.send_signal(signal.SIGTERM)
            assert wait_until(lambda: server.ask("GET", "/ready")[0] == 503)
            assert server.ask("POST", "/api/generate", {"text": "a"})[0] == 503
            assert [each.result()[0] for each in answers] == [200] * 4
        assert server.process.wait(30) == 0
        assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_a_second_signal_ends_it_at_once_and_without_orphans(serve, runs):
    with serve(str(runs / "long"), "--max-tokens", "3000") as server:
        workers = server.list_workers()
        line = begin_stream(server)
        server.process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: server.ask("GET", "/ready")[0] == 503)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(20)
        line.close()
        assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_workers_follow_a_front_that_is_killed(serve, runs):
    with serve(str(runs / "long"), HEADWISE_API_KEY=KEY) as server:
        check_keys(server)
        workers = server.list_workers()
        server.process.kill()
        assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def check_keys(server) -> None:
    """Every route needs the key, but those that say whether it is up; wrong guesses are counted."""
    right = {"Authorization": f"Bearer {KEY}"}
    paths = json.loads(server.ask("GET", "/openapi.json", **right)[2])["paths"]
    for path in [*paths, "/", "/nothing"]:
        expected = 200 if path in ("/health", "/ready") else 401
        assert server.ask("GET", path)[0] == expected
    assert server.client(KEY).models.list().data[0].id == "long"
    assert KEY not in Path(f"/proc/{server.process.pid}/cmdline").read_text()
    guesses = [server.ask("GET", "/v1/models", Authorization=f"Bearer {number:020d}") for number in range(25)]
    assert [status for status, _, _ in guesses] == [401] * 20 + [429] * 5
    assert int(guesses[-1][1]["retry-after"]) >= 1
    assert server.ask("GET", "/v1/models", **right)[0] == 429 and server.ask("GET", "/health")[0] == 200


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name a run"),
        (["nowhere"], "there is no such run"),
        (["{lm}", "{lm}"], "there is already a model called lm"),
        (["{lm}", "--host", "0.0.0.0"], "set a key|give a file with keys"),
        (["a b={lm}"], "has other signs"),
        (["{lm}", "--languages", "x=en:de"], "no model has this name"),
        (["{lm}", "--tls-cert", "x"], "belong together"),
        (["{lm}", "--key-file", "{empty}"], "has no key"),
        (["{lm}", "--engine", "ctranslate2"], "encoder-decoder"),
        (["{lm}", "--chat-template", "nowhere"], "cannot be read"),
    ],
)
def test_mistakes_of_the_command_are_told_in_a_sentence(runs, tmp_path, words, told):
    (tmp_path / "empty").touch(mode=0o600)
    given = [word.format(lm=runs / "lm", empty=tmp_path / "empty") for word in words]
    command = [sys.executable, "-m", "headwise", "serve", *given, "--port", "0", "--no-spare"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert any(part in done.stderr for part in told.split("|")), done.stderr
