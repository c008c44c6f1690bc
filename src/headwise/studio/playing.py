"""One episode of an agent: frames, actions, rewards, and what the agent made of each observation."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from headwise.errors import UserError
from headwise.studio.binary_response import BinaryResponse
from headwise.studio.limits import MAX_STEPS
from headwise.studio.progress import report
from headwise.worlds.step_view import NOTHING, StepView

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.worlds.rollout import Film


@dataclass(frozen=True, eq=False)
class PlayedEpisode:
    """An episode with its frames as PNG files."""

    film: Film
    frames: list[bytes]
    environment: str
    discrete: bool

    @property
    def size(self) -> int:
        """Bytes of all frames."""
        return sum(map(len, self.frames))


def play_episode(trained: TrainedModel, seed: int, target: float | None, changes: dict[str, Any]) -> PlayedEpisode:
    """Play the episode that begins with a seed, in the run's environment with changed settings."""
    from headwise.worlds.environments import Environment
    from headwise.worlds.rollout import film

    task: Any = trained.check_command("act")
    place = Environment.of(task.encoder.environment, {**task.encoder.settings, **changes})
    steps = count(1)

    def count_step() -> None:
        number = next(steps)
        if number > MAX_STEPS:
            raise UserError(f"this episode has more than {MAX_STEPS:,} steps, which are the most that are shown here")
        report(number)

    watched = film(place, task.build_policy(trained.model, target), seed, count_step)
    frames = [encode_png(frame) for frame in watched.frames]
    watched.frames.clear()
    return PlayedEpisode(watched, frames, str(place), task.encoder.spaces.discrete)


def encode_png(frame: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(frame).save(file, "PNG")
    return file.getvalue()


def pack_episode(played: PlayedEpisode, details: dict[str, Any]) -> bytes:
    """Everything but the frames."""
    response, episode = BinaryResponse(), played.film.episode
    views = played.film.views or [StepView(NOTHING)] * len(episode)  # of a policy that does not describe its steps
    longest = max((view.past.shape[1] for view in views), default=0)
    past = [np.pad(view.past, ((0, 0), (longest - view.past.shape[1], 0))) for view in views]
    return response.to_bytes(
        {
            **details,
            "environment": played.environment,
            "steps": len(episode),
            "ended": episode.terminated,
            "discrete": played.discrete,
            "actions": np.round(episode.actions.astype(float), 4).tolist(),
            "rewards": np.round(episode.rewards.astype(float), 6).tolist(),
            "to_go": [None if view.to_go is None else round(view.to_go, 4) for view in views],
            "values": response.add(np.stack([view.values for view in views])),
            "patches": response.add(np.stack([view.patches for view in views])),
            "importance": response.add(np.stack([view.importance for view in views])),
            "past": response.add(np.stack(past)),
        }
    )
