"""One text through a model: the attention of every head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from headwise.inference.maps import Maps
from headwise.studio.map_cache import Looks, collect_maps, layer, overview, size_of
from headwise.studio.model_pool import Desk
from headwise.studio.routes.values import BINARY, Name, Request, Text
from headwise.studio.texts import reads, remark

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel


class LookRequest(Request):
    """A text to look at, and what is to be shown of it first: by default the last layer of the main kind."""

    run: Name
    text: Text
    target: Text = ""
    kind: str = Field("", max_length=200)
    layer: int = Field(-1, ge=-1, le=100_000)


def routes(desk: Desk) -> APIRouter:
    router, looks = APIRouter(prefix="/api/look"), Looks[Maps]()

    @router.post("")
    async def look(request: LookRequest) -> Response:
        def work(loaded: TrainedModel) -> tuple[Maps, str]:
            return collect_maps(loaded, request.text, request.target), remark(reads(loaded), request.text)

        (maps, says), spent = await desk.work(request.run, work)
        about = {"run": request.run, "milliseconds": round(spent, 1), "remark": says}
        name = looks.keep(maps, size_of(maps))
        made = await desk.aside(lambda: overview(name, maps, about, request.kind, request.layer))
        return Response(made, media_type=BINARY)

    @router.get("/{name}/page")
    async def look_page(name: Name, title: Annotated[str, Query(max_length=300)] = "") -> Response:
        from headwise.inspect.page import page

        return Response(await desk.aside(lambda: page(looks[name], title)), media_type=BINARY)

    @router.get("/{name}/{kind}/{number}")
    async def look_layer(name: Name, kind: Name, number: int, exact: Annotated[bool, Query()] = False) -> Response:
        return Response(await desk.aside(lambda: layer(looks[name], kind, number, exact)), media_type=BINARY)

    return router
