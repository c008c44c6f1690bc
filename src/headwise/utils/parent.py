"""Worker processes that end with the process that started them, also if that is killed."""

from __future__ import annotations

import os
import signal
import threading
from time import sleep

POLL = 0.5  # seconds between two looks at the parent


def die_with_parent(grace: float = 0.0) -> None:
    """Kill this process `grace` seconds after its parent has ended. A thread polls the parent's id, which changes with
    the parent's death: PR_SET_PDEATHSIG exists on Linux alone, and follows the parent's thread, not its process."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            sleep(POLL)
        sleep(grace)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="die_with_parent").start()
