"""Routes for ablation (hide tokens, ablate heads and layers) and the logit lens."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from headwise.studio.limits import MAX_SCORED_TOKENS
from headwise.studio.model_pool import ModelPool
from headwise.studio.routes.values import Name, RequestBody, Text

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.studio.ablation import AblationCase

Number = Annotated[int, Field(ge=0, le=100_000)]
MAX_CHANGES = 1000


class CaseRequest(RequestBody):
    """A text and its output, as text or as token ids; without either, the output that the model generates."""

    run: Name
    text: Text = ""
    target: Text = ""
    ids: list[int] = Field(default=[], max_length=MAX_SCORED_TOKENS)


class AblationRequest(CaseRequest):
    """With ablations: tokens to hide, heads and whole attention layers to ablate."""

    hidden: list[Number] = Field(default=[], max_length=MAX_CHANGES)
    heads: list[tuple[Name, Number, Number]] = Field(default=[], max_length=MAX_CHANGES)
    layers: list[tuple[Name, Number]] = Field(default=[], max_length=MAX_CHANGES)


class LayerRequest(CaseRequest):
    """With a layer whose heads are ablated one at a time."""

    kind: Name
    layer: Number


def routes(pool: ModelPool) -> APIRouter:
    router = APIRouter(prefix="/api/intervene")

    async def run_task(
        request: CaseRequest, task: Callable[[ModuleType, AblationCase], dict[str, Any]]
    ) -> dict[str, Any]:
        def work(trained: TrainedModel) -> dict[str, Any]:
            from headwise.studio import ablation

            return task(ablation, ablation.AblationCase(trained, request.text, request.target, request.ids))

        result, milliseconds = await pool.run_with_model(request.run, work)
        return {"milliseconds": round(milliseconds, 1), **result}

    @router.post("")
    async def ablate(request: AblationRequest) -> dict[str, Any]:
        ablations = request.hidden, request.heads, request.layers
        return await run_task(request, lambda ablation, case: ablation.ablate(case, ablation.Ablations(*ablations)))

    @router.post("/heads")
    async def heads(request: LayerRequest) -> dict[str, Any]:
        return await run_task(request, lambda ablation, case: ablation.measure_heads(case, request.kind, request.layer))

    @router.post("/tokens")
    async def tokens(request: CaseRequest) -> dict[str, Any]:
        return await run_task(request, lambda ablation, case: ablation.measure_tokens(case))

    @router.post("/lens")
    async def logit_lens(request: CaseRequest) -> dict[str, Any]:
        return await run_task(request, lambda ablation, case: ablation.logit_lens(case))

    return router
