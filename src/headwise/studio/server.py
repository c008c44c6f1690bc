"""Run the studio as a process: bind a port, print the URL, shut down on Ctrl-C."""

from __future__ import annotations

import asyncio
import socket
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import replace

from headwise.studio.app import build_app
from headwise.studio.run_registry import RunRegistry
from headwise.studio.worker_pool import WorkerPool
from headwise.web.guard import Address
from headwise.web.server import allow_connections, bind_socket, make_server

DRAIN_SECONDS = 3  # for answers that are being computed when the studio is stopped


def serve(registry: RunRegistry, address: Address, browser: bool = True, say: Callable[[str], None] = print) -> None:
    """Serve until Ctrl-C."""
    allow_connections()
    with bind_socket(address) as listener:
        address = replace(address, port=listener.getsockname()[1])
        say(f"the studio is at {address.browser_url} (press Ctrl-C to stop)")
        if browser:
            threading.Timer(0.3, webbrowser.open, [address.browser_url]).start()
        asyncio.run(_serve(registry, address, listener))


async def _serve(registry: RunRegistry, address: Address, listener: socket.socket) -> None:
    pool = WorkerPool(registry)
    await pool.start()
    try:
        await make_server(build_app(pool, address), DRAIN_SECONDS).serve(sockets=[listener])
    finally:
        await pool.stop()
