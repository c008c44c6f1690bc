"""Memory, communication and time of a training step under each strategy of `[train] parallel`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwise.planning.devices import Device
from headwise.planning.trace import FLOAT, StepTrace

ADAM = 8  # bytes of two moments for each parameter
UPDATE_BYTES = 28  # that Adam reads and writes for each parameter
USABLE = 0.92  # of a device's memory; the rest is the runtime's, and lost between blocks
STRATEGIES = {
    "none": "one device",
    "ddp": "every device has the whole model; gradients are summed",
    "fsdp": "parameters, gradients and moments are sharded; a layer is gathered where it is computed; "
    "`headwise train` does not shard yet",
}
TRAINED = ("none", "ddp")  # those of `[train] parallel`


@dataclass(frozen=True)
class Step:
    """A step of all devices."""

    strategy: str
    checkpointing: bool
    devices: int
    rows: int  # of a device's batch
    accumulate: int
    memory: Mapping[str, float]  # bytes of one device by what they hold
    available: float
    communication: float  # bytes that a device sends in a step
    compute: float  # seconds
    exposed: float  # seconds in which devices wait for one another
    tokens: int  # of a step, all devices
    flops: float  # of a step and device

    @property
    def total_memory(self) -> float:
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        return self.total_memory <= USABLE * self.available

    @property
    def seconds(self) -> float:
        return self.compute + self.exposed

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def estimate_step(
    trace: StepTrace, device: Device, *, strategy: str, devices: int, accumulate: int, precision: str,
    checkpointing: bool, optimizer_bytes: int = 0,
) -> Step:  # fmt: skip
    """A step in which each device computes `accumulate` batches of the traced size."""
    pass_seconds = time_operations(trace, device, precision)
    shards = devices if strategy == "fsdp" else 1
    compute = accumulate * pass_seconds + UPDATE_BYTES * trace.parameters / shards / device.bandwidth
    sent = count_sent(trace, strategy, devices, accumulate)
    # sums of gradients overlap with the backward pass, two thirds of the last batch; gathered layers with all passes
    hidden = {"none": 0.0, "ddp": pass_seconds * 2 / 3, "fsdp": accumulate * pass_seconds}[strategy]
    return Step(
        strategy=strategy,
        checkpointing=checkpointing,
        devices=devices,
        rows=trace.rows,
        accumulate=accumulate,
        memory=count_memory(trace, strategy, devices, accumulate, optimizer_bytes or ADAM * trace.parameters),
        available=device.memory,
        communication=sent,
        compute=compute,
        exposed=max(0.0, sent / device.get_link(devices) - hidden) if devices > 1 else 0.0,
        tokens=devices * accumulate * trace.tokens,
        flops=accumulate * trace.flops,
    )


def time_operations(trace: StepTrace, device: Device, precision: str) -> float:
    """Seconds of a forward and backward pass: each operation takes the longest of its arithmetic, its traffic with
    memory, and the overhead of any operation."""
    rate = device.get_flops(precision)
    return sum(
        max(
            each.flops / (rate * (device.batched_share if each.batched else 1)),
            each.bytes / device.bandwidth,
            device.overhead,
        )
        for each in trace.operations
    )


def count_memory(
    trace: StepTrace, strategy: str, devices: int, accumulate: int, optimizer_bytes: int
) -> dict[str, float]:
    """Peak bytes of one device."""
    gradients, weights = FLOAT * trace.parameters, trace.weights + trace.casts
    if strategy == "fsdp":
        gathered = 3 * FLOAT * trace.largest_layer  # a layer, the next one, and the gradient of one
        return {
            "weights": trace.weights / devices,
            "gradients": gradients / devices,
            "optimiser": optimizer_bytes / devices,
            "activations": trace.activations,
            "gathered": gathered,
        }
    if strategy == "none" and accumulate == 1:  # gradients come while activations go
        return {"weights": weights, "optimiser": optimizer_bytes, "activations and gradients": trace.peak}
    return {
        "weights": weights,
        "gradients": gradients,
        "optimiser": optimizer_bytes,
        "activations": trace.activations,
    }


def count_sent(trace: StepTrace, strategy: str, devices: int, accumulate: int) -> float:
    """Bytes that a device sends in a step, by ring algorithms: a sum over all devices sends everything twice, gathering
    and scattering once."""
    if devices == 1 or strategy == "none":
        return 0.0
    ring = (devices - 1) / devices * FLOAT * trace.parameters
    return 2 * ring if strategy == "ddp" else (2 * accumulate + 1) * ring  # gathered in both passes of each batch
