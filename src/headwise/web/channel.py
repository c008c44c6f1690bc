"""Messages between a front process and a worker: JSON and bytes after their lengths, never pickled objects.

4 bytes  length of the JSON, big-endian
4 bytes  length of the bytes
JSON     the message without its `content`
bytes    its `content`, if it has one
"""

from __future__ import annotations

import asyncio
import json
import socket
from struct import Struct
from threading import Lock
from typing import Any

Message = dict[str, Any]
LENGTHS = Struct(">II")
MAX_BYTES = 256 * 2**20  # of a message


def pack(message: Message) -> bytes:
    content = message.get("content", b"")
    text = json.dumps({name: value for name, value in message.items() if name != "content"}, separators=(",", ":"))
    body = text.encode()
    return b"".join((LENGTHS.pack(len(body), len(content)), body, content))


def unpack(sizes: tuple[int, int], body: bytes) -> Message:
    message: Message = json.loads(body[: sizes[0]])
    if sizes[1]:
        message["content"] = body[sizes[0] :]
    return message


class Channel:
    """The worker's end: blocking. Several threads may send, one receives."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self.reader = connection.makefile("rb")
        self.lock = Lock()

    def send(self, message: Message) -> None:
        packed = pack(message)
        with self.lock:
            self.connection.sendall(packed)

    def receive(self) -> Message | None:
        """The next message; None when the other end has gone."""
        head = self.reader.read(LENGTHS.size)
        if len(head) < LENGTHS.size:
            return None
        sizes = LENGTHS.unpack(head)
        body = self.reader.read(sum(sizes)) if sum(sizes) <= MAX_BYTES else b""
        return unpack(sizes, body) if len(body) == sum(sizes) else None


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """The front's end: the next message; None when the worker has gone."""
    try:
        sizes = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
        return unpack(sizes, await reader.readexactly(sum(sizes))) if sum(sizes) <= MAX_BYTES else None
    except (asyncio.IncompleteReadError, OSError):
        return None
