"""A pool of loaded models, each used by one request at a time, in threads outside the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from headwise.errors import UserError
from headwise.studio.run_registry import RunFolder, RunRegistry

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel

Result = TypeVar("Result")
MAX_MODELS = 3  # loaded models kept in memory
MODEL_WORKERS = 2  # threads for requests that need a model
MAX_WAITING = 32  # requests of each kind that wait or are worked on; others are told to come back
OTHER_WORKERS = 4  # threads for all other requests, which never wait for a model


class Busy(Exception):
    """Too many requests are waiting."""


class ModelPool:
    """Loads a model at its first request, and again when its run has a newer checkpoint."""

    def __init__(self, registry: RunRegistry):
        self.registry = registry
        self.model_workers, self.other_workers = (
            ThreadPoolExecutor(MODEL_WORKERS, "studio"),
            ThreadPoolExecutor(OTHER_WORKERS, "aside"),
        )
        self.pending = {self.model_workers: 0, self.other_workers: 0}
        self.lock = Lock()
        self.loaded: OrderedDict[tuple[str, float], tuple[Future[TrainedModel], Lock]] = OrderedDict()

    def preload(self) -> None:
        """Import PyTorch in the background: it takes seconds, and the user is still typing."""
        self.model_workers.submit(import_module, "headwise.inference.trained_model")

    async def run_with_model(self, name: str, task: Callable[[TrainedModel], Result]) -> tuple[Result, float]:
        """Run `task` with the model of a run; returns its result and its milliseconds, loading excluded."""
        return await self._submit(self.model_workers, partial(self._run_with_model, name, task))

    async def run(self, task: Callable[[], Result]) -> Result:
        """Run a task that needs no model."""
        return await self._submit(self.other_workers, task)

    async def _submit(self, workers: ThreadPoolExecutor, task: Callable[[], Result]) -> Result:
        """Run a task in a thread; one that is cancelled before it has begun is not run."""
        if self.pending[workers] >= MAX_WAITING:
            raise Busy
        self.pending[workers] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(workers, task)
        finally:
            self.pending[workers] -= 1

    def _run_with_model(self, name: str, task: Callable[[TrainedModel], Result]) -> tuple[Result, float]:
        model, lock = self._get_model(self.registry[name])
        with lock:
            start = perf_counter()
            return task(model), 1e3 * (perf_counter() - start)

    def _get_model(self, folder: RunFolder) -> tuple[TrainedModel, Lock]:
        key = (str(folder.path), checkpoint_time(folder))
        with self.lock:
            is_new = key not in self.loaded
            if is_new:
                for stale in [entry for entry in self.loaded if entry[0] == key[0]]:
                    del self.loaded[stale]
                self.loaded[key] = Future(), Lock()
                while len(self.loaded) > MAX_MODELS:
                    self.loaded.popitem(last=False)
            self.loaded.move_to_end(key)
            future, lock = self.loaded[key]
        if is_new:  # load outside the lock, so that requests for other models go on
            try:
                future.set_result(load_model(folder, self.registry.data_root))
            except Exception as error:
                future.set_exception(error)
                with self.lock:
                    self.loaded.pop(key, None)
        return future.result(), lock


def load_model(folder: RunFolder, data_root: str | Path = "") -> TrainedModel:
    from headwise.experiment.load import load

    try:
        return load(folder.path, data_root=data_root)
    except UserError:
        raise
    except Exception as error:  # a damaged folder must not stop the studio
        raise UserError(f"{folder.name}: cannot be opened ({error})") from error


def checkpoint_time(folder: RunFolder) -> float:
    """Modification time of the best checkpoint; 0 if there is none."""
    try:
        return (folder.path / "best").stat().st_mtime
    except OSError:  # a folder of another library, or one that was just deleted
        return 0.0
