"""Routes for the queries and keys of one head, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Response

from headwise.studio.map_cache import MapCache, count_bytes
from headwise.studio.model_pool import ModelPool
from headwise.studio.routes.values import BINARY, Name, RequestBody, Text

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.studio.neurons import NeuronView

MAX_ENTRIES = 2  # queries and keys of all layers are larger than maps


class NeuronRequest(RequestBody):
    """A text whose queries and keys are requested."""

    run: Name
    text: Text
    target: Text = ""


def routes(pool: ModelPool) -> APIRouter:
    router = APIRouter(prefix="/api/neuron")
    cache: MapCache[NeuronView] = MapCache(MAX_ENTRIES)

    @router.post("")
    async def neuron(request: NeuronRequest) -> dict[str, Any]:
        def work(trained: TrainedModel) -> NeuronView:
            from headwise.studio.neurons import record_inputs

            return record_inputs(trained, request.text, request.target)

        view, milliseconds = await pool.run_with_model(request.run, work)
        return {
            "name": cache.add(view, count_bytes(view.maps)),
            "run": request.run,
            "milliseconds": round(milliseconds, 1),
            **view.to_dict(),
        }

    @router.get("/{name}/{kind}/{layer}/{head}/{query}/{key}")
    async def neuron_row(name: Name, kind: Name, layer: int, head: int, query: int, key: int) -> Response:
        view = cache[name]
        row = await pool.run(lambda: view.pack_row(kind, layer, head, query, key))
        return Response(row, media_type=BINARY)

    return router
