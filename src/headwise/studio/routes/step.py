"""Routes for decoding step by step and for the tree of a beam search."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from headwise.studio.limits import MAX_TOKENS
from headwise.studio.routes.values import BINARY, JSON, Name, ProgressId, RequestBody, Text
from headwise.studio.worker_pool import WorkerPool

Tokens = Annotated[list[int], Field(max_length=MAX_TOKENS)]


class StepRequest(RequestBody):
    """A text, and the output tokens chosen so far."""

    run: Name
    text: Text = ""
    tokens: Tokens = Field(default=[])


class BeamRequest(RequestBody):
    """A text to decode with beam search."""

    run: Name
    text: Text = ""
    beams: int = Field(4, ge=2, le=16)
    longest: int = Field(32, ge=1, le=128)


def routes(pool: WorkerPool) -> APIRouter:
    router = APIRouter(prefix="/api/step")

    @router.post("")
    async def step(request: StepRequest) -> Response:
        return Response(await pool.call("step", request.model_dump()), media_type=BINARY)

    @router.post("/beams")
    async def beams(request: BeamRequest, progress: ProgressId = "") -> Response:
        return Response(await pool.call("beams", request.model_dump(), progress), media_type=JSON)

    return router
