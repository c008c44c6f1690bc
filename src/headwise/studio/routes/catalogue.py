"""The catalogue: names at once, what must be counted one model at a time."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query

from headwise.studio.model_pool import Desk
from headwise.studio.routes.values import Name

if TYPE_CHECKING:
    from headwise.studio.model_tree import Structures

MOST = 4096  # tokens


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api/catalogue")

    @cache
    def structures() -> Structures:
        from headwise.studio.model_tree import Structures  # the configs of all models: not needed for the first page

        return Structures()

    @router.get("")
    async def catalogue() -> list[dict[str, Any]]:
        def work() -> list[dict[str, Any]]:
            from headwise.studio.model_tree import listed

            return listed()

        return await desk.aside(work)

    @router.get("/{name}/counts")
    async def counts(name: Name) -> dict[str, int]:
        return await desk.aside(lambda: structures().counts(name))

    @router.get("/{name}/structure")
    async def structure(name: Name) -> dict[str, Any]:
        return await desk.aside(lambda: structures().structure(name))

    @router.get("/{name}/cost")
    async def cost(name: Name, at: Annotated[int, Query(ge=0, le=MOST)] = 0) -> dict[str, Any]:
        return await desk.aside(lambda: structures().cost(name, at))

    return router
