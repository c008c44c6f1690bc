"""ASGI middleware in front of every route: checks Host, Origin, key and body size, and sets the security headers.

A page of another site that is open in the same browser can send requests to a server on this machine. It cannot forge
the Host and Origin headers, so these are checked.

If there are keys, programs send one in the Authorization header. A browser gets it once in the URL, `/?key=KEY`, and
keeps a digest of it in an HttpOnly, SameSite=Strict cookie.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from math import ceil
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from headwise.errors import UserError
from headwise.web.keys import ENVIRONMENT, GuessLimit, find_equal

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
    """Host, port and keys of a server. A host that other machines can reach needs a key, unless `public`.

    >>> Address("127.0.0.1", 8000).hosts == {"127.0.0.1:8000", "localhost:8000", "[::1]:8000"}
    True
    """

    host: str = "127.0.0.1"
    port: int = 8765
    keys: tuple[str, ...] = ()
    tls: bool = False
    names: tuple[str, ...] = ()  # further values of the Host header, such as the name that a proxy has
    public: bool = False

    def __post_init__(self) -> None:
        if self.host not in LOCAL_HOSTS and not self.keys and not self.public:
            raise UserError(
                f"--host {self.host}: other machines can reach this host; give a file with keys by --key-file, set "
                f"{ENVIRONMENT}, or use 127.0.0.1"
            )

    @property
    def hosts(self) -> set[str]:
        """The accepted values of the Host header."""
        names = {*LOCAL_HOSTS, self.host}
        bound = {f"[{name}]:{self.port}" if ":" in name else f"{name}:{self.port}" for name in names}
        return bound | set(self.names)

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host if ':' not in self.host else f'[{self.host}]'}:{self.port}/"

    @property
    def browser_url(self) -> str:
        """The URL to open in a browser, with the first key."""
        return f"{self.url}?key={quote(self.keys[0], safe='')}" if self.keys else self.url

    @property
    def cookie_name(self) -> str:
        """Cookies are shared by all ports of a host, so the name contains the port."""
        return f"headwise-{self.port}"

    def find_key(self, headers: Mapping[str, str]) -> str:
        """The key that a request has in its Authorization header or, as a digest, in its cookie; else nothing."""
        digests = {digest_key(key): key for key in self.keys}
        by_cookie = digests.get(find_equal(_get_cookie(headers, self.cookie_name), tuple(digests)), "")
        return find_equal(_get_bearer_token(headers), self.keys) or by_cookie


def digest_key(key: str) -> str:
    """What a cookie has instead of the key."""
    return hmac.digest(key.encode(), b"headwise", "sha256").hex()


@dataclass(frozen=True)
class Rules:
    """What a server allows, by path."""

    open_paths: frozenset[str] = frozenset()  # answered to anybody: they say whether the server is up
    get_max_bytes: Callable[[str], int] = lambda path: MAX_BYTES
    format_error: Callable[[str, int, str], Any] = lambda path, status, message: {"error": message}


class Guard:
    """ASGI middleware."""

    def __init__(self, app: App, address: Address, rules: Rules | None = None):
        self.app, self.address, self.rules, self.guesses = app, address, rules or Rules(), GuessLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # websockets are not supported
        path = scope["path"]
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._check_key(scope, headers) if path not in self.rules.open_paths else None
        refusal = refusal or self._check_length(path, headers)
        if refusal is not None:
            await refusal.send(send, self.rules.format_error(path, refusal.status, refusal.message))
            return
        body = LimitedBody(receive, self.rules.get_max_bytes(path))

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
            refusal = refuse_length(self.rules.get_max_bytes(path))
            await refusal.send(send, self.rules.format_error(path, refusal.status, refusal.message))

    def _check_key(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        address = self.address
        if not address.keys and headers.get("host", "").lower() not in address.hosts and "*" not in address.names:
            return Refusal(421, "the Host header does not name this server; use the URL that it prints")
        origin = headers.get("origin")
        if origin is not None and origin not in {f"{address.scheme}://{host}" for host in self._list_hosts(headers)}:
            return Refusal(403, "requests from pages of other sites are refused")
        if not address.keys:
            return None
        client = (scope.get("client") or ("", 0))[0]
        if wait := self.guesses.get_wait(client):
            after = (("retry-after", str(ceil(wait))),)
            return Refusal(429, "too many wrong keys came from this address; wait, and send the right one", after)
        in_url = self._find_key_in_url(scope)
        if in_url:
            return self._redirect(scope, in_url)
        if address.find_key(headers):
            return None
        if "authorization" in headers or "cookie" in headers or b"key=" in scope.get("query_string", b""):
            self.guesses.add(client)
        return Refusal(
            401,
            "this server needs a key: send `Authorization: Bearer KEY`, or open /?key=KEY once in a browser",
            (("www-authenticate", "Bearer"),),
        )

    def _find_key_in_url(self, scope: Scope) -> str:
        if scope["method"] != "GET":
            return ""
        parameters = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        return next((key for name, value in parameters if name == "key" and (key := self._match(value))), "")

    def _match(self, value: str) -> str:
        return find_equal(value, self.address.keys)

    def _redirect(self, scope: Scope, key: str) -> Refusal:
        """After a GET with a key: to the same URL without the key, with the cookie."""
        parameters = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        rest = urlencode([(name, value) for name, value in parameters if name != "key"])
        path = "/" + quote(scope["path"]).lstrip("/")  # a path that begins with two slashes would name another host
        secure = "; Secure" if self.address.tls else ""
        cookie = f"{self.address.cookie_name}={digest_key(key)}; Path=/; HttpOnly; SameSite=Strict{secure}"
        target = f"{path}?{rest}" if rest else path
        return Refusal(303, "", (("location", target), ("set-cookie", cookie), ("cache-control", "no-store")))

    def _check_length(self, path: str, headers: dict[str, str]) -> Refusal | None:
        length, most = headers.get("content-length", ""), self.rules.get_max_bytes(path)
        if length.isdecimal() and int(length[:20]) > most:  # parsing a very long number would be slow
            return refuse_length(most)
        return None

    def _list_hosts(self, headers: dict[str, str]) -> Iterable[str]:
        """The hosts that an Origin may name: with a key, the one in the Host header."""
        return {headers.get("host", "")} if self.address.keys else self.address.hosts


@dataclass(frozen=True)
class Refusal:
    """An answer of the guard itself."""

    status: int
    message: str
    headers: tuple[tuple[str, str], ...] = ()

    async def send(self, send: Send, content: Any) -> None:
        redirects = self.status == 303
        body = b"" if redirects else json.dumps(content).encode()
        own = {"content-length": str(len(body)), **HEADERS, **dict(self.headers)}
        if not redirects:
            own |= {"content-type": "application/json", "connection": "close"}
        listed = [(name.encode(), value.encode()) for name, value in own.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": listed})
        await send({"type": "http.response.body", "body": body})


def refuse_length(most: int) -> Refusal:
    return Refusal(413, f"a request body may have at most {most:,} bytes here; send less")


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


def _get_bearer_token(headers: Mapping[str, str]) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" else ""


def _get_cookie(headers: Mapping[str, str], name: str) -> str:
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""
