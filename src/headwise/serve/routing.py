"""What a route is, and the request and answers that its handler deals with."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from headwise.serve.errors import RequestError, format_error
from headwise.serve.limits import MAX_JSON_BYTES
from headwise.web.guard import Scope, Send

if TYPE_CHECKING:
    from headwise.serve.service import Service

STREAM_END = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Call:
    """A request whose body has been read and checked."""

    service: Service
    scope: Scope
    body: Any  # of the route's schema; None of a GET
    started: float

    @property
    def path(self) -> str:
        return str(self.scope["path"])


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    content: Any  # bytes, or what becomes JSON
    status: int = 200
    media_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()

    async def send(self, call_path: str, send: Send) -> None:
        body = self.content if isinstance(self.content, bytes) else json.dumps(self.content).encode()
        own = (("content-type", self.media_type), ("content-length", str(len(body))), *self.headers)
        listed = [(name.encode(), value.encode()) for name, value in own]
        await send({"type": "http.response.start", "status": self.status, "headers": listed})
        await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True)
class EventStream:
    """Server-sent events. The status is sent with the first event, so that what fails before it has a status of its
    own; what fails later ends the stream with an event that has an error."""

    events: AsyncIterator[Any]

    async def send(self, call_path: str, send: Send) -> None:
        first = await anext(self.events)
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"),
                   (b"x-accel-buffering", b"no")]  # fmt: skip
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": encode_event(first), "more_body": True})
        try:
            async for event in self.events:
                await send({"type": "http.response.body", "body": encode_event(event), "more_body": True})
        except RequestError as error:
            failed = encode_event(format_error(call_path, error.status, error.message))
            await send({"type": "http.response.body", "body": failed, "more_body": True})
        await send({"type": "http.response.body", "body": STREAM_END})


def encode_event(content: Any) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"


Handler = Callable[[Call], Awaitable["Answer | EventStream"]]


@dataclass(frozen=True)
class Route:
    """One method of one path; the description and the examples are for /openapi.json."""

    path: str
    handler: Handler
    summary: str
    tag: str
    body: type[BaseModel] | None = None  # of a POST
    example: Any = None  # of the body
    answer: Any = None  # an example of the answer
    max_bytes: int = MAX_JSON_BYTES
    forms: bool = False  # whether an HTML form is taken, too
    computes: bool = field(default=False)  # whether it needs a worker: refused while the service stops or is full

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"
