"""Decoding step by step, and a beam search as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field

from headwise.studio.limits import MOST_TOKENS
from headwise.studio.model_pool import Desk
from headwise.studio.routes.values import BINARY, Name, Request, Text

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.studio.binary_response import Pack

Tokens = Annotated[list[int], Field(max_length=MOST_TOKENS)]


class StepRequest(Request):
    """A text, and the tokens that were written after it."""

    run: Name
    text: Text = ""
    tokens: Tokens = Field(default=[])


class BeamRequest(Request):
    """A text to search the best output of."""

    run: Name
    text: Text = ""
    beams: int = Field(4, ge=2, le=16)
    longest: int = Field(32, ge=1, le=128)


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api/step")

    @router.post("")
    async def step(request: StepRequest) -> Response:
        def work(loaded: TrainedModel) -> tuple[Pack, dict[str, Any]]:
            from headwise.studio.decoding import stepped

            return stepped(loaded, request.text, request.tokens)

        (pack, found), spent = await desk.work(request.run, work)
        return Response(pack.bytes({"milliseconds": round(spent, 1), **found}), media_type=BINARY)

    @router.post("/beams")
    async def beams(request: BeamRequest) -> dict[str, Any]:
        def work(loaded: TrainedModel) -> dict[str, Any]:
            from headwise.studio.decoding import searched

            return searched(loaded, request.text, request.beams, request.longest)

        found, spent = await desk.work(request.run, work)
        return {"milliseconds": round(spent, 1), **found}

    return router
