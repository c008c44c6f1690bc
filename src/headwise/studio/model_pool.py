"""Where models are worked with: a few at hand, each used by one request at a time, away from the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from headwise.errors import UserError
from headwise.studio.run_registry import Item, Shelf

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel

Made = TypeVar("Made")
AT_HAND = 3  # models that stay in memory
WORKERS = 2  # requests that are worked on at once, each with a model of its own
ASIDE = 4  # those without a model, which never wait for one


class Desk:
    """Loads models when they are first asked for, and again when a run has a newer checkpoint."""

    def __init__(self, shelf: Shelf):
        self.shelf = shelf
        self.pool, self.others = ThreadPoolExecutor(WORKERS, "studio"), ThreadPoolExecutor(ASIDE, "aside")
        self.lock = Lock()
        self.loaded: OrderedDict[tuple[str, float], tuple[Future[TrainedModel], Lock]] = OrderedDict()

    def prepare(self) -> None:
        """What every model needs takes seconds to import: begin with it while somebody types."""
        self.pool.submit(import_module, "headwise.inference.trained_model")

    async def work(self, name: str, task: Callable[[TrainedModel], Made]) -> tuple[Made, float]:
        """What `task` makes of a model, and the milliseconds it took, without those of loading."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, self._work, name, task)

    async def aside(self, task: Callable[[], Made]) -> Made:
        """What `task` makes without a model."""
        return await asyncio.get_running_loop().run_in_executor(self.others, task)

    def _work(self, name: str, task: Callable[[TrainedModel], Made]) -> tuple[Made, float]:
        loaded, lock = self._at_hand(self.shelf[name])
        with lock:
            begin = perf_counter()
            return task(loaded), 1e3 * (perf_counter() - begin)

    def _at_hand(self, item: Item) -> tuple[TrainedModel, Lock]:
        key = (str(item.path), newest(item))
        with self.lock:
            new = key not in self.loaded
            if new:
                for old in [other for other in self.loaded if other[0] == key[0]]:
                    del self.loaded[old]
                self.loaded[key] = Future(), Lock()
                while len(self.loaded) > AT_HAND:
                    self.loaded.popitem(last=False)
            self.loaded.move_to_end(key)
            found, lock = self.loaded[key]
        if new:  # others may work with their models meanwhile
            try:
                found.set_result(opened(item))
            except Exception as error:
                found.set_exception(error)
                with self.lock:
                    self.loaded.pop(key, None)
        return found.result(), lock


def opened(item: Item) -> TrainedModel:
    from headwise.experiment.load import load

    try:
        return load(item.path)
    except UserError:
        raise
    except Exception as error:  # a damaged folder must not take the studio down
        raise UserError(f"{item.name}: cannot be opened ({error})") from error


def newest(item: Item) -> float:
    """When the weights that would be loaded were written."""
    try:
        return (item.path / "best").stat().st_mtime
    except OSError:  # a folder of another library, or one that was deleted a moment ago
        return 0.0
