"""Hiding tokens and silencing heads, how much each matters, and the logit lens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from headwise.loaded import Loaded
from headwise.studio.desk import Desk
from headwise.studio.intervening import MOST, Case, Changes, effects, intervened, lens, token_effects
from headwise.studio.routes.values import Name, Request, Text

Number = Annotated[int, Field(ge=0, le=100_000)]
FEW = 1000


class CaseRequest(Request):
    """A text and what follows it, as text or as tokens; without either, what the model writes."""

    run: Name
    text: Text = ""
    target: Text = ""
    ids: list[int] = Field(default=[], max_length=MOST)

    def case(self, loaded: Loaded) -> Case:
        return Case(loaded, self.text, self.target, self.ids)


class ChangesRequest(CaseRequest):
    """The same with changes: tokens that are hidden, heads and whole layers of attention that are silent."""

    hidden: list[Number] = Field(default=[], max_length=FEW)
    heads: list[tuple[Name, Number, Number]] = Field(default=[], max_length=FEW)
    layers: list[tuple[Name, Number]] = Field(default=[], max_length=FEW)

    @property
    def changes(self) -> Changes:
        return Changes(self.hidden, self.heads, self.layers)


class LayerRequest(CaseRequest):
    """The same, and a layer of which each head is silenced in turn."""

    kind: Name
    layer: Number


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api/intervene")

    async def answer(request: CaseRequest, task: Callable[[Case], dict[str, Any]]) -> dict[str, Any]:
        found, spent = await desk.work(request.run, lambda loaded: task(request.case(loaded)))
        return {"milliseconds": round(spent, 1), **found}

    @router.post("")
    async def changed(request: ChangesRequest) -> dict[str, Any]:
        return await answer(request, lambda case: intervened(case, request.changes))

    @router.post("/heads")
    async def heads(request: LayerRequest) -> dict[str, Any]:
        return await answer(request, lambda case: effects(case, request.kind, request.layer))

    @router.post("/tokens")
    async def tokens(request: CaseRequest) -> dict[str, Any]:
        return await answer(request, token_effects)

    @router.post("/lens")
    async def lens_of(request: CaseRequest) -> dict[str, Any]:
        return await answer(request, lens)

    return router
