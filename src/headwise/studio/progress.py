"""Cancellation and progress of the operation that this thread of a worker computes.

Cancellation is cooperative: every module of torch checks before its forward, and loops report how far they are. Outside
a worker both do nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Any

INTERVAL = 0.1  # seconds between two reports


class Cancelled(BaseException):
    """The page that asked has gone. No `except Exception` may take it for an error of the model."""


@dataclass
class Task:
    """An operation that is being computed."""

    operation: str
    send: Callable[[int, int], None]  # tells the front how much is done, and of how much
    cancelled: bool = False
    reported: float = 0.0


TASK: ContextVar[Task | None] = ContextVar("studio_task", default=None)


def check() -> None:
    """Raise if the operation of this thread is cancelled."""
    task = TASK.get()
    if task is not None and task.cancelled:
        raise Cancelled


def report(done: int, total: int = 0) -> None:
    """Report that `done` of `total` steps are done, 0: of an unknown number."""
    check()
    task = TASK.get()
    if task is not None and (done == total or monotonic() - task.reported >= INTERVAL):
        task.reported = monotonic()
        task.send(done, total)


def watch_modules() -> None:
    """Check before each forward of any module, from now on and in all threads."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    def check_before(module: Any, args: Any) -> None:
        check()

    register_module_forward_pre_hook(check_before)
