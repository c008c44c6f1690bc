"""Checkpoints: a folder of safetensors with a manifest, saved atomically and verified when read.

    save      model, optimizer, ema and carried tensors, the loop's state; then `last`, `best` and pruning
    latest    the newest one that is whole; damaged ones are passed over with a warning
    weights   the tensors to use: of the best or last checkpoint, of a step, or an average
    restore   put tensors into a model of the same architecture

A tied tensor is stored once, under the first of its names.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from headwise.errors import UserError
from headwise.runs.differences import flattened
from headwise.runs.manifest import Damaged, check, seal
from headwise.runs.run import Run, read_state
from headwise.utils.files import appearing

log = logging.getLogger("headwise")

Tensors = Mapping[str, Tensor]
PARTS = ("model", "optimizer", "ema", "carried")
USED = ("model", "ema")  # what one needs of a checkpoint to use the model


@dataclass(frozen=True)
class Checkpoint:
    """All that training needs to go on. `state` is plain JSON with at least `step`."""

    state: Mapping[str, Any]
    model: Tensors
    optimizer: Tensors = field(default_factory=dict)
    ema: Tensors = field(default_factory=dict)
    carried: Tensors = field(default_factory=dict)  # what the model remembers of the last batch

    @property
    def step(self) -> int:
        return self.state["step"]


class NonFinite(UserError):
    """Weights that are lost: the checkpoints before stay as they are."""

    def __init__(self, name: str):
        super().__init__(f"the weights are not finite ({name}), so they are not saved")
        self.name = name


def save(run: Run, checkpoint: Checkpoint, keep: int = 3) -> Path:
    """Write a checkpoint; the older ones stay untouched until it is safely there. Raises NonFinite before it writes."""
    check_finite(checkpoint)
    target = run.checkpoint(checkpoint.step)
    with appearing(target, run.stage) as aside:
        for part in PARTS:
            run.stage(f"write {part}")
            if tensors := getattr(checkpoint, part):
                _write(aside / f"{part}.safetensors", tensors)
        (aside / "state.json").write_text(json.dumps(dict(checkpoint.state), indent=1), encoding="utf-8")
        run.stage("manifest")
        seal(aside)
    settle(run, checkpoint, keep)
    return target


def check_finite(checkpoint: Checkpoint) -> None:
    """Raise NonFinite where a weight is NaN or infinite."""
    if name := find_non_finite({part: getattr(checkpoint, part) for part in USED}):
        raise NonFinite(name)


def find_non_finite(parts: Mapping[str, Tensors]) -> str:
    """The name of the first weight that is NaN or infinite; empty where there is none.

    Minus infinity passes: it is log 0 in the tables of n-gram models and HMMs. Weights that training has lost hold
    NaN or both infinities.
    """
    for part in USED:
        for name, tensor in parts.get(part, {}).items():
            if tensor.is_floating_point() and tensor.numel():
                low, high = tensor.aminmax()  # NaN if one of them is
                if low.isnan() or not high.isfinite():
                    return name
    return ""


def settle(run: Run, checkpoint: Checkpoint, keep: int) -> None:
    """What follows a save, and is made up for on resuming: `last` and `best` point, old ones go."""
    run.stage("last")
    run.point("last", checkpoint.step)
    if best := checkpoint.state.get("best"):
        run.stage("best")
        run.point("best", best["step"])
    run.prune(keep)


def read(folder: Path, parts: Iterable[str] = PARTS) -> Checkpoint:
    """Read some parts of a checkpoint; raises Damaged when a file is not what was written."""
    held = check(folder, ["state.json", *(f"{part}.safetensors" for part in parts)])
    try:
        state = read_state(folder)
        tensors = {part: load_file(folder / name) for part in parts if (name := f"{part}.safetensors") in held}
    except (OSError, ValueError, SafetensorError) as error:
        raise Damaged(folder, f"it cannot be read ({error})") from error
    if "step" not in state:
        raise Damaged(folder, "its state.json names no step")
    if name := find_non_finite(tensors):
        raise Damaged(folder, f"{name} is not finite")
    return Checkpoint(state, tensors.pop("model", {}), **tensors)


def latest(run: Run, parts: Iterable[str] = PARTS, first: int | None = None) -> Checkpoint | None:
    """The newest whole checkpoint, or None where there is none yet; `first` is tried before all others."""
    steps = run.steps()
    order = dict.fromkeys(([] if first is None else [first]) + steps[::-1])
    for step in order:
        try:
            return read(run.checkpoint(step), parts)
        except Damaged as error:
            log.warning("%s", error)
    if steps:
        raise UserError(f"{run.checkpoints}: no checkpoint is whole; restore a copy or train anew")
    return None


def weights(run: Run, which: str = "best") -> dict[str, Tensor]:
    """The weights to use: `best`, `last`, `average` or `step-N`; their moving average where there is one.

    Without validation there is no best checkpoint and the last one is taken.
    """
    if which == "average":
        return average_checkpoints(run, flattened(run.config).get("train.average_checkpoints") or len(run.steps()))
    if which in ("best", "last"):
        found = latest(run, USED, first=run.pointed(which))
        if found is None:
            raise UserError(f"{run.path} has no checkpoint yet; train it first")
        return _used(found)
    known = {f"step-{step}": step for step in run.steps()}
    if which not in known:
        names = ", ".join(["best", "last", "average", *known])
        raise UserError(f"{run.path} has no checkpoint '{which}'; known: {names}")
    return _used(read(run.checkpoint(known[which]), USED))


def average_checkpoints(run: Run, count: int) -> dict[str, Tensor]:
    """Checkpoint averaging: the mean of the weights of the last `count` checkpoints ("Attention is all you need",
    6.1)."""
    steps = ([step for step in run.steps() if step] or run.steps())[-count:]  # what a run began with is no result
    if not steps:
        raise UserError(f"{run.path} has no checkpoint yet; train it first")
    sums: dict[str, Tensor] = {}
    for step in steps:
        tensors = _used(read(run.checkpoint(step), USED))
        for name, tensor in tensors.items():
            # in float64, so that the mean of equal weights is that weight to the last bit
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    return {
        name: (sums[name] / len(steps)).to(last.dtype) if last.is_floating_point() else last
        for name, last in tensors.items()
    }


def unique(model: nn.Module) -> dict[str, Tensor]:
    """A model's tensors, tied ones once."""
    seen: set[tuple[Any, ...]] = set()
    tensors = {}
    for name, tensor in model.state_dict().items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() == 0 or place not in seen:
            tensors[name] = tensor
        seen.add(place)
    return tensors


def restore(model: nn.Module, tensors: Tensors, where: str = "the checkpoint") -> None:
    """Copy tensors into a model; another architecture is refused, naming what differs."""
    own = unique(model)
    problems = [f"{name} is missing" for name in own.keys() - tensors.keys()]
    problems += [f"{name} is not in the model" for name in tensors.keys() - own.keys()]
    problems += [
        f"{name} is {tuple(tensors[name].shape)}, the model has {tuple(own[name].shape)}"
        for name in own.keys() & tensors.keys()
        if own[name].numel() and own[name].shape != tensors[name].shape  # an empty table waits for its contents
    ]
    if problems:
        shown = "; ".join(sorted(problems)[:5])
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise UserError(f"{where} belongs to another architecture: {shown}{more}; build the model of its config")
    model.load_state_dict(dict(tensors), strict=False)  # ties carry the names that are stored once


def _used(checkpoint: Checkpoint) -> dict[str, Tensor]:
    return dict(checkpoint.ema or checkpoint.model)


def _write(path: Path, tensors: Tensors) -> None:
    try:
        save_file({name: _alone(tensor.detach()) for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))  # the library hides the system's error in words
        raise OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error)) from error


def _alone(tensor: Tensor) -> Tensor:
    """A tensor with a storage to itself: safetensors takes no views of a larger one."""
    whole = tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor.contiguous() if whole else tensor.clone(memory_format=torch.contiguous_format)
