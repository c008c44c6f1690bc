"""Base of tasks that learn by acting (online reinforcement learning): environment, replay source, evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from headwise.blocks.contrast import Views
from headwise.blocks.evaluation import get_device, inference_mode
from headwise.config.base import NonNegativeFloat
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.models.agent_fields import Agent
from headwise.models.config import ModelConfig
from headwise.tasks.act import average_returns
from headwise.tasks.base import Evaluation, Sample
from headwise.tasks.environment_task import EnvironmentTask
from headwise.tasks.replay_source import ReplayBatch, ReplayFields, ReplaySource, count_rows, prepare_observations
from headwise.train.config import TrainConfig
from headwise.train.state import Metric
from headwise.worlds.episodes import EpisodeSeeds
from headwise.worlds.replay import FrameStack
from headwise.worlds.spaces import EpisodeEncoder, Spaces


class OnlineConfig(ReplayFields):
    """Settings of learning by acting."""

    command = "act"
    reads = "environment"
    actions: ClassVar[str] = ""  # that the algorithm can choose from: discrete or continuous
    crop: int = Field(0, ge=0)  # pixels of a side of the crops: random in training, else the middle; 0: the whole frame
    pad: int = Field(0, ge=0)  # times that the border of a frame is repeated before it is cropped at random
    target_every: int = Field(1, ge=1)  # batches after which the target networks follow
    target_rate: float = Field(0.01, gt=0, le=1)  # by which share; 1: they are copies
    encoder_rate: float = Field(0.05, gt=0, le=1)  # of the encoder's target, which makes the keys of contrastive losses
    contrast_weight: NonNegativeFloat = 1.0  # of the contrastive loss of a model that has one


Settings = TypeVar("Settings", bound=OnlineConfig)
Learner = TypeVar("Learner", bound=Agent)


class OnlineTask(EnvironmentTask[Settings, Learner]):
    """Learning by acting: batches come from a replay buffer, scores are returns of new episodes."""

    def build(self, model: ModelConfig) -> Learner:
        if isinstance(self.tokenisers.source, EpisodeEncoder):
            spaces = self.encoder.spaces
            self._check_spaces(spaces)
            model = model.replace(observation=self._shape(spaces), actions=spaces.actions, discrete=spaces.discrete)
        built: Learner = model.build(0, 0, self.config.model_task)
        count_rows(self.config, built)  # an error before there is a run
        return built

    def _check_spaces(self, spaces: Spaces) -> None:
        """Refuse an environment with other actions than the algorithm can choose, or without the frames that settings
        are for."""
        kind, place = "discrete" if spaces.discrete else "continuous", self.encoder.environment
        if kind != self.config.actions:
            other = "q-learning" if spaces.discrete else "soft-actor-critic"
            raise UserError(
                f"task.kind: '{self.kind}' has {self.config.actions} actions, {place} {kind} ones; use '{other}'"
            )
        for key in ("frame", "crop"):
            if getattr(self.config, key) and not spaces.pixels:
                raise UserError(f"task.{key}: {place} shows numbers, not pixels; leave it out, or set observe=pixels")
        if self.config.pad and not self.config.crop:
            raise UserError("task.pad: is for random crops; set task.crop, for example to the size of a frame")
        if self.config.crop > min(self._sides(spaces)):
            raise UserError(f"task.crop: {self.config.crop} pixels are more than a frame has; choose fewer")

    def _sides(self, spaces: Spaces) -> tuple[int, int]:
        """Rows and columns of a stored frame; of numbers none."""
        if not spaces.pixels:
            return 0, 0
        return (self.config.frame or spaces.shape[0], self.config.frame or spaces.shape[1])

    def _shape(self, spaces: Spaces) -> tuple[int, ...]:
        """The shape of what the agent reads."""
        stacked = self.config.stack * spaces.shape[-1]
        if not spaces.pixels:
            return (stacked,)
        return (stacked, *((self.config.crop,) * 2 if self.config.crop else self._sides(spaces)))

    def build_batches(self, examples: EpisodeSeeds, seed: int, config: TrainConfig) -> ReplaySource:
        return ReplaySource(self, seed, config)

    @property
    def units(self) -> str:
        shape = " x ".join(map(str, self._shape(self.encoder.spaces)))
        return f"observations of {shape}"

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("return", lower=False)

    def explore(self, model: Learner, observations: Tensor, played: int, random: np.random.Generator) -> np.ndarray:
        """The actions with which the learner explores, after `played` frames."""
        raise NotImplementedError

    def view(self, observations: Tensor, training: bool) -> Tensor:
        """Observations as the agent reads them: (..., channels, H, W) bytes -> crops of numbers from 0 to 1. In
        training each frame has a crop of its own, else all have the middle."""
        if not self.encoder.spaces.pixels:
            return observations
        side = self.config.crop
        if side and training:
            observations = crop_at_random(observations, side, self.config.pad)
        elif side:
            top, left = ((size - side) // 2 for size in observations.shape[-2:])
            observations = observations[..., top : top + side, left : left + side]
        return observations.float() / 255

    def compute_contrast(self, model: Learner, batch: ReplayBatch, features: Tensor) -> Tensor:
        """The weighted contrastive loss, summed over the batch; 0 for a model without one."""
        views = Views(
            features, batch.observations, batch.windows, batch.keep, lambda frames: self.view(frames, model.training)
        )
        return self.config.contrast_weight * len(batch) * model.contrast_views(views)

    def after_step(self, model: Learner, step: int) -> None:
        """Called by the training loop after each update of the optimiser: the target networks follow."""
        if step % self.config.target_every == 0:
            model.update_targets(self.config.encoder_rate, self.config.target_rate)

    def validate(self, model: Learner, examples: EpisodeSeeds, pairs: EpisodeSeeds) -> Mapping[str, float]:
        return {"return": float(np.mean(self.play(model, examples)))}

    def draw_samples(self, model: Learner, pairs: EpisodeSeeds, count: int) -> list[Sample]:
        return []  # an episode is watched, not read

    def evaluate(
        self, model: Learner, pairs: EpisodeSeeds, config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Play new episodes without exploring."""
        returns = self.play(model, pairs)
        nothing = [""] * len(returns)
        scores = [average_returns(returns, "without exploring")]
        return Evaluation(nothing, [f"{each:.6g}" for each in returns], [[""] for _ in returns], scores)

    def play(self, model: Learner, seeds: EpisodeSeeds) -> list[float]:
        """The returns of episodes with these seeds."""
        from headwise.worlds.environments import Environment
        from headwise.worlds.rollout import play

        environments = Environment.of(self.encoder.environment, self.encoder.settings).make(len(seeds))
        try:
            return [episode.total for episode in play(environments, AgentPolicy(self, model), list(seeds.seeds))]
        finally:
            environments.close()

    def build_policy(self, model: Learner, target: float | None = None) -> AgentPolicy:
        """The policy of the model, which cannot be asked for a return."""
        if target is not None:
            raise UserError(f"--return: this run was trained to {self.kind}, and is asked for no return; leave it out")
        return AgentPolicy(self, model)


class AgentPolicy:
    """Acts by an agent, without exploring."""

    def __init__(self, task: OnlineTask[Any, Any], model: Agent):
        self.task, self.model = task, model
        self.stack: FrameStack | None = None

    def start(self, environments: Any, seeds: Sequence[int]) -> None:
        if Spaces.of(environments) != self.task.encoder.spaces:
            raise UserError(
                f"the run was trained in {self.task.encoder.environment}, whose observations or actions differ from "
                "these"
            )
        self.stack = None

    def act(self, observations: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        task = self.task
        prepared = prepare_observations(observations, task.encoder.spaces, task.config.frame)
        if self.stack is None:
            self.stack = FrameStack(task.config.stack, prepared)
        else:
            self.stack.push(prepared, np.zeros(len(prepared), bool))
        with inference_mode(self.model):
            seen = torch.from_numpy(self.stack.stacked).to(get_device(self.model))
            actions: np.ndarray = self.model.act(task.view(seen, training=False)).cpu().numpy()
        return task.encoder.unscale_actions(actions)


def crop_at_random(frames: Tensor, side: int, pad: int = 0) -> Tensor:
    """A random crop of each frame, after its border was repeated `pad` times: (..., channels, H, W) ->
    (..., channels, side, side)."""
    flat = frames.flatten(0, -4)  # (..., channels, H, W) -> (N, channels, H, W)
    rows, columns = (draw_places(len(flat), size, side, pad, frames.device) for size in frames.shape[-2:])
    numbers = torch.arange(len(flat), device=frames.device)[:, None, None]
    cropped = flat.movedim(1, -1)[numbers, rows[:, :, None], columns[:, None, :]]  # (N, side, side, channels)
    return cropped.movedim(-1, 1).unflatten(0, frames.shape[:-3])


def draw_places(count: int, size: int, side: int, pad: int, device: torch.device) -> Tensor:
    """The pixels of random crops along one side of frames, (count, side)."""
    first = torch.randint(size + 2 * pad - side + 1, (count, 1), device=device) - pad
    return (first + torch.arange(side, device=device)).clamp(0, size - 1)
