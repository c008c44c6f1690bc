"""Deadlines of connections: clients that trickle, stall, pipeline, or do not read."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn

from headwise.web.protocol import DeadlineProtocol

FULL = b"HTTP/1.1 503 Full\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull"


class Quick(DeadlineProtocol):
    """Deadlines that a test can wait for."""

    seconds = {"headers": 0.6, "body": 1.2}  # noqa: RUF012
    read_seconds = 0.6
    refuse = staticmethod(lambda method, path: FULL if (method, path) == ("POST", "/full") else b"")


async def app(scope, receive, send) -> None:
    """Reads the body unless it goes to /refuse; /slow takes 2 seconds, /huge sends 64 MB."""
    if scope["path"] != "/refuse":
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/slow":
        await asyncio.sleep(2)
    for _ in range(64 if scope["path"] == "/huge" else 0):
        await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})
    await send({"type": "http.response.body", "body": b"done"})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, http=Quick, ws="none", lifespan="off", log_level="critical", timeout_keep_alive=3)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(10)


def talk(port: int, first: bytes, trickle: bytes = b"", seconds: float = 8.0) -> tuple[bytes, float]:
    """Send `first`, then `trickle` again and again; what came back, and when the server closed."""
    started = time.monotonic()
    received = b""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(first)
        line.settimeout(0.1)
        while time.monotonic() - started < seconds:
            try:
                piece = line.recv(65_536)
                if not piece:
                    break
                received += piece
            except TimeoutError:
                pass
            except OSError:
                break
            try:
                line.sendall(trickle)
            except OSError:
                break
    return received, time.monotonic() - started


def test_trickled_headers_are_cut_off(port):
    received, seconds = talk(port, b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"a")
    assert received.startswith(b"HTTP/1.1 408") and seconds < 5


def test_silence_is_cut_off(port):
    assert talk(port, b"")[1] < 5


def test_trickled_bodies_are_cut_off(port):
    received, seconds = talk(port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", b"a")
    assert received == b"" and seconds < 5
    chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert talk(port, chunked, b"1\r\na\r\n")[1] < 5


def test_a_second_request_has_deadlines_of_its_own(port):
    one = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    received, seconds = talk(port, one + one + b"GET / HT", b"T")
    assert received.count(b"done") == 2 and seconds < 5


def test_answers_may_take_as_long_as_they_like(port):
    request = b"POST /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab"
    received, seconds = talk(port, request)
    assert received.endswith(b"done\r\n0\r\n\r\n") and seconds >= 2


def test_an_idle_connection_may_be_used_again(port):
    with socket.create_connection(("127.0.0.1", port)) as line:
        for _ in range(2):
            line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            received = b""
            while b"0\r\n\r\n" not in received:
                received += line.recv(4096)
            time.sleep(1)  # longer than a request may take, shorter than a connection may rest


def test_who_does_not_read_is_cut_off(port):
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(2)
        received = 0
        try:
            while piece := line.recv(2**20):
                received += len(piece)
        except ConnectionResetError:
            pass
    assert received < 64 * 2**20


def test_who_is_refused_while_sending_has_the_answer(port):
    """Closing at once would reset the connection, and the answer be lost."""
    body = b"x" * 2**20
    with socket.create_connection(("127.0.0.1", port)) as line:
        head = f"POST /refuse HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {8 * len(body)}\r\n\r\n"
        line.sendall(head.encode() + body)
        time.sleep(0.3)
        line.sendall(body)
        assert line.recv(4096).startswith(b"HTTP/1.1 200")


def test_what_is_refused_by_its_first_line_is_answered_before_its_headers_and_body(port):
    assert talk(port, b"POST /full HTTP/1.1\r\nHost: x\r\n", seconds=0.5)[0] == FULL
    whole = b"POST /full?a=b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    received, seconds = talk(port, whole)
    assert received == FULL and seconds < 1.5  # closed, since nothing more will come


def test_a_body_that_is_still_sent_does_not_cost_the_refusal(port):
    """A connection that is closed with unread bytes in it is reset, and the answer lost."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(b"POST /full HTTP/1.1\r\nHost: x\r\nContent-Length: 90000000\r\n\r\n")
        assert line.recv(65_536) == FULL
        for _ in range(20):
            line.sendall(b"a" * 65_536)
        assert line.recv(1) == b""


def test_the_rest_of_a_connection_is_read_as_ever(port):
    """Other methods, longer paths, a second request, and a first line that comes in pieces."""
    get = b"GET /full HTTP/1.1\r\nHost: x\r\n\r\n"
    other = b"POST /fullness HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    assert talk(port, get + other, seconds=1)[0].count(b"done") == 2
    assert b"done" in talk(port, b"POST /full", b"ness HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 0.3)[0]
