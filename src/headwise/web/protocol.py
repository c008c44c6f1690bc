"""HTTP/1.1 of uvicorn with deadlines for what a client sends.

uvicorn restarts its one timer with every byte, so a client that sends a byte a second keeps a connection for ever. Here
a request has an absolute deadline: its headers `HEADER_SECONDS` after their first byte, or after the connection was
made, its body `BODY_SECONDS` later. Once the request is complete no deadline applies, so that answers may be streamed
as long as they take; a client that does not read what was sent to it is cut off after `READ_SECONDS`.

A request that is refused before its body has come, as one that is too long, has its answer, and what the client goes on
sending is read and dropped for `LINGER_SECONDS`: closing at once would reset the connection, and the answer be lost.

An application may refuse a request by its first line alone (`refuse`), as a service that is full does: parsing headers
and starting a task for each of a thousand requests takes longer than refusing them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
BODY_SECONDS = 30.0
READ_SECONDS = 30.0
LINGER_SECONDS = 2.0
FIRST_LINE = re.compile(rb"([A-Z]{1,20}) ([^ ?\r\n]{1,500})[ ?]")
LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r\n", re.IGNORECASE)
Refuse = Callable[[str, str], bytes]  # method and path -> the whole answer; nothing: the request is read


class DeadlineProtocol(H11Protocol):
    """One connection."""

    seconds: ClassVar[dict[str, float]] = {"headers": HEADER_SECONDS, "body": BODY_SECONDS}
    read_seconds: ClassVar[float] = READ_SECONDS
    refuse: ClassVar[Refuse] = staticmethod(lambda method, path: b"")

    unread = False  # whether a request was refused of which more will come
    _expected = ""  # what the client has begun to send: headers, body, or nothing
    _deadline: asyncio.TimerHandle | None = None
    _read_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, LingeringTransport(transport, self)))
        self._expect("headers")

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect("")
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if answer := self._refuse(data):
            self._expect("")
            self.unread = not is_whole(data)
            self.transport.write(answer)
            self.transport.close()
            return
        super().data_received(data)
        self._follow()

    def _refuse(self, data: bytes) -> bytes:
        """The answer to a request that begins here and is refused by its first line."""
        if self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]:
            return b""
        found = FIRST_LINE.match(data)
        return type(self).refuse(found[1].decode(), found[2].decode("latin-1")) if found else b""

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._expected == "" and self.conn.trailing_data[0]:  # the next request is here in part
            self._follow()

    def _follow(self) -> None:
        states = {h11.IDLE: "headers", h11.SEND_BODY: "body"}
        self._expect(states.get(self.conn.their_state, ""))

    def _expect(self, what: str) -> None:
        """Set the deadline of headers or body, unless it is running."""
        if what == self._expected:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._expected = what
        self._deadline = self.loop.call_later(self.seconds[what], self._cut_off) if what else None

    def _cut_off(self) -> None:
        """Answer 408 where nothing has been answered yet, and close the connection."""
        if self.transport.is_closing():
            return
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            message = f"no complete request within {self.seconds['headers']:.0f} seconds".encode()
            headers = [("connection", "close"), ("content-type", "text/plain"), ("content-length", str(len(message)))]
            response = h11.Response(status_code=408, headers=headers, reason=b"Request Timeout")
            for event in (response, h11.Data(data=message), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._read_deadline is None:
            self._read_deadline = self.loop.call_later(self.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None
        super().resume_writing()


def is_whole(data: bytes) -> bool:
    """Whether nothing of a request is missing that has a Content-Length or no body.

    >>> is_whole(b"POST / HTTP/1.1\\r\\nContent-Length: 2\\r\\n\\r\\n{}"), is_whole(b"POST / HTTP/1.1\\r\\nHo")
    (True, False)
    """
    head, end, body = data.partition(b"\r\n\r\n")
    found = LENGTH.search(head + b"\r\n")
    return bool(end) and b"transfer-encoding" not in head.lower() and len(body) >= (int(found[1]) if found else 0)


class LingeringTransport:
    """A transport that is closed gently while the client is still sending."""

    def __init__(self, transport: asyncio.Transport, protocol: DeadlineProtocol):
        self._transport, self._protocol, self._lingers = transport, protocol, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._lingers or self._transport.is_closing()

    def close(self) -> None:
        if self._lingers or self._transport.is_closing():
            return
        sending = self._protocol.unread or self._protocol.conn.their_state is h11.SEND_BODY
        if not sending or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._lingers = True
        self._transport.write_eof()
        self._transport.resume_reading()
        self._protocol.loop.call_later(LINGER_SECONDS, self._transport.abort)
