"""The front's side of the studio's workers: two processes, started again when they die, and the requests in them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from headwise.config.plugins import list_options
from headwise.errors import UserError
from headwise.studio.operations import OPERATIONS, WORKER_OF_LANE, Body
from headwise.studio.run_registry import RunRegistry
from headwise.web.channel import Message, pack, receive
from headwise.web.launcher import Launched, Launcher

log = logging.getLogger(__name__)
MAX_WAITING = 32  # requests of a lane that wait or are computed; others are told to come back
MAX_SECONDS = 600.0  # of a request, with its waiting
OBEY_SECONDS = 5.0  # a worker that still computes what was cancelled so long ago is killed
STATUS_SECONDS = 2.0  # for a worker to say what it does
BUSY = "the studio is busy; try again in a moment"
ENDED = "the process that computed this has ended, perhaps for lack of memory; it is started again: try again"


class WorkerError(Exception):
    """A request that failed through no fault of its own: a status and a sentence."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@dataclass
class Job:
    """A request of an operation."""

    answer: asyncio.Future[bytes] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    finished: asyncio.Event = field(default_factory=asyncio.Event)  # as far as the worker is concerned
    number: int = 0  # in the worker; 0: it waits for others
    done: int = 0
    total: int = 0

    def take(self, message: Message) -> None:
        """Take what the worker says of it."""
        kind = message["type"]
        if kind == "progress":
            self.done, self.total = message["done"], message["total"]
            return
        self.finished.set()
        if self.answer.done():  # nobody waits for it any more
            return
        if kind == "done":
            self.answer.set_result(message.get("content", b""))
        else:
            status, sentence = message["status"], message["message"]
            self.answer.set_exception(UserError(sentence) if status == 400 else WorkerError(status, sentence))


@dataclass
class Queue:
    """The requests of a lane, of which one at a time is in the worker."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0
    last: Job | None = None


class StudioWorker:
    """One worker process."""

    def __init__(self, name: str, launcher: Launcher, registry: RunRegistry):
        self.name, self.launcher = name, launcher
        paths = [str(path) for path in registry.paths]
        self.settings = {"name": name, "paths": paths, "data_root": str(registry.data_root)}
        self.queues = {lane: Queue() for lane, worker in WORKER_OF_LANE.items() if worker == name}
        self.jobs: dict[int, Job] = {}
        self.restarts = 0
        self._count = 0
        self._closing = False
        self._starting = asyncio.Lock()
        self._process: Launched | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def compute(self, job: Job, operation: str, body: Body) -> bytes:
        """The answer of an operation, when those before it in its lane have been given theirs."""
        lane = OPERATIONS[operation].lane
        queue = self.queues[lane]
        if queue.count >= MAX_WAITING:
            raise WorkerError(503, BUSY)
        queue.count += 1
        try:
            async with queue.lock:
                if queue.last is not None:  # a cancelled one may still be computed
                    await queue.last.finished.wait()
                process = await self.start()
                queue.last = job
                self._send(process, job, operation, body)
                try:
                    return await job.answer
                except asyncio.CancelledError:
                    process.writer.write(pack({"cancel": job.number}))
                    if lane == self.name:  # it runs a model, which may take for ever
                        self._spawn(self._insist(process, job))
                    raise
        finally:
            queue.count -= 1

    def _send(self, process: Launched, job: Job, operation: str, body: Body) -> None:
        self._count += 1
        job.number = self._count
        self.jobs[job.number] = job
        content = {"content": body["content"]} if "content" in body else {}
        body = {name: value for name, value in body.items() if name != "content"}
        process.writer.write(pack({"id": job.number, "op": operation, "body": body, **content}))

    async def _insist(self, process: Launched, job: Job) -> None:
        """Kill a worker that does not stop computing what was cancelled."""
        try:
            async with asyncio.timeout(OBEY_SECONDS):
                await job.finished.wait()
        except TimeoutError:
            process.kill()

    async def start(self) -> Launched:
        """The process, which is started unless it runs; what is sent to it waits until it has imported torch."""
        async with self._starting:
            if self._process is None:
                try:
                    self._process = await self.launcher.launch()
                except OSError as error:
                    raise WorkerError(503, f"no process can be started ({error.strerror}); try again") from None
                self._process.writer.write(pack(self.settings))
                self._spawn(self._follow(self._process))
            return self._process

    def preload(self) -> None:
        if not self._closing:
            self._spawn(self._preload())

    async def _preload(self) -> None:
        with suppress(WorkerError):  # who asks for something is told
            await self.start()

    async def _follow(self, process: Launched) -> None:
        """Take what the worker says until it ends; one that has worked is started again."""
        worked, reason = False, ENDED
        while (message := await receive(process.reader)) is not None:
            worked = "failed" not in message
            reason = message.get("failed", reason)
            if (job := self.jobs.get(message.get("id", 0))) is not None:
                job.take(message)
                if job.finished.is_set():
                    del self.jobs[job.number]
        self._process = None
        for job in self.jobs.values():
            job.take({"type": "error", "status": 503, "message": reason})
        self.jobs.clear()
        await process.close()
        if worked and not self._closing:
            self.restarts += 1
            log.warning("a worker of the studio ended; it is started again")
            self.preload()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def describe(self) -> dict[str, Any]:
        """What the worker says of itself: its process, what it computes, its loaded models and its memory."""
        summary = {"name": self.name, "restarts": self.restarts}
        if self._process is None:
            return {**summary, "state": "not started"}
        job = Job()
        self._send(self._process, job, "status", {})
        try:
            async with asyncio.timeout(STATUS_SECONDS):
                return {**summary, "state": "ready", **json.loads(await job.answer)}
        except TimeoutError:  # it imports torch, or a library does not let its other threads run
            return {**summary, "state": "no answer"}

    async def stop(self) -> None:
        self._closing = True
        async with self._starting:
            if self._process is not None:
                self._process.kill()  # it has nothing to finish, and may be importing torch
        await asyncio.gather(*self._tasks, return_exceptions=True)


class WorkerPool:
    """The workers of the studio: one for what takes an instant, one for what may take minutes."""

    def __init__(self, registry: RunRegistry):
        launcher = Launcher("headwise.studio.worker", list_options())
        names = dict.fromkeys(WORKER_OF_LANE.values())
        self.workers = {name: StudioWorker(name, launcher, registry) for name in names}
        self.progress: dict[str, Job] = {}  # by the identifiers that pages have chosen

    async def call(self, operation: str, body: Body, progress: str = "") -> bytes:
        """The answer of an operation. It is cancelled with the task that awaits it, as when a page has gone."""
        job = Job()
        if progress:
            self.progress[progress] = job
        try:
            async with asyncio.timeout(MAX_SECONDS):
                return await self.workers[WORKER_OF_LANE[OPERATIONS[operation].lane]].compute(job, operation, body)
        except TimeoutError:
            raise WorkerError(503, f"this took longer than {MAX_SECONDS:.0f} seconds; ask for less") from None
        finally:
            if self.progress.get(progress) is job:
                del self.progress[progress]

    def get_progress(self, progress: str) -> dict[str, Any]:
        """How far a request is; `total` is 0 where nobody knows it."""
        job = self.progress.get(progress)
        if job is None:
            return {"state": "unknown", "done": 0, "total": 0}
        return {"state": "running" if job.number else "waiting", "done": job.done, "total": job.total}

    async def describe(self) -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(worker.describe() for worker in self.workers.values())))

    async def start(self) -> None:
        """Start the worker that lists the runs, which a page asks first."""
        await self.workers["short"].start()

    def preload(self) -> None:
        """Start all workers before they are needed, while the user is still typing."""
        for worker in self.workers.values():
            worker.preload()

    async def stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self.workers.values()))
