"""Plan the training of a model: what each strategy takes, which fit, and which is the fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from headwise.errors import UserError
from headwise.models.cost import list_length_limits
from headwise.planning.devices import Device
from headwise.planning.strategies import TRAINED, USABLE, Step, estimate_step
from headwise.planning.trace import StepTrace, build_on_meta, trace_step

TOKENS_PER_DEVICE = 8192
MAX_LENGTH = 1024  # unless another is asked for
MAX_ROWS = 1024
SECONDS_OF_DAY = 86400


@dataclass(frozen=True)
class Plan:
    """All strategies for one model and one set of devices, those that fit first, the fastest of them first."""

    model: str
    parameters: int
    length: int
    device: Device
    devices: int
    precision: str
    tokens: float  # of the whole training; 0: not given
    batch_tokens: int
    steps: tuple[Step, ...]

    @property
    def best(self) -> Step | None:
        """The fastest that fits, of those that `headwise train` has if one does."""
        fitting = [step for step in self.steps if step.fits]
        return next((step for step in fitting if step.strategy in TRAINED), fitting[0] if fitting else None)

    def count_days(self, step: Step) -> float:
        return self.tokens / step.tokens_per_second / SECONDS_OF_DAY

    def count_utilisation(self, step: Step) -> float:
        """The share of the rate that products reach alone."""
        return step.flops / step.seconds / self.device.get_flops(self.precision)


def make_plan(
    name: str, device: Device, *, devices: int = 1, tokens: float = 0.0, length: int = 0, batch_tokens: int = 0,
    precision: str = "float32", vocab: int = 0, settings: Mapping[str, Any] | None = None,
) -> Plan:  # fmt: skip
    """Plan a model of the catalogue for devices of one kind. 0 takes the usual length, at most 1,024, and batches of
    8,192 tokens for each device."""

    def build() -> nn.Module:
        return build_on_meta(name, vocab, settings)

    model = build()
    length = length or min([MAX_LENGTH, *list_length_limits(model)])
    batch_tokens = batch_tokens or TOKENS_PER_DEVICE * devices
    if batch_tokens < devices * length:
        raise UserError(
            f"a batch of {batch_tokens:,} tokens is less than one row of {length:,} tokens for each of {devices:,} "
            f"devices; --batch-tokens {devices * length} is the least"
        )
    steps = [
        step
        for checkpointing in (False, True)
        for step in plan_strategies(build, device, devices, length, batch_tokens, precision, checkpointing)
    ]
    steps.sort(key=lambda step: (not step.fits, -step.tokens_per_second if step.fits else step.total_memory))
    parameters = sum(each.numel() for each in model.parameters())
    return Plan(name, parameters, length, device, devices, precision, tokens, batch_tokens, tuple(steps))


def plan_strategies(
    build: Callable[[], nn.Module], device: Device, devices: int, length: int, batch_tokens: int, precision: str,
    checkpointing: bool,
) -> Iterator[Step]:  # fmt: skip
    """The best batch of each strategy: the largest number of rows that fits, at least one."""
    traces: dict[int, StepTrace] = {}

    def trace(rows: int) -> StepTrace:
        if rows not in traces:
            traces[rows] = trace_step(build(), rows, length, precision, checkpointing)
        return traces[rows]

    rows_of_step = max(1, batch_tokens // (devices * length))
    try:
        trace(1)
    except UserError:
        if checkpointing:  # a model whose layers cannot be recomputed
            return
        raise
    for strategy in ["none"] if devices == 1 else ["ddp", "fsdp"]:

        def estimate(rows: int, strategy: str = strategy) -> Step:
            return estimate_step(
                trace(rows), device, strategy=strategy, devices=devices, accumulate=-(-rows_of_step // rows),
                precision=precision, checkpointing=checkpointing,
            )  # fmt: skip

        batches = -(-rows_of_step // find_rows(estimate, rows_of_step))
        yield estimate(-(-rows_of_step // batches))  # batches of equal size


def find_rows(estimate: Callable[[int], Step], most: int) -> int:
    """The largest number of rows that fits; 1 if none does. Memory grows linearly, so two traces tell it."""
    first = estimate(1)
    if most == 1 or not first.fits:
        return 1
    slope = estimate(2).total_memory - first.total_memory
    rows = min(most, MAX_ROWS, 1 + int((USABLE * first.available - first.total_memory) / max(slope, 1)))
    while rows > 1 and not estimate(rows).fits:
        rows -= -(-rows // 8)
    return rows


def count_needed(plan: Plan) -> int:
    """The smallest power of two of devices on which sharding fits; 0 if none does, as activations alone are too
    large."""
    sharded = [step for step in plan.steps if step.strategy in ("fsdp", "none")]
    best = min(sharded, key=lambda step: step.memory.get("activations", step.total_memory))
    whole = plan.parameters * 16
    fixed = sum(best.memory.get(key, 0.0) for key in ("activations", "gathered"))
    room = USABLE * plan.device.memory - fixed
    if room <= 0 or not fixed:
        return 0
    devices = 1
    while whole / devices > room:
        devices *= 2
    return devices


def list_parts(steps: Sequence[Step]) -> list[str]:
    """What memory holds, over all strategies, in order."""
    return list(dict.fromkeys(part for step in steps for part in step.memory))
