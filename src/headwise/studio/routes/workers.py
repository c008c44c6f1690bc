"""Routes for what the workers do, and how far a request is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from headwise.studio.routes.values import Name
from headwise.studio.worker_pool import WorkerPool


def routes(pool: WorkerPool) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/workers")
    async def workers() -> list[dict[str, Any]]:
        return await pool.describe()

    @router.get("/progress/{identifier}")
    async def progress(identifier: Name) -> dict[str, Any]:
        return pool.get_progress(identifier)

    return router
