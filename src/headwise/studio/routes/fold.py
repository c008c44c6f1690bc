"""Routes for the structure, the maps and the attention of a folded chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from headwise.studio.limits import MAX_ALIGNMENT_CHARACTERS
from headwise.studio.map_cache import MapCache
from headwise.studio.model_pool import ModelPool
from headwise.studio.routes.values import BINARY, Name, RequestBody

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.inspect.fold_inspection import FoldInspection

MAX_ENTRIES = 3  # maps of triangle attention are large


class FoldRequest(RequestBody):
    """An alignment or a sequence; if there is none, a test chain, counted from 0."""

    run: Name
    alignment: str = Field("", max_length=MAX_ALIGNMENT_CHARACTERS)
    chain: int = Field(0, ge=0, le=100_000)


def routes(pool: ModelPool) -> APIRouter:
    router = APIRouter(prefix="/api/fold")
    cache: MapCache[FoldInspection] = MapCache(MAX_ENTRIES)

    @router.post("")
    async def fold(request: FoldRequest) -> Response:
        def work(trained: TrainedModel) -> bytes:
            from headwise.studio.folding import count_bytes, fold_chain, pack_chain

            inspection = fold_chain(trained, request.alignment, request.chain)
            name = cache.add(inspection, count_bytes(inspection))
            return pack_chain(inspection, {"name": name, "run": request.run})

        content, _ = await pool.run_with_model(request.run, work)
        return Response(content, media_type=BINARY)

    @router.get("/{name}/page")
    async def page(name: Name, title: Annotated[str, Query(max_length=300)] = "") -> Response:
        from headwise.inspect.fold_page import render_page

        return Response(await pool.run(lambda: render_page(cache[name], title)), media_type=BINARY)

    @router.get("/{name}/pdb")
    async def pdb(name: Name) -> Response:
        from headwise.proteins.readers.pdb_writer import format_pdb

        return Response(await pool.run(lambda: format_pdb(*cache[name].folded)), media_type=BINARY)

    @router.get("/{name}/{kind}/{layer}")
    async def attention(
        name: Name, kind: Name, layer: int, line: Annotated[int, Query(ge=-1, le=100_000)] = -1
    ) -> Response:
        from headwise.studio.folding import pack_attention

        return Response(await pool.run(lambda: pack_attention(cache[name], kind, layer, line)), media_type=BINARY)

    return router
