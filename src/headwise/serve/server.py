"""Run the service as a process."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from headwise.serve import health, libretranslate, openai_api, own_api
from headwise.serve.errors import format_error
from headwise.serve.health import OPEN_PATHS
from headwise.serve.limits import ServeLimits
from headwise.serve.metrics import Metrics
from headwise.serve.pool import ModelPool, ModelSpec
from headwise.serve.service import Service
from headwise.web.guard import Address, Guard, Rules
from headwise.web.server import allow_connections, bind_socket, make_server

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServeConfig:
    """What to serve, where, and how much of it."""

    models: tuple[ModelSpec, ...]
    address: Address
    limits: ServeLimits
    tls: tuple[Path, Path] | None = None
    behind_proxy: bool = False
    metrics_port: int | None = None
    spare: bool = True


def build_service(pool: ModelPool, limits: ServeLimits) -> Service:
    routes = [
        *openai_api.ROUTES, *libretranslate.ROUTES, *own_api.ROUTES, *health.ROUTES, *health.build_page_routes()
    ]  # fmt: skip
    return Service(pool, routes, limits, Metrics())


def guard_service(service: Service, address: Address, open_paths: frozenset[str] = OPEN_PATHS) -> Guard:
    return Guard(service, address, Rules(open_paths, service.get_max_bytes, format_error))


def serve(config: ServeConfig, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in flight are finished."""
    allow_connections()
    with bind_socket(config.address) as listener:
        address = replace(config.address, port=listener.getsockname()[1])
        asyncio.run(_serve(replace(config, address=address), listener, say))


async def _serve(config: ServeConfig, listener: socket.socket, say: Callable[[str], None]) -> None:
    pool = ModelPool(config.models, config.limits, config.spare)
    service = build_service(pool, config.limits)
    server = make_server(
        guard_service(service, config.address), config.limits.drain_seconds, service.drain, config.tls,
        config.behind_proxy, service.refuse_at_once,
    )  # fmt: skip
    gc.freeze()  # what lives as long as the process need not be looked through while requests are answered
    serving = asyncio.create_task(server.serve(sockets=[listener]))  # /health answers while models are loaded
    others = [asyncio.create_task(serve_metrics(service, config.metrics_port))] if config.metrics_port else []
    try:
        starting = asyncio.create_task(pool.start())
        await asyncio.wait({starting, serving}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            names = ", ".join(pool.models)
            say(f"{names}: served at {config.address.url} (Ctrl-C stops when requests in flight are done)")
        else:
            starting.cancel()
        await serving
    finally:
        server.should_exit = server.force_exit = True
        await pool.stop()
        for task in (serving, *others):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def serve_metrics(service: Service, port: int) -> None:
    """/metrics on a port of its own, which only this machine reaches and which needs no key."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
                found = head.startswith(b"GET /metrics ")
                body = service.metrics.render(service.pool) if found else b""
                status = b"200 OK" if found else b"404 Not Found"
                writer.write(
                    b"HTTP/1.1 " + status + b"\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n"
                    b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
                )
                await writer.drain()
        writer.close()

    with suppress(asyncio.CancelledError):
        async with await asyncio.start_server(respond, "127.0.0.1", port, limit=8192) as server:
            await server.serve_forever()
