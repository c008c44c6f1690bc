"""Worker processes as their front process starts and ends them."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

READ_LIMIT = 2**20  # bytes buffered from a worker before it has to wait


class Launcher:
    """Starts processes of a module: `python -P -m MODULE FD OPTIONS...`, where FD is their end of the channel; -P, so
    that no file of the folder in which the server was started is taken for a module of Python. With `spare`, one that
    has imported everything is kept in reserve: importing torch takes seconds, and a worker that died is replaced within
    one."""

    def __init__(self, module: str, options: Sequence[str] = (), spare: bool = False):
        self.module, self.options, self.keeps_spare = module, list(options), spare
        self._spare: Launched | None = None

    async def launch(self) -> Launched:
        spare, self._spare = self._spare, None
        if spare is not None and spare.process.returncode is None:
            return spare
        return await self._start()

    async def fill(self) -> None:
        """Start the spare process, unless there is one."""
        if self.keeps_spare and self._spare is None:
            self._spare = await self._start()

    async def _start(self) -> Launched:
        ours, theirs = socket.socketpair()
        words = ["-P", "-m", self.module, str(theirs.fileno()), *self.options]
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *words, pass_fds=[theirs.fileno()], stdin=asyncio.subprocess.DEVNULL, process_group=0
            )  # in a group of its own, which Ctrl-C does not reach: the front decides when it ends
        reader, writer = await asyncio.open_connection(sock=ours, limit=READ_LIMIT)
        return Launched(process, reader, writer)

    async def close(self) -> None:
        self.keeps_spare = False
        if self._spare is not None:
            await self._spare.close()


@dataclass
class Launched:
    """A worker process, and the channel to it."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()

    async def close(self) -> None:
        """A worker ends when its channel is closed; one that does not is killed."""
        self.writer.close()
        try:
            async with asyncio.timeout(2):
                await self.process.wait()
        except TimeoutError:
            self.kill()
            await self.process.wait()
