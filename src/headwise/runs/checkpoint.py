"""Checkpoints: a folder of safetensors with a manifest of SHA-256 hashes, saved atomically and verified when read.

    save           model, optimizer, ema, carried and data tensors, the loop's state; then `last`, `best` and pruning
    load_latest    the newest intact checkpoint; damaged ones are skipped with a warning
    load_weights   the weights for inference: of the best or last checkpoint, of a step, or an average
    restore        copy tensors into a model of the same architecture

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
from headwise.runs.differences import flatten
from headwise.runs.manifest import Damaged, verify_files, write_manifest
from headwise.runs.run import Run, read_state
from headwise.utils.files import apply_umask, atomic_folder

log = logging.getLogger("headwise")

Tensors = Mapping[str, Tensor]
PARTS = ("model", "optimizer", "ema", "carried", "data")
INFERENCE_PARTS = ("model", "ema")  # the parts needed for inference


@dataclass(frozen=True)
class Checkpoint:
    """Everything that training needs to resume. `state` is plain JSON with at least `step`."""

    state: Mapping[str, Any]
    model: Tensors
    optimizer: Tensors = field(default_factory=dict)
    ema: Tensors = field(default_factory=dict)
    carried: Tensors = field(default_factory=dict)  # state carried from batch to batch, such as segment memory
    data: Tensors = field(default_factory=dict)  # of data that change with training, such as a replay buffer

    @property
    def step(self) -> int:
        return self.state["step"]


class NonFinite(UserError):
    """The weights contain NaN or infinity; earlier checkpoints stay as they are."""

    def __init__(self, name: str):
        super().__init__(f"the weights are not finite ({name}), so they are not saved")
        self.name = name


def save(run: Run, checkpoint: Checkpoint, keep: int = 3) -> Path:
    """Save a checkpoint: safetensors, state.json, and a manifest with the SHA-256 of each file (`runs/manifest.py`).

    The folder appears atomically, and older checkpoints are pruned only afterwards. Raises NonFinite before it writes.
    """
    check_finite(checkpoint)
    target = run.checkpoint_path(checkpoint.step)
    with atomic_folder(target, run.stage) as temporary:
        for part in PARTS:
            run.stage(f"write {part}")
            if tensors := getattr(checkpoint, part):
                _write_tensors(temporary / f"{part}.safetensors", tensors)
        (temporary / "state.json").write_text(json.dumps(dict(checkpoint.state), indent=1), encoding="utf-8")
        run.stage("manifest")
        write_manifest(temporary)
    update_pointers(run, checkpoint, keep)
    return target


def check_finite(checkpoint: Checkpoint) -> None:
    """Raise NonFinite if a weight is NaN or infinite."""
    if name := find_non_finite({part: getattr(checkpoint, part) for part in INFERENCE_PARTS}):
        raise NonFinite(name)


def find_non_finite(parts: Mapping[str, Tensors]) -> str:
    """The name of the first weight that is NaN or infinite; empty if there is none.

    Minus infinity passes: it is log 0 in the tables of n-gram models and HMMs. Weights after divergence contain
    NaN or +inf.
    """
    for part in INFERENCE_PARTS:
        for name, tensor in parts.get(part, {}).items():
            if tensor.is_floating_point() and tensor.numel():
                low, high = tensor.aminmax()  # NaN if one of them is
                if low.isnan() or not high.isfinite():
                    return name
    return ""


def update_pointers(run: Run, checkpoint: Checkpoint, keep: int) -> None:
    """Update `last` and `best` and prune old checkpoints; done after a save and repeated on resuming."""
    run.stage("last")
    run.write_pointer("last", checkpoint.step)
    if best := checkpoint.state.get("best"):
        run.stage("best")
        run.write_pointer("best", best["step"])
    run.prune(keep)


def read_checkpoint(folder: Path, parts: Iterable[str] = PARTS) -> Checkpoint:
    """Read some parts of a checkpoint; raises Damaged if a file does not match the manifest."""
    files = verify_files(folder, ["state.json", *(f"{part}.safetensors" for part in parts)])
    try:
        state = read_state(folder)
        tensors = {part: load_file(folder / name) for part in parts if (name := f"{part}.safetensors") in files}
    except (OSError, ValueError, SafetensorError) as error:
        raise Damaged(folder, f"it cannot be read ({error})") from error
    if "step" not in state:
        raise Damaged(folder, "its state.json names no step")
    if name := find_non_finite(tensors):
        raise Damaged(folder, f"{name} is not finite")
    return Checkpoint(state, tensors.pop("model", {}), **tensors)


def load_latest(run: Run, parts: Iterable[str] = PARTS, first: int | None = None) -> Checkpoint | None:
    """The newest intact checkpoint, or None if there is none; `first` is tried before all others."""
    steps = run.steps()
    order = dict.fromkeys(([] if first is None else [first]) + steps[::-1])
    for step in order:
        try:
            return read_checkpoint(run.checkpoint_path(step), parts)
        except Damaged as error:
            log.warning("%s", error)
    if steps:
        raise UserError(f"{run.checkpoints}: all checkpoints are damaged; restore a copy or train again")
    return None


def load_weights(run: Run, which: str = "best") -> dict[str, Tensor]:
    """The weights for inference: `best`, `last`, `average` or `step-N`; the exponential moving average if there is one.

    Without validation there is no best checkpoint, and the last one is used.
    """
    if which == "average":
        return average_checkpoints(run, flatten(run.config).get("train.average_checkpoints") or len(run.steps()))
    if which in ("best", "last"):
        checkpoint = load_latest(run, INFERENCE_PARTS, first=run.read_pointer(which))
        if checkpoint is None:
            raise UserError(f"{run.path} has no checkpoint yet; train it first")
        return _inference_weights(checkpoint)
    steps = {f"step-{step}": step for step in run.steps()}
    if which not in steps:
        names = ", ".join(["best", "last", "average", *steps])
        raise UserError(f"{run.path} has no checkpoint '{which}'; known: {names}")
    return _inference_weights(read_checkpoint(run.checkpoint_path(steps[which]), INFERENCE_PARTS))


def average_checkpoints(run: Run, count: int) -> dict[str, Tensor]:
    """Checkpoint averaging, a weight averaging over time: the mean of the last `count` checkpoints ("Attention is all
    you need", 6.1)."""
    steps = ([step for step in run.steps() if step] or run.steps())[-count:]  # step 0 holds the initial weights
    if not steps:
        raise UserError(f"{run.path} has no checkpoint yet; train it first")
    sums: dict[str, Tensor] = {}
    for step in steps:
        tensors = _inference_weights(read_checkpoint(run.checkpoint_path(step), INFERENCE_PARTS))
        for name, tensor in tensors.items():
            # in float64, so that the mean of equal weights is exact
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    return {
        name: (sums[name] / len(steps)).to(last.dtype) if last.is_floating_point() else last
        for name, last in tensors.items()
    }


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """A model's state dict with tied tensors only once."""
    seen: set[tuple[Any, ...]] = set()
    tensors = {}
    for name, tensor in model.state_dict().items():
        identity = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() == 0 or identity not in seen:
            tensors[name] = tensor
        seen.add(identity)
    return tensors


def restore(model: nn.Module, tensors: Tensors, where: str = "the checkpoint") -> None:
    """Copy tensors into a model; raises with the differences if the architecture is another one."""
    expected = unique_tensors(model)
    problems = [f"{name} is missing" for name in expected.keys() - tensors.keys()]
    problems += [f"{name} is not in the model" for name in tensors.keys() - expected.keys()]
    problems += [
        f"{name} is {tuple(tensors[name].shape)}, the model has {tuple(expected[name].shape)}"
        for name in expected.keys() & tensors.keys()
        if expected[name].numel()
        and expected[name].shape != tensors[name].shape  # an empty buffer gets its size on loading
    ]
    if problems:
        listed = "; ".join(sorted(problems)[:5])
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise UserError(f"{where} belongs to another architecture: {listed}{more}; build the model of its config")
    model.load_state_dict(dict(tensors), strict=False)  # tied tensors are stored under one of their names


def _inference_weights(checkpoint: Checkpoint) -> dict[str, Tensor]:
    return dict(checkpoint.ema or checkpoint.model)


def _write_tensors(path: Path, tensors: Tensors) -> None:
    try:
        save_file({name: _own_storage(tensor.detach()) for name, tensor in tensors.items()}, path)
        apply_umask(path)
    except SafetensorError as error:
        number = re.search(
            r"os error (\d+)", str(error)
        )  # safetensors reports the system's error number only in its message
        raise OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error)) from error


def _own_storage(tensor: Tensor) -> Tensor:
    """A tensor with its own storage: safetensors does not accept views of a larger one."""
    owns_storage = tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor.contiguous() if owns_storage else tensor.clone(memory_format=torch.contiguous_format)
