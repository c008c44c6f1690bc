"""What every worker process does: take its end of the channel, report its errors, measure its memory."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import traceback
from pathlib import Path

from headwise.web.channel import Channel

log = logging.getLogger(__name__)
TOO_LITTLE_MEMORY = "the server has too little memory for this request; send a smaller one"


def open_channel(descriptor: str) -> Channel:
    """Make this process a worker: its front decides when it ends, and what is printed goes to stderr."""
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the front decides when requests in flight are done
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdout = sys.stderr
    logging.basicConfig(level=logging.WARNING, format="headwise: %(message)s", stream=sys.stderr)
    return Channel(socket.socket(fileno=int(descriptor)))


def report(error: Exception) -> str:
    """Log an error with its traceback; a sentence for the client, which does not learn where our files are."""
    log.error("%s", "".join(traceback.format_exception(error)))
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return TOO_LITTLE_MEMORY
    return "the server failed while it computed the answer; its log says why"


def read_memory() -> int:
    """Resident memory of this process in bytes; 0 where /proc does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
