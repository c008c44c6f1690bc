"""Which runs there are."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from headwise.studio.desk import Desk


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api/runs")

    @router.get("")
    async def runs() -> list[dict[str, Any]]:
        return await desk.aside(lambda: [item.told() for item in desk.shelf.items().values()])

    return router
