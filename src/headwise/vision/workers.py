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

Done = TypeVar("Done")

BLOCK = 4096  # files whose results may wait to be taken
CHUNK = 16  # files that are sent to a process at a time


def spread(work: Callable[..., Done], items: Sequence[tuple[Any, ...]], processes: int) -> Iterator[Done]:
    """`work(*item)` of each item, in order. Processes are spawned: they share nothing with this one."""
    done = 0
    if processes > 1:
        try:
            with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
                for start in range(0, len(items), BLOCK):
                    columns = zip(*items[start : start + BLOCK], strict=True)
                    for result in pool.map(work, *columns, chunksize=CHUNK):
                        yield result
                        done += 1
        except BrokenProcessPool:  # such as in a script without `if __name__ == "__main__"`
            log.warning("worker processes ended before their work; it goes on in one process")
    for item in items[done:]:
        yield work(*item)


def shown(results: Iterator[Done], total: int, what: str) -> Iterator[Done]:
    """The results, with a bar where stderr is a terminal."""
    if not sys.stderr.isatty():
        return results
    from rich.console import Console
    from rich.progress import track

    return iter(track(results, what, total, console=Console(stderr=True), transient=True))
