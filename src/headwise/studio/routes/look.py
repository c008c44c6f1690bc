"""Routes for the attention maps of a text."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from headwise.studio.routes.values import BINARY, Name, ProgressId, RequestBody, Text
from headwise.studio.worker_pool import WorkerPool


class LookRequest(RequestBody):
    """A text, and the layer shown first: by default the last one of the main kind of attention."""

    run: Name
    text: Text
    target: Text = ""
    kind: str = Field("", max_length=200)
    layer: int = Field(-1, ge=-1, le=100_000)


def routes(pool: WorkerPool) -> APIRouter:
    router = APIRouter(prefix="/api/look")

    @router.post("")
    async def look(request: LookRequest, progress: ProgressId = "") -> Response:
        return Response(await pool.call("look", request.model_dump(), progress), media_type=BINARY)

    @router.get("/{name}/page")
    async def look_page(name: Name, title: Annotated[str, Query(max_length=300)] = "") -> Response:
        return Response(await pool.call("look-page", {"name": name, "title": title}), media_type=BINARY)

    @router.get("/{name}/{kind}/{number}")
    async def look_layer(name: Name, kind: Name, number: int, exact: Annotated[bool, Query()] = False) -> Response:
        body = {"name": name, "kind": kind, "layer": number, "exact": exact}
        return Response(await pool.call("layer", body), media_type=BINARY)

    return router
