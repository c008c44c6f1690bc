"""Acting: what to do next in an environment, learnt from logs of episodes (offline reinforcement learning)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss
from headwise.blocks.record import record
from headwise.config.base import NonNegativeFloat
from headwise.data.batches import BatchPlan
from headwise.data.config import DataConfig
from headwise.data.prepare import Prepared
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.agreement import spearman
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.models.decision_transformer import TOKENS, DecisionTransformer, Trajectory
from headwise.tasks.base import Evaluation, Sample, Task, TaskConfig
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric
from headwise.worlds.config import EpisodesConfig, load_episodes
from headwise.worlds.episodes import Episodes, compute_returns_to_go
from headwise.worlds.spaces import EpisodeEncoder
from headwise.worlds.step_view import StepView

ASKED = 6  # returns that an evaluation asks for, at equal distances from the lowest to the highest logged
AT_ONCE = 64  # parts of episodes that are validated together
FIRST_SEED = 1_000_000  # of episodes of an evaluation, which no log of fewer episodes has


@dataclass(frozen=True, eq=False)
class EpisodeBatch:
    """Parts of episodes of T steps at most; shorter ones are padded at the end."""

    returns: Tensor  # (B, T) returns to go, scaled
    observations: Tensor  # (B, T, ...) normalised
    actions: Tensor  # (B, T) or (B, T, A), scaled
    steps: Tensor  # (B, T)
    keep: Tensor  # (B, T) True = a real step

    def __len__(self) -> int:
        return len(self.returns)

    @property
    def tokens(self) -> int:
        """The number of steps, which the training loop counts as it counts the tokens of texts."""
        return int(self.keep.sum())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> EpisodeBatch:
        tensors = (self.returns, self.observations, self.actions, self.steps, self.keep)
        return EpisodeBatch(*(tensor.to(device, non_blocking=non_blocking) for tensor in tensors))


class EpisodeData:
    """Parts of episodes that begin at every step of them, in a random order: a long episode is drawn more often, as in
    the paper."""

    unit = "steps"  # counted by the training loop

    def __init__(self, episodes: Episodes, encoder: EpisodeEncoder, context: int, seed: int, size: int):
        self.episodes, self.encoder, self.context, self.seed = episodes, encoder, context, seed
        limits = list(zip(episodes.starts, episodes.ends, strict=True))
        self.rows = np.concatenate([np.arange(*limit) for limit in limits])  # of the shared arrays
        self.starts, self.ends = (np.repeat(each, episodes.lengths) for each in (episodes.starts, episodes.ends))
        self.to_go = np.zeros(len(episodes.rewards), np.float32)
        for start, end in limits:
            self.to_go[start:end] = compute_returns_to_go(episodes.rewards[start:end]) / encoder.scale
        self.size = min(size, len(self.rows))

    @property
    def summary(self) -> str:
        count = len(self.episodes)
        return f"{count:,} episodes to train on, {len(self.rows):,} steps; {len(self.plan(0)):,} batches an epoch"

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        """Order the batches of an epoch, all of full size."""
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.rows))
        batches = len(order) // self.size
        return BatchPlan(order[: batches * self.size], np.arange(batches) * self.size, np.arange(batches))

    def batch(self, numbers: np.ndarray) -> EpisodeBatch:
        wanted = self.rows[numbers][:, None] + np.arange(self.context)  # (B, T)
        keep = wanted < self.ends[numbers][:, None]
        rows = np.where(keep, wanted, self.rows[numbers][:, None])  # padding repeats the first step
        observations = self.encoder.normalise_observations(torch.from_numpy(self.episodes.observations[rows]))
        arrays = (
            self.encoder.scale_actions(self.episodes.actions[rows]),
            rows - self.starts[numbers][:, None],
            keep,
        )
        return EpisodeBatch(torch.from_numpy(self.to_go[rows]), observations, *map(torch.from_numpy, arrays))


class Act(Task["ActConfig", DecisionTransformer, Episodes, Episodes]):
    """Actions by the return that is asked for (Decision Transformer), or as in the logs (behaviour cloning)."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        assert isinstance(data, EpisodesConfig)
        splits = load_episodes(data)
        manifest = splits.manifest
        if isinstance(tokeniser, Tokenisers):
            known = tokeniser.source
            if isinstance(known, EpisodeEncoder) and known.spaces != manifest.spaces:
                raise UserError(
                    f"data.train: a log of {manifest.environment}, but the model was trained in {known.environment}, "
                    "whose observations or actions differ; name a log of that environment"
                )
        else:
            place = (manifest.environment, manifest.settings, manifest.spaces)
            encoder = EpisodeEncoder.from_episodes(*place, splits.train)
            tokeniser = Tokenisers(encoder, encoder)
        return Prepared(tokeniser, splits.train, splits.valid, splits.valid, splits.valid, splits.files)

    @property
    def encoder(self) -> EpisodeEncoder:
        if not isinstance(self.tokenisers.source, EpisodeEncoder):
            raise UserError("this run knows no environment; train it on a log of episodes")
        return self.tokenisers.source

    def build(self, model: ModelConfig) -> DecisionTransformer:
        if isinstance(self.tokenisers.source, EpisodeEncoder):
            spaces = self.encoder.spaces
            shape = (spaces.shape[2], *spaces.shape[:2]) if spaces.pixels else spaces.shape
            model = model.replace(observation=shape, actions=spaces.actions, discrete=spaces.discrete)
        built: DecisionTransformer = model.build(0, 0, self.config.model_task)
        return built

    def build_batches(self, examples: Episodes, seed: int, config: TrainConfig) -> EpisodeData:
        return EpisodeData(examples, self.encoder, self.config.context, seed, config.batch_size or 64)

    @property
    def units(self) -> str:
        return f"{self.encoder.environment}, contexts of {self.config.context} steps"

    def load_test_pairs(self, data: DataConfig) -> Episodes:
        """Nothing: an evaluation plays new episodes."""
        nothing = np.zeros(0, np.int64)
        return Episodes(nothing, nothing, nothing, nothing, nothing, nothing)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("loss")

    def read_trajectory(self, batch: EpisodeBatch) -> Trajectory:
        """A batch as the model reads it: without a condition no returns."""
        returns = batch.returns if self.config.condition == "return" else torch.zeros_like(batch.returns)
        return Trajectory(returns, batch.observations, batch.actions, batch.steps)

    def loss(self, model: DecisionTransformer, batch: EpisodeBatch, state: LossState) -> Loss:
        """Cross-entropy of discrete actions, or the mean squared error of continuous ones, summed over steps; with
        weights also the squared errors of the next state and return, per number."""
        trajectory = self.read_trajectory(batch)
        decision, keep = model(trajectory), batch.keep
        nll = sum_kept(self.measure_actions(decision.actions, batch.actions), keep)
        total, following = nll, keep[:, 1:]  # the last step of a part has no next one
        if decision.observations is not None and self.config.state_weight:
            errors = (decision.observations[:, :-1] - trajectory.observations[:, 1:]).square().mean(-1)
            total = total + self.config.state_weight * sum_kept(errors, following)
        if decision.returns is not None and self.config.return_weight:
            errors = (decision.returns[:, :-1] - trajectory.returns[:, 1:]).square()
            total = total + self.config.return_weight * sum_kept(errors, following)
        return Loss(total, nll.detach(), keep.sum())

    def measure_actions(self, predicted: Tensor, actions: Tensor) -> Tensor:
        """The loss of each action, (B, T)."""
        if self.encoder.spaces.discrete:
            return F.cross_entropy(predicted.float().movedim(-1, 1), actions, reduction="none")
        return (predicted.float() - actions).square().mean(-1)

    def validate(self, model: DecisionTransformer, examples: Episodes, pairs: Episodes) -> Mapping[str, float]:
        """The loss on held-out episodes, each step once."""
        data = EpisodeData(examples, self.encoder, self.config.context, 0, 1)
        steps = np.nonzero((data.rows - data.starts) % self.config.context == 0)[0]
        losses = []
        with inference_mode(model):
            for first in range(0, len(steps), AT_ONCE):
                batch = data.batch(steps[first : first + AT_ONCE]).to(get_device(model))
                losses.append(self.loss(model, batch, LossState()))
        total, count = (sum(float(getattr(loss, name)) for loss in losses) for name in ("nll", "count"))
        return {"loss": total / count}

    def draw_samples(self, model: DecisionTransformer, pairs: Episodes, count: int) -> list[Sample]:
        return []  # an episode is watched, not read

    @property
    def targets(self) -> tuple[float, ...]:
        """The returns that an evaluation asks for; without a condition one, which is not read."""
        if self.config.condition == "none":
            return (0.0,)
        if self.config.targets:
            return self.config.targets
        low, *_, high = self.encoder.returns
        return tuple(dict.fromkeys(np.linspace(low, high, ASKED).tolist()))

    def evaluate(
        self, model: DecisionTransformer, pairs: Episodes, config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Play episodes for each return that is asked for. The same seeds for all: they begin alike."""
        asked, achieved = [], []
        for target in self.targets:
            returns = [episode.total for episode in self.play(model, target, self.config.episodes)]
            asked += [target] * len(returns)
            achieved += returns
        conditioned = self.config.condition == "return"
        sources = [f"{each:.6g}" if conditioned else "" for each in asked]
        best = [got for want, got in zip(asked, achieved, strict=True) if want == max(asked)]
        scores = [average_returns(best, f"asked for {max(asked):.4g}" if conditioned else "cloned")]
        if len(set(asked)) > 1:
            scores.append(replace(spearman(achieved, asked), detail=f"asked and achieved, {len(asked)} episodes"))
        return Evaluation(sources, [f"{each:.6g}" for each in achieved], [[""] for _ in asked], scores)

    def build_policy(self, model: DecisionTransformer, target: float | None = None) -> ModelPolicy:
        """The policy of the model, asked for a return; by default the highest one of `targets`."""
        return ModelPolicy(self, model, max(self.targets) if target is None else target)

    def play(self, model: DecisionTransformer, target: float, episodes: int, seed: int = FIRST_SEED) -> list[Any]:
        """Play episodes in the run's environment, asking for a return."""
        from headwise.worlds.environments import Environment
        from headwise.worlds.rollout import collect

        encoder, policy = self.encoder, ModelPolicy(self, model, target)
        if not encoder.environment:
            raise UserError("this model's folder names no environment to play in; train it on a log of one (init_from)")
        environment = Environment.of(encoder.environment, encoder.settings)
        return [episode for episode, _ in collect(environment, {"model": (policy, episodes)}, seed)]


class ModelPolicy:
    """Acts by a model: it reads the last steps, the return that is still asked for first, which goes down by each
    reward."""

    def __init__(self, task: Act, model: DecisionTransformer, target: float):
        self.task, self.model, self.target = task, model, target

    def start(self, environments: Any, seeds: Sequence[int]) -> None:
        from headwise.worlds.spaces import Spaces

        encoder, count = self.task.encoder, len(seeds)
        if Spaces.of(environments) != encoder.spaces:
            raise UserError(
                f"the run was trained in {encoder.environment}, whose observations or actions differ from these"
            )
        self.to_go = np.full(count, self.target)
        self.returns, self.seen, self.done = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        shape = () if encoder.spaces.discrete else (encoder.spaces.actions,)
        self.blank = np.zeros((count, *shape), np.int64 if encoder.spaces.discrete else np.float32)
        self.step, self.generator = 0, torch.Generator().manual_seed(int(seeds[0]))

    def act(self, observations: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        context, encoder = self.task.config.context, self.task.encoder
        self.to_go = self.to_go - rewards
        self.returns.append((self.to_go / encoder.scale).astype(np.float32))
        self.seen.append(observations)
        stacked = (np.stack(part[-context:], axis=1) for part in (self.returns, self.seen, [*self.done, self.blank]))
        returns, seen, done = map(torch.from_numpy, stacked)
        steps = torch.arange(self.step - returns.shape[1] + 1, self.step + 1).expand_as(returns)
        seen = encoder.normalise_observations(seen)
        batch = EpisodeBatch(returns, seen, done, steps, torch.ones_like(steps, dtype=torch.bool))
        with inference_mode(self.model):
            self.trajectory = self.task.read_trajectory(batch.to(get_device(self.model)))
            self.predicted = self.model(self.trajectory).actions[:, -1].cpu()  # (N, A)
        actions = self.choose(self.predicted).numpy()
        self.done.append(actions)
        self.step += 1
        del self.returns[:-context], self.seen[:-context], self.done[:-context]
        return encoder.unscale_actions(actions)

    def describe_step(self) -> StepView:
        """How the last action of the first copy came about: the attention of its token to past time steps, each of
        which is three tokens; means over heads."""
        predicted, trajectory = self.predicted[0].float(), Trajectory(*(part[:1] for part in self.trajectory[:4]))
        with inference_mode(self.model), record() as maps:
            self.model(trajectory)
        weights = np.concatenate(list(maps.stack_by_kind().values()))  # (L, H, 3T, 3T)
        past = np.nanmean(weights[:, :, -2], axis=1)  # the token of the last observation: (L, 3T)
        discrete, asked = self.task.encoder.spaces.discrete, self.task.config.condition == "return"
        return StepView(
            (predicted.softmax(-1) if discrete else predicted).numpy(),
            past=past.reshape(len(past), -1, TOKENS).sum(-1),
            to_go=float(self.to_go[0]) if asked else None,
        )

    def choose(self, predicted: Tensor) -> Tensor:
        """The most probable discrete action, or one that is drawn; continuous ones as they are."""
        if not self.task.encoder.spaces.discrete:
            return predicted
        if not self.task.config.sample:
            return predicted.argmax(-1)
        return torch.multinomial(predicted.float().softmax(-1), 1, generator=self.generator)[:, 0]


def sum_kept(values: Tensor, keep: Tensor) -> Tensor:
    """The sum of the values (B, T) where `keep`."""
    return values.where(keep, 0.0).sum()


def average_returns(returns: Sequence[float], detail: str) -> Score:
    """The mean return with its bootstrap interval over episodes."""
    rows = np.column_stack([returns, np.ones(len(returns))])
    interval = bootstrap_interval(rows, lambda sums: sums[:, 0] / sums[:, 1])
    return Score("return", float(np.mean(returns)), *interval, f"{detail}, {len(returns)} episodes")


class ActConfig(TaskConfig):
    """Actions in an environment, learnt from logs: a Decision Transformer, or behaviour cloning."""

    task_class = Act
    command = "act"
    reads = "episodes"
    kind: Literal["act"] = "act"
    context: int = Field(20, ge=1)  # time steps that the model reads
    condition: Literal["return", "none"] = "return"  # none: behaviour cloning, which is asked for no return
    state_weight: NonNegativeFloat = 0.0  # of the loss of the next state
    return_weight: NonNegativeFloat = 0.0  # of the loss of the next return
    sample: bool = False  # draw discrete actions by their probabilities instead of the most probable one
    targets: tuple[float, ...] = ()  # returns that an evaluation asks for; empty: from the lowest to the highest logged
    episodes: int = Field(20, ge=1)  # of an evaluation, for each of these
