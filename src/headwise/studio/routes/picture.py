"""Routes for the attention maps of an image."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Response

from headwise.studio.routes.values import BINARY, Name, ProgressId
from headwise.studio.worker_pool import WorkerPool

Image = Annotated[bytes, Body(media_type=BINARY)]
GridIndex = Annotated[int, Query(ge=-1, le=10_000)]


def routes(pool: WorkerPool) -> APIRouter:
    router = APIRouter(prefix="/api/picture")

    @router.post("")
    async def picture(run: Name, content: Image, progress: ProgressId = "") -> Response:
        return Response(await pool.call("picture", {"run": run, "content": content}, progress), media_type=BINARY)

    @router.post("/page")
    async def paged(run: Name, content: Image) -> Response:
        return Response(await pool.call("picture-page", {"run": run, "content": content}), media_type=BINARY)

    @router.get("/{name}/{number}")
    async def heat(
        name: Name, number: int, row: GridIndex = -1, column: GridIndex = -1, query: GridIndex = -1
    ) -> Response:
        body = {"name": name, "layer": number, "row": row, "column": column, "query": query}
        return Response(await pool.call("picture-map", body), media_type=BINARY)

    return router
