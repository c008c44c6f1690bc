"""Routes for the catalogue: the list from the index, module trees and costs computed one model at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from headwise.catalog import ModelInfo, list_own_models, read_index
from headwise.config.plugins import list_configs, list_parts_files
from headwise.errors import UserError, nearest
from headwise.models.own import read_full_index
from headwise.studio.routes.values import JSON, Name
from headwise.studio.worker_pool import WorkerPool

MAX_LENGTH = 4096  # tokens


def routes(pool: WorkerPool) -> APIRouter:
    router = APIRouter(prefix="/api/catalogue")

    async def read_models() -> dict[str, ModelInfo]:
        """The index; models of the user's own are built to count them, outside the event loop."""
        return await asyncio.to_thread(read_full_index) if list_own_models() else read_index()

    @router.get("")
    async def catalogue() -> list[dict[str, Any]]:
        return describe_models(await read_models())

    @router.get("/parts")
    async def parts() -> list[dict[str, str]]:
        return list_own_parts()

    @router.get("/{name}/counts")
    async def counts(name: Name) -> dict[str, int]:
        index = await read_models()
        if (info := index.get(name)) is None:
            raise UserError(f"there is no architecture '{name}'; {nearest(name, index)}")
        return {f"{name}-{size}": size_info.parameters for size, size_info in info.sizes.items()}

    @router.get("/{name}/structure")
    async def structure(name: Name) -> Response:
        return Response(await pool.call("tree", {"name": name}), media_type=JSON)

    @router.get("/{name}/cost")
    async def cost(name: Name, at: Annotated[int, Query(ge=0, le=MAX_LENGTH)] = 0) -> Response:
        return Response(await pool.call("cost", {"name": name, "at": at}), media_type=JSON)

    return router


def describe_models(index: Mapping[str, ModelInfo]) -> list[dict[str, Any]]:
    """Every architecture with its sizes."""
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
                    "vocab": size_info.vocab,
                    "outputs": info.outputs,
                    "published": size_info.published,
                }
                for size, size_info in info.sizes.items()
            ],
        }
        for info in index.values()
    ]


def list_own_parts() -> list[dict[str, str]]:
    """The parts that the user's files (`--with`) have added: kind, what it is, its file and its first line."""
    return [
        {
            "kind": str(config.model_fields["kind"].default),
            "what": table.what,
            "file": parts.path.name,
            "summary": (config.__doc__ or "").strip().partition("\n")[0],
        }
        for parts in list_parts_files()
        for table, config in list_configs(parts)
        if table.what != "model"
    ]
