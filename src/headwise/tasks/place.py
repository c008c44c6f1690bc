"""Placing operators on devices: a policy learns from simulated steps by PPO (Schulman et al. 2017).

For each graph in turn, `rollouts` placements are drawn and simulated. Their reward is the negative square root of the
runtime, -10 for a placement that does not fit (Zhou et al. 2020); then the policy takes `updates` steps on them, with
the clipped ratio of probabilities of each choice. What a run gives is the best placement that it found of each graph;
a graph that it did not search gets the policy's most probable placement (zero-shot).

DISCREPANCY: the runtime in a reward is relative to that of one device with enough memory, so that graphs of different
sizes count alike. The advantage is the reward less the mean of the rollouts of the graph, divided by their standard
deviation.

Letters: B rollouts, K choices of a placement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss, count_examples
from headwise.config.base import NonNegativeFloat
from headwise.data.config import DataConfig
from headwise.data.prepare import Prepared
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.models.placement_heuristic import PlacementHeuristic
from headwise.models.placement_policy import GraphInput, PlacementModel, Policy
from headwise.placement.config import Graphs, GraphsConfig
from headwise.placement.encoder import GraphEncoder
from headwise.placement.features import describe_graph
from headwise.placement.simulator import Simulator
from headwise.tasks.base import Evaluation, Sample, Task, TaskConfig
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric

INVALID = -10.0  # reward of a placement that does not fit
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True, eq=False)
class PlacementBatch:
    """A graph, and which of the updates on its rollouts this is; at the first one they are drawn."""

    simulator: Simulator
    graph: GraphInput
    update: int
    tokens: int  # placements, which the training loop counts as it counts the tokens of texts

    def __len__(self) -> int:
        return self.tokens

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PlacementBatch:
        tensors = (self.graph.kinds.to(device), self.graph.numbers.to(device), self.graph.edges.to(device))
        return PlacementBatch(self.simulator, GraphInput(*tensors, self.graph.devices), self.update, self.tokens)


class PlacementData:
    """All graphs once an epoch in a random order, each with the updates on one set of rollouts."""

    unit = "placements"  # counted by the training loop

    def __init__(self, graphs: Graphs, seed: int, config: PlaceConfig):
        self.graphs, self.seed, self.config = graphs, seed, config
        self.inputs = [GraphInput.from_features(describe_graph(simulator)) for simulator in graphs]

    @property
    def summary(self) -> str:
        nodes = sum(len(simulator.graph) for simulator in self.graphs)
        return f"{len(self.graphs)} graphs to place, {nodes:,} operators"

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.graphs))
        updates = self.config.updates
        return [np.array([updates * graph + update]) for graph in order for update in range(updates)]

    def batch(self, numbers: np.ndarray) -> PlacementBatch:
        graph, update = divmod(int(numbers[0]), self.config.updates)
        tokens = 0 if update else self.config.rollouts
        return PlacementBatch(self.graphs[graph], self.inputs[graph], update, tokens)


class Place(Task["PlaceConfig", PlacementModel, Graphs, Graphs]):
    """Devices for the operators of graphs."""

    host_work = "placements are simulated"

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        assert isinstance(data, GraphsConfig)
        splits = data.load()
        encoder = GraphEncoder.from_graphs(splits.train)
        return Prepared(
            Tokenisers(encoder, encoder), splits.train, splits.valid, splits.valid, splits.test, splits.files
        )

    @property
    def encoder(self) -> GraphEncoder:
        assert isinstance(self.tokenisers.source, GraphEncoder)
        return self.tokenisers.source

    def build(self, model: ModelConfig) -> PlacementModel:
        if isinstance(self.tokenisers.source, GraphEncoder):
            model = model.replace(graphs=self.encoder.graphs)
            limit = getattr(model, "devices", inf)
            if self.encoder.devices > limit:
                raise UserError(
                    f"model.devices: the model knows {limit} devices, the data have {self.encoder.devices}; raise it"
                )
        built: PlacementModel = model.build(0, 0, self.config.model_task)
        return built

    def build_batches(self, examples: Graphs, seed: int, config: TrainConfig) -> PlacementData:
        if config.accumulate > 1:
            raise UserError("train.accumulate: a step is taken on the rollouts of one graph; set it to 1")
        return PlacementData(examples, seed, self.config)

    @property
    def units(self) -> str:
        return f"{self.config.rollouts} rollouts, {self.config.updates} updates on each"

    def load_test_pairs(self, data: DataConfig) -> Graphs:
        assert isinstance(data, GraphsConfig)
        return data.load().test

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("reward", lower=False)

    def fit_model(self, model: PlacementModel, examples: Graphs) -> None:
        assert isinstance(model, PlacementHeuristic)
        for simulator in examples:
            model.fit(simulator)

    def loss(self, model: PlacementModel, batch: PlacementBatch, state: LossState) -> Loss:
        """The clipped objective of PPO less the entropy bonus, as a sum over rollouts."""
        assert isinstance(model, Policy)
        if batch.update == 0 and model.training:
            state.carried = self.roll_out(model, batch)
        actions, old, advantage = (state.carried[name] for name in ("actions", "log_probs", "advantage"))
        measured = model.measure(batch.graph, actions)
        objective = clip_objective(measured.log_probs, old, advantage, self.config.clip)
        entropy = measured.entropy.mean()
        rows = len(actions)
        total = -rows * (objective + self.config.entropy * (1 - state.progress) * entropy)
        return Loss(total, (-rows * state.carried["reward"]).detach(), count_examples(actions))

    @torch.no_grad()
    def roll_out(self, model: Policy, batch: PlacementBatch) -> dict[str, Tensor]:
        """Draw placements and simulate them; the best one is kept in the model."""
        actions = model.draw(batch.graph, self.config.rollouts)
        old = model.measure(batch.graph, actions).log_probs
        placements = model.place(batch.graph, actions).cpu().numpy()
        runtimes = batch.simulator.measure(placements)
        model.found.update(batch.simulator.key, placements, runtimes, len(runtimes))
        rewards = torch.from_numpy(compute_rewards(runtimes, batch.simulator.serial)).to(old)
        advantage = (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-6)
        return {"actions": actions, "log_probs": old, "advantage": advantage, "reward": rewards.mean()}

    def choose_placement(self, model: PlacementModel, simulator: Simulator) -> np.ndarray:
        """The best placement found of a graph, or of one that was not searched the most probable one."""
        if model.found.has(simulator.key):
            return model.found.get("placement", simulator.key).cpu().numpy()
        if not isinstance(model, Policy):
            raise UserError(
                f"{simulator.graph.name}: a heuristic places the graphs of its run alone; give it in data.train"
            )
        with inference_mode(model):
            graph = GraphInput.from_features(describe_graph(simulator), get_device(model))
            return np.asarray(model(graph).cpu().numpy())

    def measure_all(self, model: PlacementModel, graphs: Graphs) -> np.ndarray:
        """Seconds of a step of each graph; infinite if it does not fit."""
        return np.array([each.measure(self.choose_placement(model, each)[None])[0] for each in graphs])

    def validate(self, model: PlacementModel, examples: Graphs, pairs: Graphs) -> Mapping[str, float]:
        runtimes = self.measure_all(model, examples)
        rewards = [compute_rewards(time, each.serial) for time, each in zip(runtimes, examples, strict=True)]
        return {"reward": float(np.mean(rewards))}

    def draw_samples(self, model: PlacementModel, pairs: Graphs, count: int) -> list[Sample]:
        return []  # a placement is drawn as a timeline, not read

    def evaluate(
        self, model: PlacementModel, pairs: Graphs, config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """The step of each graph by its best placement."""
        runtimes = self.measure_all(model, pairs)
        serial = np.array([simulator.serial for simulator in pairs])
        searched = [int(model.found.get("calls", each.key)) for each in pairs if model.found.has(each.key)]
        scores = [
            *average_runtimes(runtimes, serial),
            Score(OUT_OF_MEMORY, float(np.isinf(runtimes).sum()), nan, nan, f"of {len(pairs)} graphs"),
            Score("calls", float(np.mean(searched)) if searched else 0.0, nan, nan, "of the simulator, for a graph"),
        ]
        outputs = [f"{time:.6g}" if isfinite(time) else OUT_OF_MEMORY for time in runtimes]
        references = [[f"{time:.6g}"] for time in serial]
        return Evaluation([each.graph.name for each in pairs], outputs, references, scores)


def compute_rewards(runtimes: np.ndarray | float, serial: float) -> np.ndarray:
    """-sqrt(runtime / serial), or -10 for what does not fit.

    >>> compute_rewards(np.array([4.0, inf]), serial=1.0)
    array([ -2., -10.])
    """
    times = np.asarray(runtimes, float)
    return np.where(np.isfinite(times), -np.sqrt(np.where(np.isfinite(times), times, 0.0) / serial), INVALID)


def clip_objective(log_probs: Tensor, old: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """PPO's objective: the mean over choices of min(r A, clip(r, 1 - ε, 1 + ε) A) with r = p / p_old, of log
    probabilities (B, K) and the advantage of each rollout (B,)."""
    ratio, gain = (log_probs - old).exp(), advantage.unsqueeze(1)
    return torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()


def average_runtimes(runtimes: np.ndarray, serial: np.ndarray) -> list[Score]:
    """Geometric means over the graphs that fit: milliseconds, and relative to one device with enough memory."""
    fits = np.isfinite(runtimes)
    if not fits.any():
        return []
    logs = np.column_stack([np.log(1000 * runtimes[fits]), np.log(runtimes[fits] / serial[fits]), np.ones(fits.sum())])
    scores = []
    for column, name, unit in ((0, "runtime", "ms"), (1, "of one device", "")):
        interval = (
            bootstrap_interval(logs, lambda sums, at=column: np.exp(sums[:, at] / sums[:, 2]))  # type: ignore[misc]
            if fits.sum() > 1
            else (nan, nan)
        )
        scores.append(Score(name, float(np.exp(logs[:, column].mean())), *interval, f"{fits.sum()} graphs", unit))
    return scores


class PlaceConfig(TaskConfig):
    """Placement of operators on devices, learnt by PPO."""

    task_class = Place
    command = "place"
    reads = "graphs"
    kind: Literal["place"] = "place"
    rollouts: int = Field(32, ge=2)  # placements that are drawn and simulated together
    updates: int = Field(16, ge=1)  # steps of the optimiser on these
    clip: float = Field(0.3, gt=0, lt=1)  # of the ratio of probabilities, on either side of 1
    entropy: NonNegativeFloat = 0.01  # weight of the entropy of a choice; falls to 0 over the training
