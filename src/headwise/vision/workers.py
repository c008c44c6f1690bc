"""The same work for many files, in as many processes as there are cores, with a bar on a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

log = logging.getLogger(__name__)

Result = TypeVar("Done")

BLOCK_SIZE = 4096  # files whose results may wait to be taken
CHUNK_SIZE = 16  # files that are sent to a process at a time


def run_parallel(work: Callable[..., Result], items: Sequence[tuple[Any, ...]], processes: int) -> Iterator[Result]:
    """`work(*item)` of each item, in order. Processes are spawned: they share nothing with this one."""
    done = 0
    if processes > 1:
        try:
            with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
                for start in range(0, len(items), BLOCK_SIZE):
                    columns = zip(*items[start : start + BLOCK_SIZE], strict=True)
                    for result in pool.map(work, *columns, chunksize=CHUNK_SIZE):
                        yield result
                        done += 1
        except BrokenProcessPool:  # such as in a script without `if __name__ == "__main__"`
            log.warning("worker processes ended before their work; it goes on in one process")
    for item in items[done:]:
        yield work(*item)


def show_progress(results: Iterator[Result], total: int, what: str) -> Iterator[Result]:
    """The results, with a bar where stderr is a terminal."""
    if not sys.stderr.isatty():
        return results
    from rich.console import Console
    from rich.progress import track

    return iter(track(results, what, total, console=Console(stderr=True), transient=True))
