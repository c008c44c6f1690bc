"""ASGI middleware in front of every route: checks Host, Origin, key and body size, and sets the security headers.

A page of another site that is open in the same browser can send requests to a server on this machine. It cannot forge
the Host and Origin headers, so these are checked.

If there is a key, programs send it in the Authorization header. A browser gets it once in the URL, `/?key=KEY`, and
keeps a digest of it in an HttpOnly, SameSite=Strict cookie.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from headwise.errors import UserError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
MAX_BYTES = 8 * 2**20  # of one request body: enough for an image
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True)
class Address:
    """Host, port and key of a server. A host that other machines can reach needs a key.

    >>> Address("127.0.0.1", 8000).hosts == {"127.0.0.1:8000", "localhost:8000", "[::1]:8000"}
    True
    """

    host: str = "127.0.0.1"
    port: int = 8765
    key: str = ""

    def __post_init__(self) -> None:
        if self.host not in LOCAL_HOSTS and not self.key:
            raise UserError(
                f"--host {self.host}: other machines can reach this host; set a key with --key, or use 127.0.0.1"
            )

    @property
    def hosts(self) -> set[str]:
        """The accepted values of the Host header."""
        names = {*LOCAL_HOSTS, self.host}
        return {f"[{name}]:{self.port}" if ":" in name else f"{name}:{self.port}" for name in names}

    @property
    def url(self) -> str:
        return f"http://{self.host if ':' not in self.host else f'[{self.host}]'}:{self.port}/"

    @property
    def browser_url(self) -> str:
        """The URL to open in a browser, with the key."""
        return f"{self.url}?key={quote(self.key, safe='')}" if self.key else self.url

    @property
    def cookie(self) -> tuple[str, str]:
        """Name and value of the cookie. Cookies are shared by all ports of a host, so the name contains the port."""
        return f"headwise-{self.port}", hmac.digest(self.key.encode(), b"headwise", "sha256").hex()

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has the key or the cookie."""
        name, value = self.cookie
        return equal_in_constant_time(_get_bearer_token(headers), self.key) or equal_in_constant_time(
            _get_cookie(headers, name), value
        )


class Guard:
    """ASGI middleware."""

    def __init__(self, app: App, address: Address, max_bytes: int = MAX_BYTES):
        self.app, self.address, self.max_bytes = app, address, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # websockets are not supported
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self.address.key and (target := self._redirect_target(scope)):
            await send_redirect(send, target, *self.address.cookie)
            return
        if error := self._check_headers(headers):
            await send_error(send, *error)
            return
        body = LimitedBody(receive, self.max_bytes)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if body.exceeded:
                    raise BodyTooLong
                names = {name.lower() for name, _ in message.get("headers", [])}
                missing = [
                    (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in names
                ]
                message = {**message, "headers": [*message.get("headers", []), *missing]}
            await send(message)

        try:
            await self.app(scope, body, send_with_headers)
        except BodyTooLong:
            await send_error(send, 413, f"a request body may have at most {self.max_bytes:,} bytes; send less")

    def _redirect_target(self, scope: Scope) -> str:
        """The URL to redirect to after a GET with the right key: the same without the key; otherwise empty."""
        if scope["method"] != "GET":
            return ""
        parameters = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        if not any(name == "key" and equal_in_constant_time(value, self.address.key) for name, value in parameters):
            return ""
        rest = urlencode([(name, value) for name, value in parameters if name != "key"])
        path = "/" + quote(scope["path"]).lstrip("/")  # a path that begins with two slashes would name another host
        return f"{path}?{rest}" if rest else path

    def _check_headers(self, headers: dict[str, str]) -> tuple[int, str] | None:
        address = self.address
        if not address.key and headers.get("host", "").lower() not in address.hosts:
            return 421, "the Host header does not name this server; use the URL that it prints"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in _allowed_hosts(address, headers)}:
            return 403, "requests from pages of other sites are refused"
        if address.key and not address.is_authorized(headers):
            return 401, "this server needs its key: open /?key=KEY once, or send `Authorization: Bearer KEY`"
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self.max_bytes:  # parsing a very long number would be slow
            return 413, f"a request body may have at most {self.max_bytes:,} bytes; send less"
        return None


class BodyTooLong(Exception):
    """The body is longer than the limit."""


class LimitedBody:
    """Receives a body and raises `BodyTooLong` beyond the limit."""

    def __init__(self, receive: Receive, max_bytes: int):
        self.receive, self.left, self.exceeded = receive, max_bytes, False

    async def __call__(self) -> Message:
        message = await self.receive()
        self.left -= len(message.get("body", b""))
        if self.left < 0:
            self.exceeded = True
            raise BodyTooLong
        return message


def _allowed_hosts(address: Address, headers: dict[str, str]) -> Iterable[str]:
    """The hosts that an Origin may name: with a key, the one in the Host header."""
    return {headers.get("host", "")} if address.key else address.hosts


def equal_in_constant_time(actual: str, expected: str) -> bool:
    """Compare two strings in constant time, against timing attacks."""
    return hmac.compare_digest(actual.encode(), expected.encode())


def _get_bearer_token(headers: Mapping[str, str]) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" else ""


def _get_cookie(headers: Mapping[str, str], name: str) -> str:
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""


async def send_redirect(send: Send, where: str, name: str, value: str) -> None:
    """Redirect to the URL without the key and set the cookie."""
    cookie = f"{name}={value}; Path=/; HttpOnly; SameSite=Strict"
    headers = {"location": where, "set-cookie": cookie, "cache-control": "no-store", "content-length": "0", **HEADERS}
    start = {"type": "http.response.start", "status": 303}
    await send({**start, "headers": [(key.encode(), each.encode()) for key, each in headers.items()]})
    await send({"type": "http.response.body", "body": b""})


async def send_error(send: Send, status: int, message: str) -> None:
    """Send an error as JSON."""
    body = json.dumps({"error": message}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close", **HEADERS}
    start = {"type": "http.response.start", "status": status}
    await send({**start, "headers": [(name.encode(), value.encode()) for name, value in headers.items()]})
    await send({"type": "http.response.body", "body": body})
