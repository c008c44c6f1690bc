"""The learner without gradients: a step of training is a generation of an evolution strategy.

It takes the place of `headwise.train.learner.Learner` in the training loop, so that budgets, validation, checkpoints,
resuming and metrics are those of every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headwise.blocks.evaluation import eval_mode
from headwise.errors import UserError
from headwise.runs.checkpoint import Checkpoint, restore, unique_tensors
from headwise.train import hardware
from headwise.train.config import TrainConfig
from headwise.train.evolution.workers import Workers
from headwise.train.optim import NO_SCALES
from headwise.train.state import State


def list_trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are evolved, by name: those that are not frozen."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def read_vector(model: nn.Module) -> np.ndarray:
    """The parameters that are evolved as one vector."""
    return np.concatenate([weight.detach().double().flatten().cpu().numpy() for weight in list_trained(model).values()])


def split_vectors(model: nn.Module, vectors: np.ndarray) -> dict[str, Tensor]:
    """Vectors (M, D) of M members as parameters by name, (M, ...) each."""
    parameters, start = dict[str, Tensor](), 0
    for name, weight in list_trained(model).items():
        part = torch.from_numpy(vectors[:, start : start + weight.numel()]).to(weight)
        parameters[name] = part.unflatten(1, weight.shape)
        start += weight.numel()
    return parameters


def write_vector(model: nn.Module, vector: np.ndarray) -> None:
    """Copy a vector into the model."""
    with torch.no_grad():
        for name, value in split_vectors(model, vector[None]).items():
            model.get_parameter(name).copy_(value[0])


class Evolver:
    """Model, evolution strategy and workers. The model has the mean of the strategy's distribution."""

    def __init__(
        self, model: nn.Module, task: Any, config: TrainConfig, seed: int, lr_scales: Mapping[str, float] = NO_SCALES
    ):
        self.device = hardware.prepare(config.replace(device="cpu"))
        self.model, self.seed = model.eval(), seed
        if not list_trained(model):
            raise UserError("tuning: all parameters are frozen, so there is nothing to evolve; leave some out")
        settings = task.config.strategy
        self.strategy = settings.build(read_vector(model))
        self.workers = Workers(task, model, settings.jobs)
        self.schedule = config.build_schedule()
        self.rate, self.lowest = 0.0, float("inf")
        self.reset_metrics()

    def step(self, batches: Iterable[Any], step: int, progress: float) -> Tensor:
        """A generation: draw a population, measure all members on the same batches, update the distribution. Returns
        how far the mean has moved."""
        population, before = self.strategy.ask(np.random.default_rng([self.seed, step])), self.strategy.mean
        results = [self.workers.measure(population, batch) for batch in batches]
        losses = np.mean([result.losses for result in results], axis=0)
        self.rate = self.schedule(step, progress)
        self.strategy.tell(population, losses, self.rate)
        write_vector(self.model, self.strategy.mean)
        self.sums += torch.tensor([losses.sum(), losses.sum(), len(losses)])
        self.tokens += sum(result.steps for result in results)
        self.lowest = min(self.lowest, float(losses.min()))
        return torch.tensor(np.linalg.norm(self.strategy.mean - before))

    def abort_step(self) -> None:
        """Undo an unfinished step: nothing has changed."""

    def reset_metrics(self) -> None:
        self.sums, self.tokens, self.lowest = torch.zeros(3), 0, float("inf")

    @property
    def metrics(self) -> dict[str, Any]:
        """The lowest loss of a member since `reset_metrics`, and the step size."""
        return {"population": {"lowest": self.lowest, "sigma": self.strategy.sigma}}

    def has_finite_loss(self, batch: Any) -> bool:
        """Losses are compared, not followed: only the weights could diverge, and they are checked when saved."""
        return True

    @contextmanager
    def eval_mode(self) -> Iterator[nn.Module]:
        with eval_mode(self.model), torch.no_grad():
            yield self.model

    def checkpoint(self, state: dict[str, Any]) -> Checkpoint:
        arrays = {name: torch.from_numpy(np.array(array)) for name, array in self.strategy.arrays.items()}
        return Checkpoint(state, unique_tensors(self.model), arrays)

    def load(self, checkpoint: Checkpoint, where: str) -> State:
        restore(self.model, checkpoint.model, where)
        if checkpoint.optimizer:
            try:
                self.strategy.restore({name: tensor.numpy() for name, tensor in checkpoint.optimizer.items()})
            except ValueError as error:
                raise UserError(f"{where}: {error}; resume it with the strategy that it had") from None
        return State(**checkpoint.state)

    def close(self) -> None:
        self.workers.close()
