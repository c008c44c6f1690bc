"""Messages between the front process and a worker: JSON after its length, never pickled objects."""

from __future__ import annotations

import asyncio
import json
import socket
from struct import Struct
from typing import Any

LENGTH = Struct(">I")
MAX_BYTES = 256 * 2**20  # of a message


def pack(message: Any) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(body)) + body


class Channel:
    """The worker's end: blocking, as its threads read and write."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self.reader = connection.makefile("rb")

    def send(self, message: Any) -> None:
        self.connection.sendall(pack(message))

    def receive(self) -> Any:
        """The next message; None when the other end has gone."""
        head = self.reader.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        size = LENGTH.unpack(head)[0]
        body = self.reader.read(size) if size <= MAX_BYTES else b""
        return json.loads(body) if len(body) == size else None


async def receive(reader: asyncio.StreamReader) -> Any:
    """The front's end: the next message; None when the worker has gone."""
    try:
        size = LENGTH.unpack(await reader.readexactly(LENGTH.size))[0]
        return json.loads(await reader.readexactly(size)) if size <= MAX_BYTES else None
    except (asyncio.IncompleteReadError, OSError):
        return None
