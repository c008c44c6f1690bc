"""The studio as a process: a free port, one address to open, a clean end."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import replace

import uvicorn

from headwise.errors import UserError
from headwise.studio.app import application
from headwise.studio.run_registry import Shelf
from headwise.web.guard import Address


def serve(shelf: Shelf, address: Address, browser: bool = True, say: Callable[[str], None] = print) -> None:
    """Listen until Ctrl-C."""
    with bound(address) as listener:
        address = replace(address, port=listener.getsockname()[1])
        config = uvicorn.Config(
            application(shelf, address),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
        )
        say(f"the studio is at {address.door} (Ctrl-C ends it)")
        if browser:
            threading.Timer(0.3, webbrowser.open, [address.door]).start()
        uvicorn.Server(config).run(sockets=[listener])


def bound(address: Address) -> socket.socket:
    """A socket that listens there, before anything is said of it."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise UserError(f"--port {address.port}: cannot listen there ({error.strerror}); choose another") from None
    listener.listen()  # a browser that is faster than the server waits instead of being refused
    return listener
