"""Routes for runs: list, state, metrics, samples, differences of settings, and tables of `headwise compare`."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from headwise.errors import UserError
from headwise.runs.differences import find_differences
from headwise.studio.model_pool import ModelPool
from headwise.studio.routes.values import Name, RequestBody
from headwise.studio.run_history import get_rows, get_samples, summarize

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


def routes(pool: ModelPool) -> APIRouter:
    router, registry = APIRouter(prefix="/api"), pool.registry

    @router.get("/runs")
    async def runs() -> list[dict[str, Any]]:
        return await pool.run(lambda: [item.to_dict() for item in registry.items().values()])

    @router.get("/runs/histories")
    async def histories() -> list[dict[str, Any]]:
        return await pool.run(lambda: [summarize(item) for item in registry.items().values()])

    @router.post("/runs/rows")
    async def since(request: RowsRequest) -> list[dict[str, Any]]:
        return await pool.run(lambda: [get_rows(registry[each.run], each.since, each.step) for each in request.runs])

    @router.post("/runs/samples")
    async def sampled(request: SamplesRequest) -> list[dict[str, Any]]:
        return await pool.run(lambda: get_samples(registry[request.run]))

    @router.post("/runs/differences")
    async def differing(request: DifferencesRequest) -> dict[str, Any]:
        return await pool.run(lambda: _compare_settings(pool, request.runs))

    @router.get("/comparisons")
    async def comparisons() -> list[str]:
        return await pool.run(lambda: sorted(load_comparing().find_tables(registry.paths)))

    @router.get("/comparisons/{name}")
    async def comparison(name: Name, score: Annotated[str, Query(max_length=200)] = "") -> dict[str, Any]:
        return await pool.run(lambda: load_comparing().describe_table(registry.paths, name, score))

    return router


def load_comparing() -> ModuleType:
    """Import lazily: tables need the configs of all models, which the first page does not."""
    return import_module("headwise.studio.comparing")


def _compare_settings(pool: ModelPool, names: list[str]) -> dict[str, Any]:
    runs = [pool.registry[name].run for name in names]
    if None in runs:
        raise UserError("a folder of another library has no settings to compare; choose runs")
    settings = find_differences([run.config for run in runs if run is not None])
    texts = {key: [None if value is None else str(value) for value in values] for key, values in settings.items()}
    return {"runs": names, "settings": texts}
