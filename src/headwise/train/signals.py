"""SIGTERM and Ctrl-C end a training politely; a second one ends it at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Raised out of work that may be abandoned; like KeyboardInterrupt no Exception, so that none swallows it."""


class Signals:
    """While entered, the first signal sets `asked`; the loop looks at it where stopping is safe."""

    def __init__(self) -> None:
        self.received = ""
        self._abandon = False

    def __enter__(self) -> "Signals":
        # only the main thread may set handlers; elsewhere its owner deals with signals
        main = threading.current_thread() is threading.main_thread()
        self._before = {number: signal.signal(number, self._handle) for number in STOP_SIGNALS} if main else {}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Work that a signal breaks off instead of waiting for its end: a long validation."""
        self._abandon = True
        try:
            if self.received:
                raise Interrupted
            yield
        finally:
            self._abandon = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            os._exit(128 + number)
        self.received = signal.Signals(number).name
        # not through sys.stderr: the signal may have come while it was writing
        os.write(2, f"\n{self.received}: saving a checkpoint; once more to quit at once\n".encode())
        if self._abandon:
            self._abandon = False
            raise Interrupted
