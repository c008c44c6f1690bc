"""Routes for the attention maps of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from headwise.inference.maps import Maps
from headwise.studio.map_cache import MapCache, collect_maps, count_bytes, pack_layer, pack_overview
from headwise.studio.model_pool import ModelPool
from headwise.studio.routes.values import BINARY, Name, RequestBody, Text
from headwise.studio.texts import get_input_tokeniser, report_unknown

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel


class LookRequest(RequestBody):
    """A text, and the layer shown first: by default the last one of the main kind of attention."""

    run: Name
    text: Text
    target: Text = ""
    kind: str = Field("", max_length=200)
    layer: int = Field(-1, ge=-1, le=100_000)


def routes(pool: ModelPool) -> APIRouter:
    router, cache = APIRouter(prefix="/api/look"), MapCache[Maps]()

    @router.post("")
    async def look(request: LookRequest) -> Response:
        def work(trained: TrainedModel) -> tuple[Maps, str]:
            return collect_maps(trained, request.text, request.target), report_unknown(
                get_input_tokeniser(trained), request.text
            )

        (maps, note), milliseconds = await pool.run_with_model(request.run, work)
        details = {"run": request.run, "milliseconds": round(milliseconds, 1), "note": note}
        name = cache.add(maps, count_bytes(maps))
        content = await pool.run(lambda: pack_overview(name, maps, details, request.kind, request.layer))
        return Response(content, media_type=BINARY)

    @router.get("/{name}/page")
    async def look_page(name: Name, title: Annotated[str, Query(max_length=300)] = "") -> Response:
        from headwise.inspect.page import render_page

        return Response(await pool.run(lambda: render_page(cache[name], title)), media_type=BINARY)

    @router.get("/{name}/{kind}/{number}")
    async def look_layer(name: Name, kind: Name, number: int, exact: Annotated[bool, Query()] = False) -> Response:
        return Response(await pool.run(lambda: pack_layer(cache[name], kind, number, exact)), media_type=BINARY)

    return router
