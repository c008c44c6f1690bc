"""Which runs there are, how they went, and what comparisons of them came to."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from headwise.errors import UserError
from headwise.runs.differences import differences
from headwise.studio.model_pool import Desk
from headwise.studio.routes.values import Name, Request
from headwise.studio.run_history import history, rows, samples

MOST_RUNS = 50  # in one request
Counted = Annotated[int, Field(ge=0, le=2**53)]


class Since(Request):
    """A run of which some rows are known: how many, and the step of the last."""

    run: Name
    since: Counted = 0
    step: Counted = 0


class RowsRequest(Request):
    """Curves to go on with."""

    runs: list[Since] = Field(max_length=MOST_RUNS)


class SamplesRequest(Request):
    """A run to read from."""

    run: Name


class DifferencesRequest(Request):
    """Runs to tell apart."""

    runs: list[Name] = Field(max_length=MOST_RUNS)


def routes(desk: Desk) -> APIRouter:
    router, shelf = APIRouter(prefix="/api"), desk.shelf

    @router.get("/runs")
    async def runs() -> list[dict[str, Any]]:
        return await desk.aside(lambda: [item.to_dict() for item in shelf.items().values()])

    @router.get("/runs/histories")
    async def histories() -> list[dict[str, Any]]:
        return await desk.aside(lambda: [history(item) for item in shelf.items().values()])

    @router.post("/runs/rows")
    async def since(request: RowsRequest) -> list[dict[str, Any]]:
        return await desk.aside(lambda: [rows(shelf[each.run], each.since, each.step) for each in request.runs])

    @router.post("/runs/samples")
    async def sampled(request: SamplesRequest) -> list[dict[str, Any]]:
        return await desk.aside(lambda: samples(shelf[request.run]))

    @router.post("/runs/differences")
    async def differing(request: DifferencesRequest) -> dict[str, Any]:
        return await desk.aside(lambda: _differing(desk, request.runs))

    @router.get("/comparisons")
    async def comparisons() -> list[str]:
        return await desk.aside(lambda: sorted(comparing().tables(shelf.paths)))

    @router.get("/comparisons/{name}")
    async def comparison(name: Name, score: Annotated[str, Query(max_length=200)] = "") -> dict[str, Any]:
        return await desk.aside(lambda: comparing().table(shelf.paths, name, score))

    return router


def comparing() -> ModuleType:
    """Tables need the configs of all models, which the first page does not."""
    return import_module("headwise.studio.comparing")


def _differing(desk: Desk, names: list[str]) -> dict[str, Any]:
    found = [desk.shelf[name].run for name in names]
    if None in found:
        raise UserError("a folder of another library has no settings to compare; choose runs")
    settings = differences([run.config for run in found if run is not None])
    shown = {key: [None if value is None else str(value) for value in values] for key, values in settings.items()}
    return {"runs": names, "settings": shown}
