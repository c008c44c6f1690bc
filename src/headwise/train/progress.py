"""Progress of training: a progress bar in a notebook or on a terminal, a line now and then in a log file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from time import monotonic
from typing import Any, Protocol

from headwise.utils.console import make_console
from headwise.utils.notebook import NotebookDisplay, in_notebook, render_bar

Row = Mapping[str, Any]


class Progress(Protocol):
    """A context for the whole training; `show` is called at every step, `log` with every row."""

    def __enter__(self) -> Progress: ...
    def __exit__(self, *_: object) -> None: ...
    def show(self, share: float, step: int, epoch: int) -> None: ...
    def log(self, row: Row) -> None: ...


def make_progress() -> Progress:
    """A progress bar in a notebook or if stderr is a terminal, else lines."""
    if in_notebook():
        return NotebookBar()
    return Bar() if sys.stderr.isatty() else Lines()


def format_duration(seconds: float) -> str:
    """
    >>> format_duration(59.2), format_duration(3661)
    ('0:59', '1:01:01')
    """
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def format_row(row: Row) -> str:
    """The metrics of a training row, or the scores of a validation row, as one line.

    >>> format_row({"loss": 2.5, "rate": 0.001, "tokens_per_second": 8123.4})
    'loss 2.500  rate 1.0e-03  8,123 tokens/s'
    >>> format_row({"valid": {"ser": 0.42}})
    'valid ser 0.42'
    """
    if "valid" in row:
        return "valid " + "  ".join(f"{name} {value:.4g}" for name, value in row["valid"].items())
    if "loss" not in row:
        return ""
    speed = f"{row['tokens_per_second']:,.0f} {row.get('unit', 'tokens')}/s"
    text = f"loss {row['loss']:.3f}  rate {row['rate']:.1e}  {speed}"
    load = row.get("load")
    return f"{text}  busiest expert {load['busiest']:.1f}x  {load['dropped']:.1%} dropped" if load else text


class _Clock:
    """Estimates the time left from the fraction of the budget that this process has spent."""

    def __init__(self) -> None:
        self.start = monotonic()
        self.first: float | None = None

    def left(self, share: float) -> str:
        if self.first is None:
            self.first = share
        done = share - self.first
        return format_duration((monotonic() - self.start) * (1 - share) / done) if done > 0 else "?"


class NoProgress:
    """Shows nothing: of several processes the main one does."""

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *_: object) -> None: ...
    def show(self, share: float, step: int, epoch: int) -> None: ...
    def log(self, row: Row) -> None: ...


class Lines:
    """A line at most every `seconds`, and one for each validation."""

    def __init__(self, seconds: float = 30.0):
        self.seconds = seconds
        self.clock = _Clock()
        self.last = monotonic()
        self.text = ""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, share: float, step: int, epoch: int) -> None:
        left = self.clock.left(share)
        if monotonic() - self.last >= self.seconds:
            self.last = monotonic()
            self._print(f"{share:4.0%}  step {step}  epoch {epoch}  {self.text}  {left} left")

    def log(self, row: Row) -> None:
        if "valid" in row:
            self._print(f"step {row['step']}  {format_row(row)}")
        else:
            self.text = format_row(row) or self.text

    def _print(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class Bar:
    """A rich progress bar on stderr."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self.clock = _Clock()
        self.bar = RichProgress(
            TextColumn("step {task.fields[step]}  epoch {task.fields[epoch]}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]} left"),
            console=make_console(stderr=True),
            refresh_per_second=4,
        )
        self.task = self.bar.add_task("", total=1.0, step=0, epoch=0, text="", left="?")

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, share: float, step: int, epoch: int) -> None:
        self.bar.update(self.task, completed=share, step=step, epoch=epoch, left=self.clock.left(share))

    def log(self, row: Row) -> None:
        if "valid" in row:
            self.bar.console.print(f"step {row['step']}  {format_row(row)}", markup=False, highlight=False)
        elif text := format_row(row):
            self.bar.update(self.task, text=text)


class NotebookBar:
    """A progress bar in the output of a notebook's cell, with the last validation below it."""

    def __init__(self, seconds: float = 0.25):
        self.seconds, self.next = seconds, 0.0  # between updates, and the time of the next one
        self.clock, self.display = _Clock(), NotebookDisplay()
        self.share, self.position, self.text, self.valid = 0.0, "", "", ""

    def __enter__(self) -> NotebookBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._draw()

    def show(self, share: float, step: int, epoch: int) -> None:
        self.share = share
        self.position = f"step {step}  epoch {epoch}  {self.clock.left(share)} left"
        if monotonic() >= self.next:
            self._draw()

    def log(self, row: Row) -> None:
        if "valid" in row:
            self.valid = f"\nstep {row['step']}  {format_row(row)}"
            self._draw()
        else:
            self.text = format_row(row) or self.text

    def _draw(self) -> None:
        self.next = monotonic() + self.seconds
        self.display.update(render_bar(self.share, f"{self.position}  {self.text}{self.valid}"))
