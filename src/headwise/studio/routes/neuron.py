"""Queries and keys of one head, element by element."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from pydantic import Field

from headwise.studio.desk import Desk
from headwise.studio.looks import Looks
from headwise.studio.neurons import Neurons, neurons
from headwise.studio.routes.values import BINARY, Name, Request, Text

KEPT = 2  # queries and keys of all layers are larger than maps


class NeuronRequest(Request):
    """A text whose queries and keys are wanted."""

    run: Name
    text: Text = Field(min_length=1)
    target: Text = ""


def routes(desk: Desk) -> APIRouter:
    router, looks = APIRouter(prefix="/api/neuron"), Looks[Neurons](KEPT)

    @router.post("")
    async def neuron(request: NeuronRequest) -> dict[str, Any]:
        found, spent = await desk.work(request.run, lambda loaded: neurons(loaded, request.text, request.target))
        return {"look": looks.keep(found), "run": request.run, "milliseconds": round(spent, 1), **found.told()}

    @router.get("/{name}/{kind}/{layer}/{head}/{query}/{key}")
    async def neuron_row(name: Name, kind: Name, layer: int, head: int, query: int, key: int) -> Response:
        found = looks[name]
        row = await desk.aside(lambda: found.row(kind, layer, head, query, key))
        return Response(row, media_type=BINARY)

    return router
