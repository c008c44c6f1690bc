"""The process that loads a server: `python -m headwise.bench.serve_load`, a load in JSON on every line of stdin.

It imports no torch and little else, so that starting it is quick and its own work small beside the server's. A closed
loop has a number of clients, each of which sends its next request when it has the answer to the last. An open loop has
Poisson arrivals: requests come whether the server keeps up or not, and latencies count from the moment at which a
request was due, not from when it could be sent.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any

from headwise.utils.parent import die_with_parent

TIMEOUT = 600.0  # seconds of one request


@dataclass(frozen=True)
class Load:
    """What to send to a server; `clients` makes it a closed loop, `rate` an open one."""

    port: int
    path: str
    bodies: list[dict[str, Any]]
    clients: int = 0
    rate: float = 0.0  # arrivals a second
    seed: int = 0


@dataclass
class Measured:
    """What the clients saw, request by request, in the order of the bodies; seconds."""

    latencies: list[float]
    first: list[float]  # until the first piece of the answer
    texts: list[str]
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0  # of the whole load
    cpu: float = 0.0  # of this process
    server_cpu: float = 0.0  # processor seconds of the server
    tokens: int = 0  # that were asked for


class AnswerError(Exception):
    """An answer that is not what was asked for."""


class Connection:
    """A kept-alive HTTP/1.1 connection that sends one request at a time."""

    def __init__(self, port: int):
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str, body: dict[str, Any]) -> tuple[float, str]:
        """The moment at which the first piece of the answer was there, and the text of the answer."""
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port, limit=2**20)
        reader, writer = self._streams
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        try:
            status, headers = parse_head(await reader.readuntil(b"\r\n\r\n"))
            pieces = bytearray()
            began = 0.0
            async for piece in self._read_body(reader, headers):
                began = began or perf_counter()
                pieces += piece
        except (asyncio.IncompleteReadError, OSError):
            self.close()
            raise AnswerError("the connection was closed") from None
        if headers.get("connection", "").lower() == "close":
            self.close()
        if status != 200:
            raise AnswerError(f"status {status}: {bytes(pieces[:200]).decode(errors='replace')}")
        streamed = "text/event-stream" in headers.get("content-type", "")
        return began, read_events(bytes(pieces)) if streamed else find_text(json.loads(pieces))

    async def _read_body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> Any:
        if "content-length" in headers:
            yield await reader.readexactly(int(headers["content-length"]))
            return
        while size := int((await reader.readline()).partition(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readline()
        await reader.readline()

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


def read_events(content: bytes) -> str:
    """The text of a stream of server-sent events.

    >>> read_events(b'data: {"text": "to "}\\n\\ndata: {"choices": [{"text": "be"}]}\\n\\ndata: [DONE]\\n\\n')
    'to be'
    """
    lines = (line.removeprefix("data: ") for line in content.decode().splitlines() if line.startswith("data: "))
    return "".join(find_text(json.loads(line)) for line in lines if line != "[DONE]")


def find_text(found: Any) -> str:
    """The text of an answer in OpenAI's shape, ours, or that of a plain server."""
    if found.get("error"):
        raise AnswerError(str(found["error"])[:200])
    for name in ("outputs", "choices"):
        while found.get(name):
            found = found[name][0]
    return str(found.get("text") or "")


async def run_load(load: Load) -> Measured:
    count = len(load.bodies)
    measured = Measured([0.0] * count, [0.0] * count, [""] * count)
    started, cpu = perf_counter(), process_time()
    connections: list[Connection] = []  # idle ones, of which the one used last comes first

    async def ask(number: int, due: float) -> None:
        connection = connections.pop() if connections else Connection(load.port)
        try:
            async with asyncio.timeout(TIMEOUT):
                began, measured.texts[number] = await connection.ask(load.path, load.bodies[number])
            measured.latencies[number], measured.first[number] = perf_counter() - due, began - due
        except (AnswerError, OSError, ValueError, TimeoutError) as error:
            measured.errors.append(str(error) or type(error).__name__)
            connection.close()
        connections.append(connection)

    await (arrive(load, ask) if load.rate else follow(load, ask))
    measured.seconds, measured.cpu = perf_counter() - started, process_time() - cpu
    for connection in connections:
        connection.close()
    return measured


async def follow(load: Load, ask: Callable[[int, float], Any]) -> None:
    """Closed loop."""
    numbers = iter(range(len(load.bodies)))

    async def send_all() -> None:
        for number in numbers:
            await ask(number, perf_counter())

    await asyncio.gather(*(send_all() for _ in range(load.clients)))


async def arrive(load: Load, ask: Callable[[int, float], Any]) -> None:
    """Open loop."""
    started = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, after in enumerate(draw_arrivals(load)):
            await asyncio.sleep(max(0.0, started + after - perf_counter()))
            group.create_task(ask(number, started + after))


def draw_arrivals(load: Load) -> Iterator[float]:
    """The seconds at which requests are due: gaps have an exponential distribution."""
    rng, after = random.Random(load.seed), 0.0
    for _ in load.bodies:
        after += rng.expovariate(load.rate)
        yield after


def main() -> None:
    die_with_parent()
    with suppress(KeyboardInterrupt):
        for line in sys.stdin:
            print(json.dumps(vars(asyncio.run(run_load(Load(**json.loads(line)))))), flush=True)


if __name__ == "__main__":
    main()
