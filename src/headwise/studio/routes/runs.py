"""Routes for runs: list, state, metrics, samples, differences of settings, and tables of `headwise compare`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from headwise.studio.routes.values import JSON, Name, RequestBody
from headwise.studio.worker_pool import WorkerPool

MAX_RUNS = 50  # in one request
RowCount = Annotated[int, Field(ge=0, le=2**53)]


class RowsOfRun(RequestBody):
    """A run of which the page already has `since` rows, the last one of this step."""

    run: Name
    since: RowCount = 0
    step: RowCount = 0


class RowsRequest(RequestBody):
    """Runs whose new rows of metrics are requested."""

    runs: list[RowsOfRun] = Field(max_length=MAX_RUNS)


class SamplesRequest(RequestBody):
    """A run whose samples are requested."""

    run: Name


class DifferencesRequest(RequestBody):
    """Runs whose settings are compared."""

    runs: list[Name] = Field(max_length=MAX_RUNS)


def routes(pool: WorkerPool) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/runs")
    async def runs() -> Response:
        return Response(await pool.call("runs", {}), media_type=JSON)

    @router.get("/runs/histories")
    async def histories() -> Response:
        return Response(await pool.call("histories", {}), media_type=JSON)

    @router.post("/runs/rows")
    async def since(request: RowsRequest) -> Response:
        return Response(await pool.call("rows", request.model_dump()), media_type=JSON)

    @router.post("/runs/samples")
    async def sampled(request: SamplesRequest) -> Response:
        return Response(await pool.call("samples", request.model_dump()), media_type=JSON)

    @router.post("/runs/differences")
    async def differing(request: DifferencesRequest) -> Response:
        return Response(await pool.call("differences", request.model_dump()), media_type=JSON)

    @router.get("/comparisons")
    async def comparisons() -> Response:
        return Response(await pool.call("tables", {}), media_type=JSON)

    @router.get("/comparisons/{name}")
    async def comparison(name: Name, score: Annotated[str, Query(max_length=200)] = "") -> Response:
        return Response(await pool.call("table", {"name": name, "score": score}), media_type=JSON)

    return router
