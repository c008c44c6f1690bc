"""Run the studio as a process: bind a port, print the URL, shut down on Ctrl-C."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import replace

import uvicorn

from headwise.errors import UserError
from headwise.studio.app import build_app
from headwise.studio.run_registry import RunRegistry
from headwise.web.guard import Address


def serve(registry: RunRegistry, address: Address, browser: bool = True, say: Callable[[str], None] = print) -> None:
    """Serve until Ctrl-C."""
    with bind_socket(address) as listener:
        address = replace(address, port=listener.getsockname()[1])
        config = uvicorn.Config(
            build_app(registry, address),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
        )
        say(f"the studio is at {address.browser_url} (press Ctrl-C to stop)")
        if browser:
            threading.Timer(0.3, webbrowser.open, [address.browser_url]).start()
        uvicorn.Server(config).run(sockets=[listener])


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
            f"--port {address.port}: cannot listen on this port ({error.strerror}); choose another"
        ) from None
    listener.listen()  # a browser that connects before the server is ready waits instead of being refused
    return listener
