"""The ASGI application: reads and checks a request, calls its handler, and drops the work when the client has gone."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from time import perf_counter, time
from typing import Any
from urllib.parse import parse_qsl

from headwise.errors import UserError
from headwise.serve.errors import RequestError, format_error
from headwise.serve.limits import MAX_JSON_BYTES, ServeLimits
from headwise.serve.metrics import Metrics
from headwise.serve.parsing import parse_object, validate_body
from headwise.serve.pool import ModelPool
from headwise.serve.routing import Answer, Call, EventStream, Route
from headwise.web.guard import HEADERS, BodyTooLong, Receive, Scope, Send

log = logging.getLogger(__name__)
DRAINING = "the service is being stopped; send this to another"
FULL = "there are as many requests as the server takes; try again"


class ClientGone(Exception):
    """The connection was closed before the request was complete."""


class Service:
    """All routes over the models of a pool."""

    def __init__(self, pool: ModelPool, routes: Sequence[Route], limits: ServeLimits, metrics: Metrics):
        self.pool, self.limits, self.metrics = pool, limits, metrics
        self.routes = list(routes)
        self.by_path = {route.path: route for route in routes if "{" not in route.path}
        self.prefixes = [(route.path.partition("{")[0], route) for route in routes if "{" in route.path]
        self.draining = False
        self.in_flight = 0
        self.created = int(time())

    def drain(self) -> None:
        """From now on nothing new is begun."""
        self.draining = True

    def get_max_bytes(self, path: str) -> int:
        route = self.by_path.get(path)
        return route.max_bytes if route else MAX_JSON_BYTES

    def refuse_at_once(self, method: str, path: str) -> bytes:
        """The whole answer to a request, not yet parsed, that needs a worker while there is no place for it; nothing
        if it is to be read."""
        route = self.by_path.get(path)
        if route is None or not route.computes or method != route.method:
            return b""
        refusal = self._find_refusal()
        if refusal is None:
            return b""
        self.metrics.observe(route.path, refusal.status, 0.0)
        return write_refusal(path, refusal.message, refusal.wait)

    def _find_refusal(self) -> RequestError | None:
        """Why nothing can be computed now."""
        if self.draining:
            return RequestError(503, DRAINING, wait=5)
        if self.pool.is_full:
            wait = max(model.wait for model in self.pool.models.values())
            return RequestError(503, FULL, wait=wait)
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, path = perf_counter(), scope["path"]
        route = self._find(path)
        status = 500

        async def send_and_note(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer(route, scope, receive, send_and_note, started)
        except ClientGone:
            status = 499
        finally:
            self.metrics.observe(route.path if route else "unknown", status, perf_counter() - started)

    def _find(self, path: str) -> Route | None:
        found = self.by_path.get(path)
        return found or next((route for prefix, route in self.prefixes if path.startswith(prefix)), None)

    async def _answer(self, route: Route | None, scope: Scope, receive: Receive, send: Send, started: float) -> None:
        path, begun = scope["path"], False

        async def send_once_begun(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            route = self._check(route, scope)
            body = await self._read_body(route, scope, receive) if route.body else None
            call = Call(self, scope, body, started)
            if route.computes:
                await self._compute(route, call, receive, send_once_begun)
            else:
                await (await route.handler(call)).send(path, send_once_begun)
        except (ClientGone, BodyTooLong):
            raise
        except RequestError as error:
            await self._send_error(path, error, send, begun)
        except UserError as error:
            await self._send_error(path, RequestError(400, str(error)), send, begun)
        except Exception as error:
            log.error("%s", "".join(traceback.format_exception(error)))
            await self._send_error(path, RequestError(500, "the server failed; its log says why"), send, begun)

    def _check(self, route: Route | None, scope: Scope) -> Route:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if route is None:
            raise RequestError(404, "there is nothing at this path; see /openapi.json")
        if method != route.method:
            raise RequestError(405, f"this path takes {route.method}, not {scope['method'][:20]}")
        if route.computes and (refusal := self._find_refusal()):  # also before a body is read that comes slowly
            raise refusal
        return route

    async def _read_body(self, route: Route, scope: Scope, receive: Receive) -> Any:
        assert route.body is not None
        content = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            content += message.get("body", b"")
            if not message.get("more_body", False):
                break
        kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"").split(b";")[0].strip()
        if route.forms and kind == b"application/x-www-form-urlencoded":
            found: dict[str, Any] = parse_form(bytes(content))
        elif kind in (b"application/json", b""):
            found = parse_object(bytes(content))
        else:
            raise RequestError(415, "send JSON, with Content-Type: application/json")
        return validate_body(route.body, found)

    async def _compute(self, route: Route, call: Call, receive: Receive, send: Send) -> None:
        """Call the handler and send its answer; given up when the client goes, or after the limit of seconds."""

        async def work() -> None:
            answer: Answer | EventStream = await route.handler(call)
            await answer.send(call.path, send)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        self.in_flight += 1
        task, watcher = asyncio.create_task(work()), asyncio.create_task(watch())
        try:
            done, _ = await asyncio.wait(
                {task, watcher}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if task in done:
                await task
            elif watcher in done:
                raise ClientGone
            else:
                raise RequestError(503, f"this took longer than {self.limits.seconds:.0f} seconds; ask for less")
        finally:
            self.in_flight -= 1
            for each in (task, watcher):
                each.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def _send_error(self, path: str, error: RequestError, send: Send, begun: bool) -> None:
        if begun:  # half an answer was sent: all that is left is to break it off
            raise ClientGone
        headers = (("retry-after", str(error.wait)),) if error.wait else ()
        content = format_error(path, error.status, error.message, error.param, error.code)
        await Answer(content, error.status, headers=headers).send(path, send)


@cache
def write_refusal(path: str, message: str, wait: int) -> bytes:
    """An answer 503 as it goes over the connection, which is closed."""
    body = json.dumps(format_error(path, 503, message)).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), "retry-after": str(wait)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | HEADERS | {"connection": "close"}).items())
    return f"HTTP/1.1 503 Service Unavailable\r\n{lines}\r\n".encode() + body


def parse_form(body: bytes) -> dict[str, Any]:
    """An HTML form as an object; a field that is there several times is a list."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=200, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise RequestError(400, "the form cannot be read; send UTF-8, percent-encoded") from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        if "\0" in value:
            raise RequestError(400, "a text has a NUL character; leave it out")
        if name not in found:
            found[name] = int(value) if name == "alternatives" and value.isdecimal() and len(value) < 9 else value
        elif isinstance(found[name], list):
            found[name].append(value)
        else:
            found[name] = [found[name], value]
    return found
