"""SIGTERM and Ctrl-C stop training with a checkpoint; a second signal quits at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Raised by a signal in `Signals.interruptible`; a BaseException, so `except Exception` does not catch it."""


class Signals:
    """While entered, the first signal sets `received`; the loop checks it where it can stop safely."""

    def __init__(self) -> None:
        self.received = ""
        self._interruptible = False

    def __enter__(self) -> "Signals":
        # only the main thread may set handlers; in another thread signals are left to the program
        main = threading.current_thread() is threading.main_thread()
        self._old_handlers = {number: signal.signal(number, self._handle) for number in STOP_SIGNALS} if main else {}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A block that a signal interrupts at once, such as a long validation."""
        self._interruptible = True
        try:
            if self.received:
                raise Interrupted
            yield
        finally:
            self._interruptible = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            os._exit(128 + number)
        self.received = signal.Signals(number).name
        # os.write: sys.stderr is not reentrant, and the signal may have interrupted a write to it
        os.write(2, f"\n{self.received}: saving a checkpoint; a second signal quits at once\n".encode())
        if self._interruptible:
            self._interruptible = False
            raise Interrupted
