"""Progress of running cells: progress bars on a terminal and in a notebook, occasional log lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from threading import Lock
from time import monotonic
from typing import Any, Protocol

from headwise.utils.console import make_console
from headwise.utils.notebook import NotebookDisplay, in_notebook, render_bar

Message = Mapping[str, Any]  # share, step, text


class Progress(Protocol):
    """A context manager around running cells; called from several threads."""

    def __enter__(self) -> Progress: ...
    def __exit__(self, *_: object) -> None: ...
    def update(self, cell: str, message: Message) -> None: ...
    def end(self, cell: str, text: str) -> None: ...


def make_progress() -> Progress:
    if in_notebook():
        return NotebookBars()
    return Bars() if sys.stderr.isatty() else Lines()


class Lines:
    """Print a line per cell at most every `seconds`, and one when it ends."""

    def __init__(self, seconds: float = 30.0):
        self.seconds = seconds
        self.last: dict[str, float] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, cell: str, message: Message) -> None:
        if monotonic() - self.last.get(cell, float("-inf")) >= self.seconds:
            self.last[cell] = monotonic()
            self.end(cell, f"{message['share']:.0%}  step {message['step']}  {message['text']}")

    def end(self, cell: str, text: str) -> None:
        with suppress(OSError, ValueError):  # the reader of stderr may be gone; the cells go on
            print(f"{cell}: {text}", file=sys.stderr, flush=True)


class Bars:
    """A rich progress bar per cell; finished cells become lines above."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

        self.bars = Progress(
            TextColumn("[cyan]{task.description}[/]"),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TextColumn("step {task.fields[step]}  {task.fields[text]}", markup=False),
            TimeElapsedColumn(),
            console=make_console(stderr=True),
            refresh_per_second=4,
        )
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def update(self, cell: str, message: Message) -> None:
        if cell not in self.tasks:
            self.tasks[cell] = self.bars.add_task(cell, total=1.0, step=0, text="")
        self.bars.update(self.tasks[cell], completed=message["share"], step=message["step"], text=message["text"])

    def end(self, cell: str, text: str) -> None:
        if cell in self.tasks:
            self.bars.remove_task(self.tasks.pop(cell))
        self.bars.console.print(f"{cell}: {text}", markup=False, highlight=False)


class NotebookBars:
    """A progress bar per cell in the output of a notebook's cell; finished cells become lines above."""

    def __init__(self) -> None:
        self.display, self.lock = NotebookDisplay(), Lock()
        self.running: dict[str, str] = {}
        self.ended: list[str] = []

    def __enter__(self) -> NotebookBars:
        with self.lock:
            self._draw()  # the display belongs to the cell that runs now, not to a thread
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, cell: str, message: Message) -> None:
        with self.lock:
            text = f"{cell}  step {message['step']}  {message['text']}"
            self.running[cell] = render_bar(message["share"], text)
            self._draw()

    def end(self, cell: str, text: str) -> None:
        with self.lock:
            self.running.pop(cell, None)
            self.ended.append(f"{cell}: {text}")
            self._draw()

    def _draw(self) -> None:
        lines = "".join(f"<div>{escape(line)}</div>" for line in self.ended)
        self.display.update(f"<div>{lines}{''.join(self.running.values())}</div>")
