"""Queries and keys of one head, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Response

from headwise.studio.map_cache import Looks, size_of
from headwise.studio.model_pool import Desk
from headwise.studio.routes.values import BINARY, Name, Request, Text

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.studio.neurons import Neurons

KEPT = 2  # queries and keys of all layers are larger than maps


class NeuronRequest(Request):
    """A text whose queries and keys are wanted."""

    run: Name
    text: Text
    target: Text = ""


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api/neuron")
    looks: Looks[Neurons] = Looks(KEPT)

    @router.post("")
    async def neuron(request: NeuronRequest) -> dict[str, Any]:
        def work(loaded: TrainedModel) -> Neurons:
            from headwise.studio.neurons import neurons

            return neurons(loaded, request.text, request.target)

        found, spent = await desk.work(request.run, work)
        return {
            "look": looks.keep(found, size_of(found.maps)),
            "run": request.run,
            "milliseconds": round(spent, 1),
            **found.to_dict(),
        }

    @router.get("/{name}/{kind}/{layer}/{head}/{query}/{key}")
    async def neuron_row(name: Name, kind: Name, layer: int, head: int, query: int, key: int) -> Response:
        found = looks[name]
        row = await desk.aside(lambda: found.row(kind, layer, head, query, key))
        return Response(row, media_type=BINARY)

    return router
