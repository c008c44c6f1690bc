"""Policies that are evolved: the return of episodes in an environment is raised without gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.controller import State
from headwise.blocks.evaluation import inference_mode
from headwise.blocks.losses import Loss
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.tasks.act import average_returns
from headwise.tasks.base import Evaluation, Sample, TaskConfig
from headwise.tasks.environment_task import EnvironmentTask
from headwise.train.config import TrainConfig
from headwise.train.evolution.base import STRATEGIES, AnyStrategy
from headwise.train.evolution.evolver import Evolver, split_vectors
from headwise.train.evolution.workers import Fitness
from headwise.train.state import LossState, Metric
from headwise.worlds.episodes import EpisodeSeeds
from headwise.worlds.spaces import EpisodeEncoder
from headwise.worlds.step_view import StepView

GENERATIONS = 10  # of an epoch, after which a run validates by default
REPEATS = 4  # episodes of a member, by default
AT_ONCE = 64  # episodes of an evaluation that are played together
TRAIN_SEEDS = 10**9  # training begins at this number times 1 + the experiment's seed


@dataclass(frozen=True)
class SeedBatch:
    """Episodes that all members of a population play."""

    seeds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def tokens(self) -> int:
        """Unknown before they are played; the learner counts the steps."""
        return 0

    def to(self, device: torch.device | str, non_blocking: bool = False) -> SeedBatch:
        return self


class SeedData:
    """New episodes for each generation, the same for all of its members, so that they differ by their parameters and
    not by their luck."""

    unit = "steps"  # counted by the training loop

    def __init__(self, repeats: int, seed: int, population: int):
        self.repeats, self.first, self.population = repeats, TRAIN_SEEDS * (1 + seed), population

    @property
    def summary(self) -> str:
        return f"{self.population} members, {self.repeats} episodes each; {GENERATIONS} generations an epoch"

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        first = epoch * GENERATIONS * self.repeats
        return list(np.arange(first, first + GENERATIONS * self.repeats).reshape(GENERATIONS, self.repeats))

    def batch(self, numbers: np.ndarray) -> SeedBatch:
        return SeedBatch(tuple(self.first + int(number) for number in numbers))


class Evolve(EnvironmentTask["EvolveConfig", nn.Module]):
    """Evolution of a policy: `headwise.train.evolution` draws members, this task plays their episodes."""

    host_work = "episodes are played"

    learner_class = Evolver

    def build(self, model: ModelConfig) -> nn.Module:
        if isinstance(self.tokenisers.source, EpisodeEncoder):
            spaces = self.encoder.spaces
            if model.kind == "attention-agent" and not spaces.pixels:
                raise UserError(
                    f"data.settings: {self.encoder.environment} shows {spaces.shape[0]} numbers and no frames, which "
                    'an Attention Agent needs; set observe = "pixels", or model = "recurrent-policy"'
                )
            shape = (spaces.shape[2], *spaces.shape[:2]) if spaces.pixels else spaces.shape
            model = model.replace(observation=shape, actions=spaces.actions, discrete=spaces.discrete)
        built: nn.Module = model.build(0, 0, self.config.model_task)
        return built

    def build_batches(self, examples: EpisodeSeeds, seed: int, config: TrainConfig) -> SeedData:
        return SeedData(config.batch_size or REPEATS, seed, self.config.strategy.population)

    @property
    def units(self) -> str:
        return f"{self.encoder.environment}, {self.config.strategy.kind}"

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("return", lower=False)

    def loss(self, model: nn.Module, batch: SeedBatch, state: LossState) -> Loss:
        """Minus the mean return of the batch's episodes, which has no gradient."""
        total = torch.tensor(-float(self.play(model, batch.seeds).sum()))
        return Loss(total, total, torch.tensor(len(batch)))

    def measure_members(self, model: nn.Module, members: np.ndarray, batch: SeedBatch) -> Fitness:
        """Play the batch's episodes with each member, all at the same time."""
        from headwise.worlds.rollout import measure_returns

        policy = PopulationPolicy(self, model, members)
        environments = self.make_environments(len(members) * len(batch))
        try:
            returns, steps = measure_returns(environments, policy, batch.seeds * len(members))
        finally:
            environments.close()
        return Fitness(-returns.reshape(len(members), len(batch)).mean(1), steps)

    def make_environments(self, count: int, changes: Mapping[str, Any] | None = None) -> Any:
        """Copies of the run's environment, with changed settings."""
        from headwise.worlds.environments import Environment

        settings = {**self.encoder.settings, **(changes or {})}
        return Environment.of(self.encoder.environment, settings).make(count)

    def build_policy(self, model: nn.Module, target: float | None = None) -> AgentPolicy:
        """The policy of the model, which is asked for no return."""
        if target is not None:
            raise UserError("--return: this run was evolved to get the highest return, and is asked for none")
        return AgentPolicy(self, model)

    def play(
        self, policy: nn.Module | Any, seeds: Sequence[int], changes: Mapping[str, Any] | None = None
    ) -> np.ndarray:
        """The return of an episode of each seed."""
        from headwise.worlds.rollout import measure_returns

        policy, returns = AgentPolicy(self, policy) if isinstance(policy, nn.Module) else policy, []
        for first in range(0, len(seeds), AT_ONCE):
            part = seeds[first : first + AT_ONCE]
            environments = self.make_environments(len(part), changes)
            try:
                returns.append(measure_returns(environments, policy, part)[0])
            finally:
                environments.close()
        return np.concatenate(returns)

    def validate(self, model: nn.Module, examples: EpisodeSeeds, pairs: EpisodeSeeds) -> Mapping[str, float]:
        """The mean return of episodes that are always the same."""
        return {"return": float(self.play(model, examples.seeds).mean())}

    def draw_samples(self, model: nn.Module, pairs: EpisodeSeeds, count: int) -> list[Sample]:
        return []  # an episode is watched, not read

    def evaluate(
        self, model: nn.Module, pairs: EpisodeSeeds, config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Play new episodes, and the same ones with each of `task.changes`."""
        from headwise.worlds.rollout import RandomPolicy

        plain = self.play(model, pairs.seeds)
        played, scores = {"": plain}, [average_returns(plain.tolist(), "new episodes")]
        if self.config.changes:
            random = self.play(RandomPolicy(), pairs.seeds)
            for name, changes in self.config.changes.items():
                played[name] = self.play(model, pairs.seeds, changes)
                scores.append(measure_kept(name, played[name], plain, random))
        sources = [f"{seed} {name}".strip() for name in played for seed in pairs.seeds]
        outputs = [f"{each:.6g}" for returns in played.values() for each in returns]
        return Evaluation(sources, outputs, [[""] for _ in sources], scores)


def measure_kept(name: str, changed: np.ndarray, plain: np.ndarray, random: np.ndarray) -> Score:
    """The share of the score that is kept when an environment changes, where random play is 0 % and the unchanged
    environment 100 %; pairs of episodes with the same seeds are resampled. 0 where there is nothing to keep."""
    rows = np.stack((changed - random, plain - random), axis=1)

    def share(sums: np.ndarray) -> np.ndarray:
        gained = sums[:, 1]
        return np.where(gained > 0, 100 * sums[:, 0] / np.where(gained > 0, gained, 1), 0)

    detail = f"return {changed.mean():.4g} of {plain.mean():.4g}, at random {random.mean():.4g}"
    value = float(share(rows.sum(0, keepdims=True))[0])
    return Score(f"kept {name}", value, *bootstrap_interval(rows, share), detail, "%")


class AgentPolicy:
    """Acts by a model in N copies of an environment."""

    def __init__(self, task: Evolve, model: nn.Module):
        self.task, self.model = task, model

    def start(self, environments: Any, seeds: Sequence[int]) -> None:
        from headwise.worlds.spaces import Spaces

        if Spaces.of(environments) != self.task.encoder.spaces:
            raise UserError(
                f"the run was trained in {self.task.encoder.environment}, whose observations or actions differ from "
                "these"
            )
        self.state = self.begin(len(seeds))

    def begin(self, count: int) -> State:
        state: State = self.model.start(count)  # type: ignore[operator]
        return state

    def act(self, observations: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        encoder = self.task.encoder
        with inference_mode(self.model):
            self.seen = encoder.normalise_observations(torch.from_numpy(observations))
            self.outputs, self.state = self.step(self.seen, self.state)
        outputs = self.outputs.argmax(-1) if encoder.spaces.discrete else self.outputs
        return encoder.unscale_actions(outputs.cpu().numpy())

    def step(self, seen: Tensor, state: State) -> tuple[Tensor, State]:
        outputs: tuple[Tensor, State] = self.model(seen, state)
        return outputs

    def describe_step(self) -> StepView:
        """How the last action of the first copy came about."""
        outputs = self.outputs[0].float()
        values = outputs.softmax(-1) if self.task.encoder.spaces.discrete else outputs
        if not hasattr(self.model, "look"):
            return StepView(values.numpy())
        config: Any = self.model.config
        with inference_mode(self.model):
            look: Any = self.model.look(self.seen[:1])  # type: ignore[operator]
        rows, columns = np.divmod(look.chosen[0].numpy(), config.patches_a_side)
        size = np.full(len(rows), config.patch)
        patches = np.stack((config.stride * rows, config.stride * columns, size, size), axis=1) / config.side
        importance = look.importance[0].numpy().reshape(config.patches_a_side, -1)
        return StepView(values.numpy(), patches.astype(np.float32), importance)


class PopulationPolicy(AgentPolicy):
    """Acts by M members of a population, each in N / M copies that follow one another: one call for all of them."""

    def __init__(self, task: Evolve, model: nn.Module, members: np.ndarray):
        super().__init__(task, model)
        self.count, self.parameters = len(members), split_vectors(model, members)
        self.together = torch.vmap(lambda own, seen, state: torch.func.functional_call(model, own, (seen, state)))

    def step(self, seen: Tensor, state: State) -> tuple[Tensor, State]:
        split = [each.unflatten(0, (self.count, -1)) for each in (seen, *state)]  # (N, ...) -> (M, N / M, ...)
        outputs, (hidden, memory) = self.together(self.parameters, split[0], (split[1], split[2]))
        return outputs.flatten(0, 1), (hidden.flatten(0, 1), memory.flatten(0, 1))


class EvolveConfig(TaskConfig):
    """A policy in an environment, evolved without gradients: CMA-ES, or the evolution strategy of OpenAI."""

    task_class = Evolve
    command = "act"
    reads = "environment"
    kind: Literal["evolve"] = "evolve"
    strategy: AnyStrategy = Field(default_factory=lambda: cast("AnyStrategy", STRATEGIES.parse({})))
    changes: dict[str, dict[str, Any]] = Field(default_factory=dict)  # name -> settings of the environment with which
    # an evaluation plays the same episodes again, such as shifted = {colours = "shifted"}
