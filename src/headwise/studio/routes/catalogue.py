"""The catalogue: names at once, what must be counted one model at a time."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query

from headwise.catalog import read_index
from headwise.errors import UserError, nearest
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
        return list_models()

    @router.get("/{name}/counts")
    async def counts(name: Name) -> dict[str, int]:
        if (info := read_index().get(name)) is None:
            raise UserError(f"there is no architecture '{name}'; {nearest(name, read_index())}")
        return {f"{name}-{size}": of_size.parameters for size, of_size in info.sizes.items()}

    @router.get("/{name}/structure")
    async def structure(name: Name) -> dict[str, Any]:
        return await desk.aside(lambda: structures().structure(name))

    @router.get("/{name}/cost")
    async def cost(name: Name, at: Annotated[int, Query(ge=0, le=MOST)] = 0) -> dict[str, Any]:
        return await desk.aside(lambda: structures().cost(name, at))

    return router


def list_models() -> list[dict[str, Any]]:
    """Every architecture with its sizes, as the index has them."""
    return [
        {
            "name": info.name,
            "paper": info.paper,
            "year": info.year,
            "family": info.family,
            "tasks": info.tasks,
            "oracle": info.oracle,
            "sizes": [
                {
                    "name": f"{info.name}-{size}",
                    "words": of_size.vocab,
                    "outputs": info.outputs,
                    "published": of_size.published,
                }
                for size, of_size in info.sizes.items()
            ],
        }
        for info in read_index().values()
    ]
