"""Stands before every route: refuses foreign hosts and origins and bodies that are too long, and tells browsers what a
page may do.

A page of another site that is open in the same browser can send requests to a server on this machine. It cannot forge
the Host and Origin headers, so those decide.

Where there is a key, programs show it in a header. Browsers are given it once in an address, `/?key=KEY`, and keep a
digest of it in a cookie that scripts cannot read and pages of other sites cannot use.
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

LOCAL = ("127.0.0.1", "localhost", "::1")
MOST_BYTES = 8 * 2**20  # of one request: an image with room to spare
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
    """Where a server listens. One that others can reach needs a key.

    >>> Address("127.0.0.1", 8000).hosts == {"127.0.0.1:8000", "localhost:8000", "[::1]:8000"}
    True
    """

    host: str = "127.0.0.1"
    port: int = 8765
    key: str = ""

    def __post_init__(self) -> None:
        if self.host not in LOCAL and not self.key:
            raise UserError(f"--host {self.host}: others could reach it; set a key with --key, or use 127.0.0.1")

    @property
    def hosts(self) -> set[str]:
        """What a browser may call it."""
        names = {*LOCAL, self.host}
        return {f"[{name}]:{self.port}" if ":" in name else f"{name}:{self.port}" for name in names}

    @property
    def url(self) -> str:
        return f"http://{self.host if ':' not in self.host else f'[{self.host}]'}:{self.port}/"

    @property
    def door(self) -> str:
        """What a browser is first opened with."""
        return f"{self.url}?key={quote(self.key, safe='')}" if self.key else self.url

    @property
    def cookie(self) -> tuple[str, str]:
        """Name and value of what a browser keeps. Cookies know no ports, so the name has it."""
        return f"headwise-{self.port}", hmac.digest(self.key.encode(), b"headwise", "sha256").hex()

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether a request shows the key, or the cookie that stands for it."""
        name, value = self.cookie
        return same(_bearer(headers), self.key) or same(_kept(headers, name), value)


class Guard:
    """ASGI middleware."""

    def __init__(self, app: App, address: Address, most: int = MOST_BYTES):
        self.app, self.address, self.most = app, address, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there are no other kinds of requests here
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self.address.key and (entered := self._entered(scope)):
            await send_redirect(send, entered, *self.address.cookie)
            return
        if refusal := self._refused(headers):
            await answer(send, *refusal)
            return
        counted = Counted(receive, self.most)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                if counted.exceeded:
                    raise TooLong
                known = {name.lower() for name, _ in message.get("headers", [])}
                extra = [
                    (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in known
                ]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        try:
            await self.app(scope, counted, guarded)
        except TooLong:
            await answer(send, 413, f"a request may have {self.most:,} bytes; send less")

    def _entered(self, scope: Scope) -> str:
        """Where a browser goes that has just been given the right key: the same address without it."""
        if scope["method"] != "GET":
            return ""
        given = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        if not any(name == "key" and same(value, self.address.key) for name, value in given):
            return ""
        rest = urlencode([(name, value) for name, value in given if name != "key"])
        path = "/" + quote(scope["path"]).lstrip("/")  # two slashes would name another host
        return f"{path}?{rest}" if rest else path

    def _refused(self, headers: dict[str, str]) -> tuple[int, str] | None:
        address = self.address
        if not address.key and headers.get("host", "").lower() not in address.hosts:
            return 421, "this server answers only to its own address"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in _called(address, headers)}:
            return 403, "pages of other sites may not ask this server"
        if address.key and not address.knows(headers):
            return 401, "this server wants its key: open /?key=KEY once, or send `Authorization: Bearer KEY`"
        told = headers.get("content-length", "")
        if told.isdecimal() and int(told[:20]) > self.most:  # a few digits tell, and more would take long to read
            return 413, f"a request may have {self.most:,} bytes; send less"
        return None


class TooLong(Exception):
    """A body went on beyond the limit."""


class Counted:
    """Receives a body, and breaks off where it is longer than it may be."""

    def __init__(self, receive: Receive, most: int):
        self.receive, self.left, self.exceeded = receive, most, False

    async def __call__(self) -> Message:
        message = await self.receive()
        self.left -= len(message.get("body", b""))
        if self.left < 0:
            self.exceeded = True
            raise TooLong
        return message


def _called(address: Address, headers: dict[str, str]) -> Iterable[str]:
    """The names under which this request may know the server: with a key, the one that it called."""
    return {headers.get("host", "")} if address.key else address.hosts


def same(given: str, wanted: str) -> bool:
    """In a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode(), wanted.encode())


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" else ""


def _kept(headers: Mapping[str, str], name: str) -> str:
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""


async def send_redirect(send: Send, where: str, name: str, value: str) -> None:
    """To the address without the key, which a browser keeps from now on."""
    cookie = f"{name}={value}; Path=/; HttpOnly; SameSite=Strict"
    headers = {"location": where, "set-cookie": cookie, "cache-control": "no-store", "content-length": "0", **HEADERS}
    start = {"type": "http.response.start", "status": 303}
    await send({**start, "headers": [(key.encode(), each.encode()) for key, each in headers.items()]})
    await send({"type": "http.response.body", "body": b""})


async def answer(send: Send, status: int, sentence: str) -> None:
    """A refusal in JSON."""
    body = json.dumps({"error": sentence}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close", **HEADERS}
    start = {"type": "http.response.start", "status": status}
    await send({**start, "headers": [(name.encode(), value.encode()) for name, value in headers.items()]})
    await send({"type": "http.response.body", "body": body})
