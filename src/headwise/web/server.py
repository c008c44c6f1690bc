"""Run an ASGI application as a process: bind a port, serve with deadlines, finish what was begun when it is stopped."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

import uvicorn

from headwise.errors import UserError
from headwise.web.guard import Address, App
from headwise.web.protocol import DeadlineProtocol, Refuse

DRAIN_SECONDS = 30.0
IDLE_SECONDS = 30  # of a connection between two requests


class Server(uvicorn.Server):
    """Graceful shutdown on SIGTERM or SIGINT: requests that have begun are finished for up to `drain_seconds`, while
    the port stays open so that `/ready` can say no; then the process ends with status 0. A second signal ends it at
    once."""

    def __init__(self, config: uvicorn.Config, drain_seconds: float, on_drain: Callable[[], None]):
        super().__init__(config)
        self.drain_seconds, self.on_drain, self.draining = drain_seconds, on_drain, False
        self._drainage: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own handlers would end the process with the signal, which is no exit status 0."""
        loop = asyncio.get_running_loop()
        handled = (signal.SIGTERM, signal.SIGINT)
        with suppress(RuntimeError, ValueError):  # not in the main thread, as in tests
            for each in handled:
                loop.add_signal_handler(each, self.stop)
        try:
            yield
        finally:
            with suppress(RuntimeError, ValueError):
                for each in handled:
                    loop.remove_signal_handler(each)

    def stop(self) -> None:
        """Begin to drain; called again, exit at once."""
        if self.draining:
            self.should_exit = self.force_exit = True
            return
        self.draining = True
        self.on_drain()
        self._drainage = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        end = monotonic() + self.drain_seconds
        while self.server_state.tasks and monotonic() < end:
            await asyncio.sleep(0.05)
        self.should_exit = True


def make_server(
    app: App,
    drain_seconds: float = DRAIN_SECONDS,
    on_drain: Callable[[], None] = lambda: None,
    tls: tuple[Path, Path] | None = None,
    behind_proxy: bool = False,
    refuse: Refuse = DeadlineProtocol.refuse,
) -> Server:
    """A server with deadlines; `tls` is certificate and key. Headers of a proxy are believed only if told to. What
    `refuse` answers to a method and a path is sent before the request is parsed."""
    config = uvicorn.Config(
        app,
        http=type("Protocol", (DeadlineProtocol,), {"refuse": staticmethod(refuse)}),
        ws="none",
        lifespan="off",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=behind_proxy,
        limit_concurrency=None,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=2,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )
    try:
        config.load()
    except OSError as error:
        raise UserError(f"--tls-cert, --tls-key: cannot be read ({error}); name two PEM files") from None
    return Server(config, drain_seconds, on_drain)


def allow_connections() -> None:
    """Raise the limit of open files, and so of connections, as far as is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def bind_socket(address: Address) -> socket.socket:
    """A listening socket, opened before its URL is printed."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise UserError(
            f"--host {address.host} --port {address.port}: cannot listen there ({error.strerror}); choose others"
        ) from None
    listener.listen(1024)  # a client that connects before the server is ready waits instead of being refused
    return listener
