"""Routes for an episode of an agent, frame by frame."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import Field

from headwise.studio.routes.values import BINARY, Name, ProgressId, RequestBody
from headwise.studio.worker_pool import WorkerPool


class PlayRequest(RequestBody):
    """An episode: its seed, the return that is asked for, and what is changed in its world."""

    run: Name
    seed: int = Field(0, ge=0, le=10**9)
    target: float | None = Field(None, allow_inf_nan=False)
    colours: Literal["", "standard", "shifted", "random"] = ""  # empty: as in training
    distractors: int | None = Field(None, ge=0, le=16)

    @property
    def changes(self) -> dict[str, Any]:
        given = {"colours": self.colours or None, "distractors": self.distractors}
        return {name: value for name, value in given.items() if value is not None}


def routes(pool: WorkerPool) -> APIRouter:
    router = APIRouter(prefix="/api/play")

    @router.post("")
    async def play(request: PlayRequest, progress: ProgressId = "") -> Response:
        body = {**request.model_dump(include={"run", "seed", "target"}), "changes": request.changes}
        return Response(await pool.call("play", body, progress), media_type=BINARY)

    @router.get("/{name}/{step}.png")
    async def frame(name: Name, step: int) -> Response:
        content = await pool.call("frame", {"name": name, "step": step})
        return Response(content, media_type="image/png", headers={"cache-control": "private, max-age=3600"})

    return router
