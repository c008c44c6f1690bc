"""The front's side of the workers: one process for each model, restarted when it dies, with a bounded queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from headwise.config.plugins import list_options
from headwise.errors import UserError
from headwise.serve.errors import RequestError
from headwise.serve.limits import ServeLimits
from headwise.web.channel import Message, pack, receive
from headwise.web.launcher import Launched, Launcher

log = logging.getLogger(__name__)
LOAD_SECONDS = 600.0
MAX_BACKOFF = 30.0  # seconds before a worker that keeps dying is started again


@dataclass(frozen=True)
class ModelSpec:
    """A model to serve, as the command line names it."""

    name: str
    path: Path
    engine: str = "native"
    checkpoint: str = "best"
    device: str = "auto"
    threads: int = 0
    chat_template: Path | None = None
    languages: tuple[str, str] = ("source", "target")

    def to_message(self, limits: ServeLimits) -> Message:
        return {
            "name": self.name, "path": str(self.path), "engine": self.engine, "checkpoint": self.checkpoint,
            "device": self.device, "threads": self.threads, "limits": limits.to_dict(),
            "chat_template": str(self.chat_template) if self.chat_template else "",
        }  # fmt: skip


@dataclass
class Job:
    """A request in a worker, and what the worker says of it."""

    number: int
    started: float = field(default_factory=monotonic)
    messages: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    finished: bool = False

    async def next(self) -> Message:
        """The next message; a failure is raised."""
        message = await self.messages.get()
        if message["type"] == "error":
            raise RequestError(message["status"], message["message"], wait=1 if message["status"] == 503 else 0)
        return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        """All messages, the last one is `done`."""
        while True:
            message = await self.next()
            yield message
            if message["type"] == "done":
                return


class ServedModel:
    """One model: its worker process and the requests that are in it."""

    def __init__(self, spec: ModelSpec, limits: ServeLimits, launcher: Launcher):
        self.spec, self.limits, self.launcher = spec, limits, launcher
        self.info: Message = {}
        self.stats: Message = {}
        self.jobs: dict[int, Job] = {}
        self.restarts = 0
        self.failure = ""
        self.seconds_per_request = 0.0  # moving average, for Retry-After
        self.ready = asyncio.Event()
        self._worker: Launched | None = None
        self._writer: asyncio.StreamWriter | None = None  # of a worker that has loaded its model
        self._number = 0
        self._closing = False

    @property
    def is_ready(self) -> bool:
        return self.ready.is_set()

    @property
    def is_full(self) -> bool:
        return len(self.jobs) >= self.limits.queue + self.limits.rows

    @contextmanager
    def submit(self, operation: str, body: Message) -> Iterator[Job]:
        """Send a request to the worker; when the block is left it is cancelled, unless it is finished. Backpressure: of
        more requests than wait and are computed, the next is refused at once."""
        if not self.is_ready or self._writer is None:
            raise RequestError(503, f"{self.spec.name} is being loaded; try again", wait=2)
        if self.is_full:
            raise RequestError(503, f"{self.spec.name} has as many requests as it takes; try again", wait=self.wait)
        self._number += 1
        job = self.jobs[self._number] = Job(self._number)
        self._writer.write(pack({"id": job.number, "op": operation, "body": body}))
        try:
            yield job
        finally:
            self.jobs.pop(job.number, None)
            if job.finished:
                elapsed = monotonic() - job.started
                self.seconds_per_request += 0.1 * (elapsed - self.seconds_per_request)
            elif self._writer is not None:
                self._writer.write(pack({"cancel": job.number}))

    @property
    def wait(self) -> int:
        """Seconds until a place may be free: what a request took lately, at most half a minute."""
        return max(1, min(30, round(self.seconds_per_request)))

    async def run(self) -> None:
        """Keep a worker alive until the service ends."""
        backoff = 0.0
        while not self._closing:
            started = monotonic()
            try:
                await self._run_once()
            except OSError as error:
                self.failure = f"{self.spec.path}: no process can be started ({error.strerror})"
            self.ready.clear()
            self._writer = None
            self._fail_jobs()
            if self._closing or (self.failure and not self.info):
                return  # it has never worked: the command ends
            self.restarts += 1
            log.warning("%s: the worker ended; it is started again", self.spec.name)
            backoff = 0.0 if monotonic() - started > 10 else min(MAX_BACKOFF, 2 * backoff or 0.25)
            await asyncio.sleep(backoff)

    async def _run_once(self) -> None:
        worker = self._worker = await self.launcher.launch()
        try:
            worker.writer.write(pack(self.spec.to_message(self.limits)))
            async with asyncio.timeout(LOAD_SECONDS):
                first = await receive(worker.reader)
            if first is None or "failed" in first:
                self.failure = first["failed"] if first else f"{self.spec.path}: its worker ended while it was loaded"
                return
            self.failure, self.info, self._writer = "", first["ready"], worker.writer
            self.ready.set()
            await self.launcher.fill()
            while (message := await receive(worker.reader)) is not None:
                self._take(message)
        except TimeoutError:
            self.failure = f"{self.spec.path}: was not loaded within {LOAD_SECONDS:.0f} seconds"
        finally:
            self.ready.clear()
            await worker.close()

    def _take(self, message: Message) -> None:
        self.stats = message.get("stats", self.stats)
        for event in message["events"]:
            if (job := self.jobs.get(event["id"])) is not None:
                job.finished = event["type"] in ("done", "error")
                job.messages.put_nowait(event)

    def _fail_jobs(self) -> None:
        reason = "the worker of this model ended while it computed the answer; try again"
        for job in self.jobs.values():
            if not job.finished:
                job.finished = True
                job.messages.put_nowait({"type": "error", "status": 503, "message": reason})

    def close(self) -> None:
        self._closing = True
        if self._worker is not None:
            self._worker.writer.close()


class ModelPool:
    """All models by name. Names are looked up here alone: none of them ever becomes a path."""

    def __init__(self, specs: Sequence[ModelSpec], limits: ServeLimits, spare: bool = True):
        self.launcher = Launcher("headwise.serve.worker", list_options(), spare)
        self.models: Mapping[str, ServedModel] = {spec.name: ServedModel(spec, limits, self.launcher) for spec in specs}
        self.limits = limits
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the workers; raises if one of them cannot load its model."""
        self._tasks = [asyncio.create_task(model.run()) for model in self.models.values()]
        for model, task in zip(self.models.values(), self._tasks, strict=True):
            waiter = asyncio.create_task(model.ready.wait())
            await asyncio.wait({waiter, task}, return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()
            if not model.is_ready:
                raise UserError(model.failure or f"{model.spec.path}: its worker ended")

    async def stop(self) -> None:
        for model in self.models.values():
            model.close()
        await self.launcher.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def is_ready(self) -> bool:
        return all(model.is_ready for model in self.models.values())

    @property
    def is_full(self) -> bool:
        return all(model.is_full for model in self.models.values())

    def find(self, name: str, verb: str) -> ServedModel:
        """The model of this name, or without a name the first that has the verb."""
        if not name:
            found = next((model for model in self.models.values() if verb in model.info.get("verbs", ())), None)
            if found is None and not self.is_ready:
                raise RequestError(503, "a model is being loaded; try again", wait=2)
            if found is None:
                raise RequestError(404, f"no model here does {verb}; see /v1/models", "model", "model_not_found")
            return found
        model = self.models.get(name)
        if model is None:
            raise RequestError(404, "there is no such model here; see /v1/models", "model", "model_not_found")
        if not model.info:
            raise RequestError(503, f"{name} is being loaded; try again", wait=2)
        if verb not in model.info["verbs"]:
            raise RequestError(400, f"{name} does not {verb}; it does: {', '.join(model.info['verbs'])}", "model")
        return model
