"""SIGTERM and Ctrl-C stop training with a checkpoint; a second signal quits at once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Any

from headwise.train.parallel.group import Group

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
REPEATED = 2.0  # seconds within which a signal is the same one again


class Interrupted(BaseException):
    """Raised by a signal in `Signals.interruptible`; a BaseException, so `except Exception` does not catch it."""


class Signals:
    """While entered, the first signal sets `received`; the loop checks it where it can stop safely."""

    def __init__(self) -> None:
        self.received = ""
        self._interruptible = False

    def poll(self) -> float:
        """The time in seconds. The loop calls this before each step."""
        return monotonic()

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


class GroupSignals(Signals):
    """Signals to any process of a group, on which all agree at `poll`: there they have the main process's time too. A
    validation, which is the main process's alone, is interrupted by a signal to that process."""

    def __init__(self, group: Group):
        super().__init__()
        self.group = group
        self.now = 0.0
        self._pending, self._since = 0, 0.0

    def poll(self) -> float:
        number, self.now = self.group.max([self._pending, monotonic() if self.group.is_main else 0.0])
        if number and not self.received:
            self.received = signal.Signals(int(number)).name
            if self.group.is_main:
                os.write(2, f"\n{self.received}: saving a checkpoint\n".encode())
        return self.now

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        yield

    def on_main(self, compute: Callable[[], Any]) -> Any:
        """What the main process computes, in all of them; interrupted there, it is in all."""
        if self.group.is_main:
            try:
                with super().interruptible():
                    reply = {"value": compute()}
            except Interrupted:
                reply = {}
        reply = self.group.broadcast(reply if self.group.is_main else None)
        if not reply:
            raise Interrupted
        return reply["value"]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # launchers and batch systems both pass a signal on, so that a process gets it twice within a moment
        if self._pending and monotonic() - self._since > REPEATED:
            os._exit(128 + number)
        if not self._pending:
            self._pending, self._since = number, monotonic()
        if self._interruptible:
            self._interruptible = False
            raise Interrupted
