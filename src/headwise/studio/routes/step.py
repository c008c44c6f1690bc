"""Routes for decoding step by step and for the tree of a beam search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field

from headwise.studio.limits import MAX_TOKENS
from headwise.studio.model_pool import ModelPool
from headwise.studio.routes.values import BINARY, Name, RequestBody, Text

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.studio.binary_response import BinaryResponse

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


def routes(pool: ModelPool) -> APIRouter:
    router = APIRouter(prefix="/api/step")

    @router.post("")
    async def step(request: StepRequest) -> Response:
        def work(trained: TrainedModel) -> tuple[BinaryResponse, dict[str, Any]]:
            from headwise.studio.decoding import decode_step

            return decode_step(trained, request.text, request.tokens)

        (response, details), milliseconds = await pool.run_with_model(request.run, work)
        return Response(response.to_bytes({"milliseconds": round(milliseconds, 1), **details}), media_type=BINARY)

    @router.post("/beams")
    async def beams(request: BeamRequest) -> dict[str, Any]:
        def work(trained: TrainedModel) -> dict[str, Any]:
            from headwise.studio.decoding import search_beams

            return search_beams(trained, request.text, request.beams, request.longest)

        result, milliseconds = await pool.run_with_model(request.run, work)
        return {"milliseconds": round(milliseconds, 1), **result}

    return router
