"""One text through a model: the attention of every head."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from headwise.inspect.maps import Maps
from headwise.studio.desk import Desk
from headwise.studio.looks import Looks, layer, overview
from headwise.studio.routes.values import BINARY, Name, Request, Text


class LookRequest(Request):
    """A text to look at."""

    run: Name
    text: Text = Field(min_length=1)
    target: Text = ""


def routes(desk: Desk) -> APIRouter:
    router, looks = APIRouter(prefix="/api/look"), Looks[Maps]()

    @router.post("")
    async def look(request: LookRequest) -> Response:
        maps, spent = await desk.work(request.run, lambda loaded: loaded.inspect(request.text, request.target))
        about = {"run": request.run, "milliseconds": round(spent, 1)}
        return Response(overview(looks.keep(maps), maps, about), media_type=BINARY)

    @router.get("/{name}/page")
    async def look_page(name: Name, title: Annotated[str, Query(max_length=300)] = "") -> Response:
        from headwise.inspect.page import page

        return Response(await desk.aside(lambda: page(looks[name], title)), media_type=BINARY)

    @router.get("/{name}/{kind}/{number}")
    async def look_layer(name: Name, kind: Name, number: int, exact: Annotated[bool, Query()] = False) -> Response:
        return Response(layer(looks[name], kind, number, exact), media_type=BINARY)

    return router
