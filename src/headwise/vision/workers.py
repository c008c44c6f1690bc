"""Parallel work on many files: a pool of processes, with a progress bar on a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

from headwise.utils.console import make_console

log = logging.getLogger(__name__)

Result = TypeVar("Result")

BLOCK_SIZE = 4096  # items whose results may wait in memory
CHUNK_SIZE = 16  # items that are sent to a process at a time


def run_parallel(function: Callable[..., Result], items: Sequence[tuple[Any, ...]], processes: int) -> Iterator[Result]:
    """Yield `function(*item)` of each item, in order. Processes are spawned: they share nothing with this one."""
    done = 0
    if processes > 1:
        try:
            with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
                for start in range(0, len(items), BLOCK_SIZE):
                    columns = zip(*items[start : start + BLOCK_SIZE], strict=True)
                    for result in pool.map(function, *columns, chunksize=CHUNK_SIZE):
                        yield result
                        done += 1
        except BrokenProcessPool:  # such as in a script without `if __name__ == "__main__"`
            log.warning("worker processes ended before their work; it goes on in one process")
    for item in items[done:]:
        yield function(*item)


def show_progress(results: Iterator[Result], total: int, title: str) -> Iterator[Result]:
    """Yield the results, with a progress bar if stderr is a terminal."""
    if not sys.stderr.isatty():
        return results
    from rich.progress import track

    return iter(track(results, title, total, console=make_console(stderr=True), transient=True))
