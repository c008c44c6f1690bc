"""Routes for an episode of an agent, frame by frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, Response
from pydantic import Field

from headwise.errors import UserError
from headwise.studio.map_cache import MapCache
from headwise.studio.model_pool import ModelPool
from headwise.studio.routes.values import BINARY, Name, RequestBody

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.studio.playing import PlayedEpisode

MAX_ENTRIES = 4  # episodes whose frames are kept


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


def routes(pool: ModelPool) -> APIRouter:
    router = APIRouter(prefix="/api/play")
    cache: MapCache[PlayedEpisode] = MapCache(MAX_ENTRIES, "this episode is no longer in the cache; press Play again")

    @router.post("")
    async def play(request: PlayRequest) -> Response:
        def work(trained: TrainedModel) -> bytes:
            from headwise.studio.playing import pack_episode, play_episode

            played = play_episode(trained, request.seed, request.target, request.changes)
            return pack_episode(played, {"name": cache.add(played, played.size), "run": request.run})

        content, _ = await pool.run_with_model(request.run, work)
        return Response(content, media_type=BINARY)

    @router.get("/{name}/{step}.png")
    async def frame(name: Name, step: int) -> Response:
        frames = cache[name].frames
        if not 0 <= step < len(frames):
            raise UserError(f"there is no step {step + 1} here; this episode has {len(frames)}")
        return Response(frames[step], media_type="image/png", headers={"cache-control": "private, max-age=3600"})

    return router
