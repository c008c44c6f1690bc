"""The service on a cluster of Ray (extra `ray`): `serve run headwise.serve.ray:app runs=/srv/demo max_replicas=8`.

Replicas hold the models, each with the worker processes of `headwise serve`, and are added and removed by the number of
requests that wait. Fronts, one for each node, check keys and sizes and pass requests on. When a replica is lost, with
its node or alone, requests whose answer has not begun are sent to another one; a stream that has begun ends with an
event that has an error, since its client has half of the answer.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from headwise.errors import UserError
from headwise.serve.errors import format_error
from headwise.serve.limits import ServeLimits
from headwise.serve.routing import Answer, encode_event
from headwise.web.guard import Address, Guard, Message, Receive, Rules, Scope, Send
from headwise.web.protocol import BODY_SECONDS

log = logging.getLogger(__name__)
ATTEMPTS = 5  # replicas that a request may be sent to, as they are lost
PAUSE = 0.5  # seconds between two of them, and longer each time
LOST, FULL, FAILED = "a replica was lost", "all replicas are full", "a replica failed"


class IncompleteAnswer(Exception):
    """An answer of a replica ended in the middle."""


class Settings(BaseModel):
    """The arguments of the application, as `headwise serve` has them."""

    model_config = ConfigDict(extra="forbid")

    runs: str = Field(description="runs as in `headwise serve`, separated by commas")
    key_file: str = ""  # on the nodes of the fronts; else HEADWISE_API_KEY of their environment
    no_key: bool = False
    languages: str = ""
    engine: Literal["native", "int8", "ctranslate2", "onnx"] = "native"
    threads: int = 1
    queue: int = Field(128, ge=1)
    rows: int = Field(32, ge=1)
    max_tokens: int = Field(1024, ge=1)
    timeout: float = Field(300.0, gt=0)
    min_replicas: int = Field(1, ge=1)
    max_replicas: int = Field(4, ge=1)
    fronts: int = Field(1, ge=1)

    @property
    def limits(self) -> ServeLimits:
        return ServeLimits(self.queue, self.rows, self.max_tokens, self.timeout)


class Replica:
    """The models, and the service over them."""

    async def __init__(self, settings: Settings):  # type: ignore[misc]  # awaited by Ray
        from headwise.serve.naming import parse_specs
        from headwise.serve.pool import ModelPool
        from headwise.serve.server import build_service

        languages = [word for word in settings.languages.split(",") if word]
        specs = parse_specs(
            settings.runs.split(","), languages, settings.engine, "best", "auto", settings.threads, None
        )
        self.pool = ModelPool(specs, settings.limits, spare=False)
        await self.pool.start()
        self.service = build_service(self.pool, settings.limits)

    async def answer(self, request: Message) -> AsyncIterator[Message]:
        """The ASGI messages of the answer; given up when the caller goes."""
        messages: asyncio.Queue[Message | None] = asyncio.Queue()
        given = [{"type": "http.request", "body": request["body"], "more_body": False}]

        async def receive() -> Message:
            if not given:
                await asyncio.Event().wait()  # until the task is cancelled
            return given.pop()

        async def run() -> None:
            try:
                await self.service({**request["scope"], "type": "http"}, receive, messages.put)
            finally:
                messages.put_nowait(None)

        task = asyncio.create_task(run())
        try:
            while (message := await messages.get()) is not None:
                yield message
            await task
        finally:
            task.cancel()


class Front:
    """The ingress: everything that comes before a model."""

    def __init__(self, settings: Settings, replicas: Any):
        from headwise.serve.health import OPEN_PATHS
        from headwise.serve.libretranslate import ROUTES as LIBRE
        from headwise.serve.limits import MAX_JSON_BYTES
        from headwise.serve.openai_api import ROUTES as OPENAI
        from headwise.serve.own_api import ROUTES as OWN
        from headwise.web.keys import read_keys

        sizes = {route.path: route.max_bytes for route in (*LIBRE, *OPENAI, *OWN)}
        keys = read_keys(Path(settings.key_file) if settings.key_file else None)
        if not keys and not settings.no_key:
            raise UserError(
                "headwise.serve.ray: other machines reach it; set HEADWISE_API_KEY where fronts run, give key_file, "
                "or no_key=true"
            )
        address = Address("0.0.0.0", 8000, keys, names=() if keys else ("*",), public=True)
        rules = Rules(OPEN_PATHS, lambda path: sizes.get(path, MAX_JSON_BYTES), format_error)
        self.guard = Guard(self.forward, address, rules)
        self.replicas = replicas.options(stream=True)

    async def __call__(self, request: Any) -> Any:
        from starlette.responses import Response

        class Guarded(Response):
            async def __call__(response, scope: Scope, receive: Receive, send: Send) -> None:
                await self.guard(scope, receive, send)

        return Guarded()

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a request to a replica, and its answer to the client."""
        path = scope["path"]
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await read_body(receive)
        except TimeoutError:
            await self._refuse(path, 408, f"the body did not come within {BODY_SECONDS:.0f} seconds", send)
            return
        if body is None:
            return
        taken = {name: scope[name] for name in ("method", "path", "query_string", "headers")}
        request = {"scope": {**taken, "headers": [tuple(pair) for pair in taken["headers"]]}, "body": body}
        for attempt in range(ATTEMPTS):
            begun: list[Message] = []
            try:
                await self._pass_on(request, send, begun)
                return
            except Exception as error:
                reason = classify_failure(error)
                log.warning("%s: %s", reason, type(error).__name__)
                if begun:
                    await break_off(path, begun[0], send)
                    return
                if reason == FAILED:
                    await self._refuse(path, 500, "the server failed; its log says why", send)
                    return
                if reason == FULL:
                    break
                await asyncio.sleep(PAUSE * attempt)
        await self._refuse(path, 503, "no replica has a place for this request; try again", send)

    async def _refuse(self, path: str, status: int, message: str, send: Send) -> None:
        headers = (("retry-after", "5"),) if status == 503 else ()
        await Answer(format_error(path, status, message), status, headers=headers).send(path, send)

    async def _pass_on(self, request: Message, send: Send, begun: list[Message]) -> None:
        """`begun` gets the start of an answer as soon as a part of it goes to the client: that of a stream with its
        first event, that of another one when it is complete."""
        whole: list[Message] = []
        complete = False
        async for message in self.replicas.answer.remote(request):
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            if begun:
                await send(message)
                continue
            whole.append(message)
            if message["type"] == "http.response.body":
                begun.append(whole[0])
                for each in whole:
                    await send(each)
        if not complete:  # of a node that is killed, a stream may just end
            raise IncompleteAnswer


def classify_failure(error: Exception) -> str:
    """Whether a replica was lost, there is no place, or something failed that would fail again."""
    from ray.exceptions import RayError, RayTaskError
    from ray.serve.exceptions import BackPressureError, RayServeException

    if isinstance(error, BackPressureError):
        return FULL
    lost = isinstance(error, RayError | RayServeException | IncompleteAnswer) and not isinstance(error, RayTaskError)
    if not lost:
        log.error("%s", "".join(traceback.format_exception(error)))
    return LOST if lost else FAILED


async def read_body(receive: Receive) -> bytes | None:
    """None if the client has gone."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


async def break_off(path: str, start: Message, send: Send) -> None:
    """End a stream whose replica is lost."""
    if dict(start["headers"]).get(b"content-type", b"").startswith(b"text/event-stream"):
        error = format_error(path, 503, "the node that computed this answer was lost; send the request again")
        with suppress(OSError):
            await send({"type": "http.response.body", "body": encode_event(error), "more_body": False})


def app(settings: Settings) -> Any:
    """The application, for `serve run` and `serve.run`."""
    from headwise.utils.extras import needed_for

    with needed_for("headwise.serve.ray"):
        from ray import serve

    limits = settings.limits
    scaling = {
        "min_replicas": settings.min_replicas,
        "max_replicas": max(settings.min_replicas, settings.max_replicas),
        "target_ongoing_requests": settings.rows,
    }
    replicas = serve.deployment(
        name="headwise-models",
        max_ongoing_requests=limits.queue + limits.rows,
        max_queued_requests=limits.queue,
        autoscaling_config=scaling,
        max_replicas_per_node=1,
        health_check_period_s=5,
        ray_actor_options={"num_cpus": settings.threads},
    )(Replica)
    front = serve.deployment(
        name="headwise", num_replicas=settings.fronts, max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 0}
    )(Front)
    return front.bind(settings, replicas.bind(settings))
