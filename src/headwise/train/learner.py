"""A model that learns: losses in, updates out. It knows nothing of files, epochs and clocks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.experts import ExpertLoad, added, summary
from headwise.blocks.record import collect
from headwise.blocks.stream import LayerPath
from headwise.runs.checkpoint import Checkpoint, restore, unique_tensors
from headwise.train import hardware, optim
from headwise.train.config import TrainConfig
from headwise.train.ema import Ema
from headwise.train.optim import NO_SCALES
from headwise.train.state import State, Task


class Learner:
    """Model, optimiser, schedule and moving average, with the sums of what was learnt since `reset`."""

    loads: dict[LayerPath, ExpertLoad]  # of experts, by their places

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        config: TrainConfig,
        seed: int,
        lr_scales: Mapping[str, float] = NO_SCALES,
    ):
        self.task, self.seed, self.clip = task, seed, config.clip_norm
        self.device = hardware.prepare(config)
        self.autocast = hardware.autocast(config.precision, self.device)
        self.schedule = config.schedule.build()
        self.model = model.to(self.device)
        self.optimizer = config.optimizer.build(model, lr_scales)
        self.state = task.init_state(model)
        self.before = self.state.carried  # of the last group of batches, in case this one is broken off
        self.ema = Ema(model, config.ema)
        self.rate = 0.0
        if config.compile:
            model.compile()
        model.train()
        self.reset()

    def step(self, batches: Iterable[Any], step: int, progress: float) -> Tensor:
        """One update by gradient accumulation over a group of batches; returns the gradient's norm, not yet read."""
        # Seeding each step makes the random numbers a function of the step, like the order of the
        # data: there is no generator state to save, and validation may draw as many as it likes.
        reseed(self.seed, step, self.device)
        sums = torch.zeros(3, device=self.device)
        tokens, loads = 0, self.loads
        self.state.progress = progress
        self.before = self.state.carried
        for batch in batches:
            with self.autocast, collect("aux", "load") as side:
                loss = self.task.loss(self.model, batch.to(self.device), self.state)
            # What parts ask for beside the task counts as often as its tokens do, so that their mean has it once.
            total = sum((loss.count * aux for aux in side.all("aux")), start=loss.total)
            total.backward()
            sums += torch.stack([part.detach().float() for part in (total, loss.nll, loss.count)])
            loads = added(loads, side.values.get("load", {}))
            tokens += batch.tokens
        self.rate = self.schedule(step, progress)
        norm = optim.update(self.optimizer, sums[2], self.rate, self.clip)
        self.ema.update(step)
        self.sums += sums.where(norm.isfinite(), 0.0)
        self.tokens += tokens
        self.loads = loads
        return norm

    def forget(self) -> None:
        """Drop the gradient of a group that was broken off, and what its batches left for the next."""
        self.optimizer.zero_grad(set_to_none=True)
        self.state.carried = self.before

    def reset(self) -> None:
        self.sums = torch.zeros(3, device=self.device)  # loss, nll, count: read only when logged
        self.tokens = 0
        self.loads = {}

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """What a row says of experts, where there are some: their load since `reset`; read only when logged."""
        return {"load": summary(self.loads.values())} if self.loads else {}

    def has_finite_loss(self, batch: Any) -> bool:
        """Whether the loss of a batch is finite with the weights of now; nothing else changes."""
        self.model.eval()
        try:
            with torch.no_grad(), self.autocast:
                loss = self.task.loss(self.model, batch.to(self.device), replace(self.state))
        finally:
            self.model.train()
        return bool(loss.total.isfinite())

    @contextmanager
    def eval_mode(self) -> Iterator[nn.Module]:
        """The model as it will be used: averaged weights, no dropout, no gradients."""
        self.model.eval()
        try:
            with self.ema.swap_in(), torch.no_grad(), self.autocast:
                yield self.model
        finally:
            self.model.train()

    def checkpoint(self, state: dict[str, Any]) -> Checkpoint:
        weights = unique_tensors(self.model)
        dump = optim.dump_state(self.optimizer, self.model)
        return Checkpoint(state, weights, dump, self.ema.dump(weights), self.state.carried)

    def load(self, checkpoint: Checkpoint, where: str) -> State:
        restore(self.model, checkpoint.model, where)
        optim.load_state(self.optimizer, self.model, checkpoint.optimizer)
        self.ema.load(checkpoint.ema)
        self.state.carried = {name: tensor.to(self.device) for name, tensor in checkpoint.carried.items()}
        return State(**checkpoint.state)


def reseed(seed: int, step: int, device: torch.device) -> None:
    """Set the generators to a number mixed from seed and step."""
    number = int.from_bytes(hashlib.blake2b(f"{seed} {step}".encode(), digest_size=8).digest()) >> 1
    # torch.manual_seed also queues a seed for each accelerator that is not there, 200 µs a call
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)
