"""Routes for the attention maps of an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Body, Query, Response

from headwise.studio.map_cache import MapCache
from headwise.studio.model_pool import ModelPool
from headwise.studio.routes.values import BINARY, Name

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.studio.pictures import ImageMaps

MAX_ENTRIES = 3  # maps of many windows are large
Image = Annotated[bytes, Body(media_type=BINARY)]
GridIndex = Annotated[int, Query(ge=-1, le=10_000)]


def routes(pool: ModelPool) -> APIRouter:
    router = APIRouter(prefix="/api/picture")
    cache: MapCache[ImageMaps] = MapCache(MAX_ENTRIES)

    @router.post("")
    async def picture(run: Name, content: Image) -> Response:
        def work(trained: TrainedModel) -> bytes:
            from headwise.studio.pictures import inspect_image

            maps, details, response = inspect_image(trained, content)
            return response.to_bytes({"name": cache.add(maps), "run": run, **details})

        content_bytes, _ = await pool.run_with_model(run, work)
        return Response(content_bytes, media_type=BINARY)

    @router.post("/page")
    async def paged(run: Name, content: Image) -> Response:
        def work(trained: TrainedModel) -> str:
            from headwise.studio.pictures import render_page

            return render_page(trained, content, run)

        content_bytes, _ = await pool.run_with_model(run, work)
        return Response(content_bytes, media_type=BINARY)

    @router.get("/{name}/{number}")
    async def heat(
        name: Name, number: int, row: GridIndex = -1, column: GridIndex = -1, query: GridIndex = -1
    ) -> Response:
        content_bytes = await pool.run(lambda: cache[name].pack_map(number, row, column, query))
        return Response(content_bytes, media_type=BINARY)

    return router
