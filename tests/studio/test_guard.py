"""Who may ask the studio, how much, and what an answer allows a page to do."""

import http.client
import json
import socket
from contextlib import suppress

import pytest

from headwise import UserError
from headwise.web.guard import MAX_BYTES, Address


def ask(address, method="GET", path="/", body=None, **headers):
    connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, names)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def test_pages_and_data_come_with_a_strict_policy(studio):
    for path in ("/", "/static/app.js", "/api/runs"):
        status, headers, _ = ask(studio, path=path)
        lower = {name.lower(): value for name, value in headers.items()}
        assert status == 200 and lower["x-content-type-options"] == "nosniff"
        assert "script-src 'self'" in lower["content-security-policy"] and "unsafe" not in str(lower)
        assert "access-control-allow-origin" not in lower


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_foreign_hosts_and_origins_are_refused(studio, headers, status):
    found, _, content = ask(studio, "POST", "/api/look", "{}", **headers)
    assert found == status and "error" in json.loads(content)


def test_same_origin_requests_are_accepted(studio):
    assert ask(studio, path="/api/runs", Origin=f"http://127.0.0.1:{studio.port}")[0] == 200


def test_bodies_beyond_the_limit_are_refused_with_and_without_a_length(studio):
    """Read from the socket: whoever is refused early may still be sending."""
    long = b"x" * (MAX_BYTES + 1)
    chunks = b"".join(b"%x\r\n%b\r\n" % (2**20, long[: 2**20]) for _ in range(MAX_BYTES // 2**20 + 1))
    for head, body in ((f"Content-Length: {len(long)}", b""), ("Transfer-Encoding: chunked", chunks)):
        with socket.create_connection((studio.host, studio.port), timeout=10) as line:
            request = f"POST /api/look HTTP/1.1\r\nHost: 127.0.0.1:{studio.port}\r\n{head}\r\n\r\n"
            line.sendall(request.encode())
            with suppress(OSError):
                line.sendall(body)
            assert line.recv(1000).startswith(b"HTTP/1.1 413"), head


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b'{"run": "reverse", "text": "\\ud800"}',
        b'{"run": "reverse", "text": "a\\u0000b"}',
        b'{"run": "reverse", "text": NaN}',
        b'{"run": "reverse", "text": ' + b"9" * 5000 + b"}",
        b"[" * 200_000,
        b'{"run": "../../etc", "text": "a"}',
        b'{"run": "reverse\\u0000", "text": "a"}',
        b'{"run": "reverse", "text": ""}',
        b'{"run": "reverse", "text": "a", "further": 1}',
        b'{"run": "<b>x", "text": "a", "target": "b"}',
    ],
)
def test_invalid_requests_are_refused_in_one_sentence(studio, body):
    status, _, content = ask(studio, "POST", "/api/look", body, Content_Type="application/json")
    if status != 200:  # a letter that the model does not know is one that it may look at
        assert 400 <= status < 500 and json.loads(content)["error"]


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/hosts", "/api/look/x/y/0"]
)
def test_paths_outside_the_static_folder_are_refused(studio, path):
    assert ask(studio, path=path)[0] in (400, 404)


def test_a_public_address_needs_a_key():
    with pytest.raises(UserError, match="--key-file"):
        Address("0.0.0.0", 80)
    assert Address("0.0.0.0", 80, keys=("secret",)).url
