"""Routes for the structure, the maps and the attention of a folded chain."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from headwise.studio.limits import MAX_ALIGNMENT_CHARACTERS
from headwise.studio.routes.values import BINARY, Name, ProgressId, RequestBody
from headwise.studio.worker_pool import WorkerPool


class FoldRequest(RequestBody):
    """An alignment or a sequence; if there is none, a test chain, counted from 0."""

    run: Name
    alignment: str = Field("", max_length=MAX_ALIGNMENT_CHARACTERS)
    chain: int = Field(0, ge=0, le=100_000)


def routes(pool: WorkerPool) -> APIRouter:
    router = APIRouter(prefix="/api/fold")

    @router.post("")
    async def fold(request: FoldRequest, progress: ProgressId = "") -> Response:
        return Response(await pool.call("fold", request.model_dump(), progress), media_type=BINARY)

    @router.get("/{name}/page")
    async def page(name: Name, title: Annotated[str, Query(max_length=300)] = "") -> Response:
        return Response(await pool.call("fold-page", {"name": name, "title": title}), media_type=BINARY)

    @router.get("/{name}/pdb")
    async def pdb(name: Name) -> Response:
        return Response(await pool.call("fold-pdb", {"name": name}), media_type=BINARY)

    @router.get("/{name}/{kind}/{layer}")
    async def attention(
        name: Name, kind: Name, layer: int, line: Annotated[int, Query(ge=-1, le=100_000)] = -1
    ) -> Response:
        body = {"name": name, "kind": kind, "layer": layer, "line": line}
        return Response(await pool.call("fold-attention", body), media_type=BINARY)

    return router
