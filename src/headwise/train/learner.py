"""Model, optimiser and schedule: one optimiser step at a time. Files, epochs and the clock are the loop's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from headwise.blocks.attention.branched import BranchWeights
from headwise.blocks.experts import ExpertLoad, merge_loads, summarise_loads
from headwise.blocks.record import collect
from headwise.blocks.replicas import REPLICAS
from headwise.blocks.stack import enable_checkpointing
from headwise.blocks.stream import LayerPath
from headwise.runs.checkpoint import Checkpoint, restore, unique_tensors
from headwise.train import hardware, optim, precision
from headwise.train.config import TrainConfig
from headwise.train.ema import Ema
from headwise.train.optim import NO_SCALES
from headwise.train.parallel.strategy import ALONE, Strategy
from headwise.train.state import HasAfterStep, LossState, State, Task
from headwise.utils.memory import needs_memory

SMALLER_BATCHES = (
    "lower train.batch_size or train.tokens_per_batch, and raise train.accumulate to keep the examples of a step, or "
    "shorten the examples"
)


class AnyLearner(Protocol):
    """What the loop asks of a learner, with gradients or without."""

    model: nn.Module
    device: torch.device
    rate: float
    sums: Tensor  # loss, nll and count since `reset_metrics`
    tokens: int

    def step(self, batches: Iterable[Any], step: int, progress: float) -> Tensor: ...
    def abort_step(self) -> None: ...
    def reset_metrics(self) -> None: ...
    @property
    def metrics(self) -> Mapping[str, Any]: ...
    def has_finite_loss(self, batch: Any) -> bool: ...
    def eval_mode(self) -> AbstractContextManager[nn.Module]: ...
    def checkpoint(self, state: dict[str, Any]) -> Checkpoint: ...
    def load(self, checkpoint: Checkpoint, where: str) -> State: ...
    def close(self) -> None: ...


class LossModule(nn.Module):
    """The loss of a batch as a module's forward pass, which strategies wrap: total, nll and count, and the loads of
    experts by layer."""

    def __init__(self, model: nn.Module, task: Task, autocast: AbstractContextManager[object]):
        super().__init__()
        self.model, self.task, self.autocast = model, task, autocast

    def forward(self, batch: Any, state: LossState) -> tuple[Tensor, Tensor, Tensor, Mapping[LayerPath, Any]]:
        with self.autocast, collect("aux", "load") as recorded:
            loss = self.task.loss(self.model, batch, state)
        # Auxiliary losses are means: times the token count they add to a sum over tokens.
        total = sum((loss.count * aux for aux in recorded.list_values("aux")), start=loss.total)
        sums = total, loss.nll, loss.count
        if REPLICAS.get().idle:
            total, nll, count = (value * 0 for value in sums)
            sums = total, nll, count
        return *sums, recorded.values.get("load", {})


class Learner:
    """Model, optimiser, schedule and moving average of the weights, with the metrics since `reset_metrics`."""

    loads: dict[LayerPath, ExpertLoad]  # of the experts, by layer

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        config: TrainConfig,
        seed: int,
        lr_scales: Mapping[str, float] = NO_SCALES,
        parallel: Strategy = ALONE,
    ):
        self.parallel = parallel
        self.task, self.seed, self.clip = task, seed, config.clip_norm
        self.device = hardware.prepare(config)
        self.autocast = precision.autocast(config.precision, self.device)
        self.schedule = config.build_schedule()
        self.start_progress = config.restart.progress  # of the loss, in a run that is trained longer
        self.model = model.to(self.device)
        self.optimizer = config.optimizer.build(model, lr_scales)
        self.state = task.init_state(model)
        self.carried_before = self.state.carried  # before the current step, in case it is aborted
        self.frozen_late = [
            (weight, module.freeze_at)
            for module in model.modules()
            if isinstance(module, BranchWeights)
            for weight in module.parameters()
        ]
        self.ema = Ema(model, config.ema)
        self.rate = 0.0
        if config.checkpointing:
            enable_checkpointing(model)
        if config.compile:
            model.compile()
        model.train()
        self.compute_loss = parallel.wrap(LossModule(model, task, self.autocast))
        self.reset_metrics()

    def step(self, batches: Iterable[Any], step: int, progress: float) -> Tensor:
        """One optimiser step by gradient accumulation over batches; returns the gradient norm, still on the device."""
        with needs_memory("train: a batch", SMALLER_BATCHES):
            return self._step(batches, step, progress)

    def _step(self, batches: Iterable[Any], step: int, progress: float) -> Tensor:
        # Seeding each step makes its random numbers a function of seed and step: there is no generator state to save,
        # and random numbers drawn in validation change nothing.
        reseed(self.seed, step, self.device, self.parallel.rank)
        sums = torch.zeros_like(self.sums)
        tokens, loads = 0, self.loads
        self.state.progress = self.start_progress + (1 - self.start_progress) * progress
        self.carried_before = self.state.carried
        for batch, context in self.parallel.sync_last(batches):
            with context, self.parallel.divide(batch) as share:
                *parts, layer_loads = self.compute_loss(share.to(self.device), self.state)
                parts[0].backward()
            sums += torch.stack([part.detach().to(sums.dtype) for part in parts])
            loads = merge_loads(loads, layer_loads)
            tokens += batch.tokens
        sums = self.parallel.sum(sums)
        for weight, freeze_at in self.frozen_late:
            if progress >= freeze_at:
                weight.grad = None  # without a gradient an optimiser changes neither the weight nor its own state
        self.rate = self.schedule(step, progress)
        norm = optim.clip_and_step(self.optimizer, sums[2], self.rate, self.clip)
        if isinstance(self.task, HasAfterStep):
            self.task.after_step(self.model, step)
        self.ema.update(step)
        self.sums += sums.where(norm.isfinite(), 0.0)
        self.tokens += tokens
        self.loads = loads
        return norm

    def close(self) -> None:
        """Called when training has ended."""

    def abort_step(self) -> None:
        """Undo an unfinished step: drop its gradient and restore the carried state."""
        self.optimizer.zero_grad(set_to_none=True)
        self.state.carried = self.carried_before

    def reset_metrics(self) -> None:
        # loss, nll, token count; read from the device only for the log
        exact = torch.promote_types(next(self.model.parameters()).dtype, torch.float32)
        self.sums = torch.zeros(3, dtype=exact, device=self.device)
        self.tokens = 0
        self.loads = {}

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """What is logged beside the loss: the load of the experts since `reset_metrics`, if there are any."""
        return {"load": summarise_loads(self.loads.values())} if self.loads else {}

    def has_finite_loss(self, batch: Any) -> bool:
        """Whether the loss of a batch is finite with the current weights, in eval mode."""
        self.model.eval()
        try:
            with torch.no_grad(), self.autocast:
                loss = self.task.loss(self.model, batch.to(self.device), replace(self.state))
        finally:
            self.model.train()
        return bool(loss.total.isfinite())

    @contextmanager
    def eval_mode(self) -> Iterator[nn.Module]:
        """The model as in inference: averaged weights, no dropout, no gradients."""
        self.model.eval()
        try:
            with self.ema.swap_in(), torch.no_grad(), self.autocast:
                yield self.model
        finally:
            self.model.train()

    def checkpoint(self, state: dict[str, Any]) -> Checkpoint:
        weights = unique_tensors(self.model)
        optimizer = optim.dump_state(self.optimizer, self.model)
        carried = self.parallel.gather_carried(self.state.carried)
        return Checkpoint(state, weights, optimizer, self.ema.dump(weights), carried)

    def load(self, checkpoint: Checkpoint, where: str) -> State:
        restore(self.model, checkpoint.model, where)
        optim.load_state(self.optimizer, self.model, checkpoint.optimizer)
        self.ema.load(checkpoint.ema)
        carried = self.parallel.select_carried(checkpoint.carried)
        self.state.carried = {name: tensor.to(self.device) for name, tensor in carried.items()}
        return State.from_json(checkpoint.state, where)


def reseed(seed: int, step: int, device: torch.device, rank: int = 0) -> None:
    """Seed the random number generators with a hash of seed and step, and of the rank of all but the main process."""
    text = f"{seed} {step} {rank}" if rank else f"{seed} {step}"
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
    # torch.manual_seed also queues a seed for backends that are not available, 200 µs a call
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)
