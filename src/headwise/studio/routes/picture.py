"""One image through a model that reads images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Body, Query, Response

from headwise.studio.map_cache import Looks
from headwise.studio.model_pool import Desk
from headwise.studio.routes.values import BINARY, Name

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.studio.pictures import Picture

KEPT = 3  # looks: those of many windows are large
Image = Annotated[bytes, Body(media_type=BINARY)]
Place = Annotated[int, Query(ge=-1, le=10_000)]


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api/picture")
    looks: Looks[Picture] = Looks(KEPT)

    @router.post("")
    async def picture(run: Name, content: Image) -> Response:
        def work(loaded: TrainedModel) -> bytes:
            from headwise.studio.pictures import pictured

            found, about, pack = pictured(loaded, content)
            return pack.bytes({"look": looks.keep(found), "run": run, **about})

        made, _ = await desk.work(run, work)
        return Response(made, media_type=BINARY)

    @router.post("/page")
    async def paged(run: Name, content: Image) -> Response:
        def work(loaded: TrainedModel) -> str:
            from headwise.studio.pictures import paged

            return paged(loaded, content, run)

        made, _ = await desk.work(run, work)
        return Response(made, media_type=BINARY)

    @router.get("/{name}/{number}")
    async def heat(name: Name, number: int, row: Place = -1, column: Place = -1, query: Place = -1) -> Response:
        made = await desk.aside(lambda: looks[name].heat(number, row, column, query))
        return Response(made, media_type=BINARY)

    return router
