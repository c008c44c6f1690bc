"""Where models are worked with: a few at hand, each used by one request at a time, away from the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from headwise.errors import UserError
from headwise.studio.shelf import Item, Shelf

if TYPE_CHECKING:
    from headwise.loaded import Loaded

Made = TypeVar("Made")
AT_HAND = 3  # models that stay in memory
WORKERS = 2  # requests that are worked on at once, each with a model of its own


class Desk:
    """Loads models when they are first asked for, and again when a run has a newer checkpoint."""

    def __init__(self, shelf: Shelf):
        self.shelf = shelf
        self.pool = ThreadPoolExecutor(WORKERS, "studio")
        self.lock = Lock()
        self.loaded: OrderedDict[tuple[str, float], tuple[Loaded, Lock]] = OrderedDict()

    async def work(self, name: str, task: Callable[[Loaded], Made]) -> tuple[Made, float]:
        """What `task` makes of a model, and the milliseconds it took, without those of loading."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, self._work, name, task)

    async def aside(self, task: Callable[[], Made]) -> Made:
        """What `task` makes without a model."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, task)

    def _work(self, name: str, task: Callable[[Loaded], Made]) -> tuple[Made, float]:
        loaded, lock = self._at_hand(self.shelf[name])
        with lock:
            begin = perf_counter()
            return task(loaded), 1e3 * (perf_counter() - begin)

    def _at_hand(self, item: Item) -> tuple[Loaded, Lock]:
        from headwise.loaded import load

        key = (str(item.path), newest(item))
        with self.lock:
            if key not in self.loaded:
                try:
                    found = load(item.path)
                except UserError:
                    raise
                except Exception as error:  # a damaged folder must not take the studio down
                    raise UserError(f"{item.name}: cannot be opened ({error})") from error
                for old in [other for other in self.loaded if other[0] == key[0]]:
                    del self.loaded[old]
                self.loaded[key] = found, Lock()
                while len(self.loaded) > AT_HAND:
                    self.loaded.popitem(last=False)
            self.loaded.move_to_end(key)
            return self.loaded[key]


def newest(item: Item) -> float:
    """When the weights that would be loaded were written."""
    best = item.path / "best"
    return best.stat().st_mtime if best.is_file() else 0.0
