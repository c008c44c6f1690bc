"""Hiding tokens and silencing heads, how much each matters, and the logit lens."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from headwise.studio.limits import MOST_JUDGED
from headwise.studio.model_pool import Desk
from headwise.studio.routes.values import Name, Request, Text

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.studio.ablation import Case

Number = Annotated[int, Field(ge=0, le=100_000)]
FEW = 1000


class CaseRequest(Request):
    """A text and what follows it, as text or as tokens; without either, what the model writes."""

    run: Name
    text: Text = ""
    target: Text = ""
    ids: list[int] = Field(default=[], max_length=MOST_JUDGED)


class ChangesRequest(CaseRequest):
    """The same with changes: tokens that are hidden, heads and whole layers of attention that are silent."""

    hidden: list[Number] = Field(default=[], max_length=FEW)
    heads: list[tuple[Name, Number, Number]] = Field(default=[], max_length=FEW)
    layers: list[tuple[Name, Number]] = Field(default=[], max_length=FEW)


class LayerRequest(CaseRequest):
    """The same, and a layer of which each head is silenced in turn."""

    kind: Name
    layer: Number


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api/intervene")

    async def answer(request: CaseRequest, task: Callable[[ModuleType, Case], dict[str, Any]]) -> dict[str, Any]:
        def work(loaded: TrainedModel) -> dict[str, Any]:
            from headwise.studio import ablation

            return task(ablation, ablation.Case(loaded, request.text, request.target, request.ids))

        found, spent = await desk.work(request.run, work)
        return {"milliseconds": round(spent, 1), **found}

    @router.post("")
    async def changed(request: ChangesRequest) -> dict[str, Any]:
        given = request.hidden, request.heads, request.layers
        return await answer(request, lambda does, case: does.intervened(case, does.Changes(*given)))

    @router.post("/heads")
    async def heads(request: LayerRequest) -> dict[str, Any]:
        return await answer(request, lambda does, case: does.effects(case, request.kind, request.layer))

    @router.post("/tokens")
    async def tokens(request: CaseRequest) -> dict[str, Any]:
        return await answer(request, lambda does, case: does.token_effects(case))

    @router.post("/lens")
    async def lens_of(request: CaseRequest) -> dict[str, Any]:
        return await answer(request, lambda does, case: does.lens(case))

    return router
