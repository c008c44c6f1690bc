"""Routes for the queries and keys of one head, element by element."""

from __future__ import annotations

from fastapi import APIRouter, Response

from headwise.studio.routes.values import BINARY, JSON, Name, ProgressId, RequestBody, Text
from headwise.studio.worker_pool import WorkerPool


class NeuronRequest(RequestBody):
    """A text whose queries and keys are requested."""

    run: Name
    text: Text
    target: Text = ""


def routes(pool: WorkerPool) -> APIRouter:
    router = APIRouter(prefix="/api/neuron")

    @router.post("")
    async def neuron(request: NeuronRequest, progress: ProgressId = "") -> Response:
        return Response(await pool.call("neuron", request.model_dump(), progress), media_type=JSON)

    @router.get("/{name}/{kind}/{layer}/{head}/{query}/{key}")
    async def neuron_row(name: Name, kind: Name, layer: int, head: int, query: int, key: int) -> Response:
        body = {"name": name, "kind": kind, "layer": layer, "head": head, "query": query, "key": key}
        return Response(await pool.call("neuron-row", body), media_type=BINARY)

    return router
