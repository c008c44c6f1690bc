"""Routes for ablation (hide tokens, ablate heads and layers) and the logit lens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from headwise.studio.limits import MAX_SCORED_TOKENS
from headwise.studio.routes.values import JSON, Name, ProgressId, RequestBody, Text
from headwise.studio.worker_pool import WorkerPool

Number = Annotated[int, Field(ge=0, le=100_000)]
MAX_CHANGES = 1000


class CaseRequest(RequestBody):
    """A text and its output, as text or as token ids; without either, the output that the model generates."""

    run: Name
    text: Text = ""
    target: Text = ""
    ids: list[int] = Field(default=[], max_length=MAX_SCORED_TOKENS)


class AblationRequest(CaseRequest):
    """With ablations: tokens to hide, heads and whole attention layers to ablate."""

    hidden: list[Number] = Field(default=[], max_length=MAX_CHANGES)
    heads: list[tuple[Name, Number, Number]] = Field(default=[], max_length=MAX_CHANGES)
    layers: list[tuple[Name, Number]] = Field(default=[], max_length=MAX_CHANGES)


class LayerRequest(CaseRequest):
    """With a layer whose heads are ablated one at a time."""

    kind: Name
    layer: Number


def routes(pool: WorkerPool) -> APIRouter:
    router = APIRouter(prefix="/api/intervene")

    @router.post("")
    async def ablate(request: AblationRequest) -> Response:
        return Response(await pool.call("ablate", request.model_dump()), media_type=JSON)

    @router.post("/heads")
    async def heads(request: LayerRequest, progress: ProgressId = "") -> Response:
        return Response(await pool.call("heads", request.model_dump(), progress), media_type=JSON)

    @router.post("/tokens")
    async def tokens(request: CaseRequest, progress: ProgressId = "") -> Response:
        return Response(await pool.call("tokens", request.model_dump(), progress), media_type=JSON)

    @router.post("/lens")
    async def logit_lens(request: CaseRequest) -> Response:
        return Response(await pool.call("lens", request.model_dump()), media_type=JSON)

    return router
