"""Learning by acting: runs that are resumed with their worlds and replay buffers, the ratio of frames to batches,
crops, and what is learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import headwise
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import resume
from headwise.runs import Run
from headwise.runs.checkpoint import load_latest
from headwise.tasks.online import AgentPolicy, crop_at_random
from headwise.worlds.environments import Environment
from headwise.worlds.rollout import play

MODELS = {
    "dqn": {"kind": "dqn-tiny"},
    "curl": {"kind": "curl-tiny"},
    "m-curl": {"kind": "m-curl-tiny"},
    "sac": {"kind": "sac-tiny", "frame_encoder": "curl", "channels": 8, "features": 16},
}


def make_tables(name: str, world: str, model: str, steps: int, **task: Any) -> dict[str, Any]:
    """Short episodes of a small world, so that some end."""
    frames = {"frame": 24, "crop": 20, "stack": 2}
    kind = "soft-actor-critic" if world in ("reach", "Pendulum-v1") else "q-learning"
    shown = {} if world in ("CartPole-v1", "Pendulum-v1") else frames
    settings = {"max_steps": 7, "observe": "pixels"} if shown else {}
    return {
        "name": name,
        "task": {
            "kind": kind, "environments": 3, "updates": 2, "capacity": 60, "warmup": 12, **shown, **task
        },
        "data": {"name": world, "settings": settings, "valid_episodes": 2, "test_episodes": 2},
        "model": MODELS[model],
        "train": {
            "steps": steps, "batch_size": 6, "samples": 0, "validate_every": 5, "log_every": 1,
            "schedule": {"kind": "constant", "lr": 0.001},
        },
    }  # fmt: skip


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    checkpoint = load_latest(Run(path))
    assert checkpoint is not None
    return {
        f"{part}/{key}": value
        for part in ("model", "optimizer", "data")
        for key, value in getattr(checkpoint, part).items()
    }


@pytest.mark.parametrize(
    ("world", "model"), [("catch", "dqn"), ("grid", "m-curl"), ("reach", "curl"), ("reach", "sac")]
)
def test_a_run_in_our_worlds_is_resumed_bit_by_bit(tmp_path: Path, world: str, model: str) -> None:
    """More rows than the replay buffer has, episodes that end, stacks of frames, a batch between two steps,
    and a checkpoint where all episodes have just ended."""
    whole, _ = headwise.train_experiment(parse_experiment(make_tables("whole", world, model, 50)), tmp_path)
    part, _ = headwise.train_experiment(parse_experiment(make_tables("part", world, model, 37)), tmp_path)
    resume(part.path, steps=13)
    one, two = read_tensors(whole.path), read_tensors(part.path)
    assert one.keys() == two.keys() and {"data/world.steps", "data/replay.frames", "data/acting.stack"} <= one.keys()
    assert [name for name, tensor in one.items() if not torch.equal(tensor, two[name])] == []
    assert int(one["data/replay.added"]) > 20 and bool(one["data/replay.last"].any())


def test_elsewhere_unfinished_episodes_are_truncated(tmp_path: Path) -> None:
    tables = make_tables("cart", "CartPole-v1", "dqn", 6)
    tables["model"] = {"kind": "dqn-states"}
    run, _ = headwise.train_experiment(parse_experiment(tables), tmp_path)
    before = read_tensors(run.path)
    resume(run.path, steps=2)
    after = read_tensors(run.path)
    rows = int(before["data/replay.added"])
    assert int(after["data/replay.added"]) == rows + 2  # the truncation, and a step
    observations = after["data/replay.observations"]
    assert torch.equal(observations[:rows], before["data/replay.observations"])
    assert torch.equal(observations[rows], before["data/acting.stack"][:, -1])
    assert bool(after["data/replay.last"][rows].all()) and not after["data/replay.terminated"][rows].any()
    assert after["data/replay.steps"][rows + 1].tolist() == [0] * 3
    assert float(observations[rows + 1].abs().max()) <= 0.05  # where episodes of CartPole begin


def test_frames_and_batches_are_in_the_ratio_that_is_set(tmp_path: Path) -> None:
    tables = make_tables("ratio", "catch", "dqn", 8, updates=4)
    run, _ = headwise.train_experiment(parse_experiment(tables), tmp_path)
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    counted = [row["tokens"] for row in rows if "tokens" in row]
    assert counted == [15, 18] and {row["unit"] for row in rows if "unit" in row} == {"frames"}


def test_a_crop_is_a_part_of_its_frame() -> None:
    frames = torch.arange(4 * 2 * 6 * 7).reshape(4, 2, 6, 7)
    cropped = crop_at_random(frames.unflatten(0, (2, 2)), 4)
    assert cropped.shape == (2, 2, 2, 4, 4)
    places = set()
    for frame, crop in zip(frames, cropped.flatten(0, 1), strict=True):
        top, left = divmod(int(crop[0, 0, 0]) % 42, 7)
        places.add((top, left))
        assert torch.equal(crop, frame[:, top : top + 4, left : left + 4])
    torch.manual_seed(0)
    padded = torch.nn.functional.pad(frames.double(), (2, 2, 2, 2), mode="replicate")
    parts = [padded[..., row : row + 6, column : column + 6] for row in range(5) for column in range(6)]
    for crop in crop_at_random(frames.repeat(5, 1, 1, 1), 6, pad=2)[::4]:
        assert any(torch.equal(crop.double(), part[0]) for part in parts)
    many = crop_at_random(frames[:1].expand(500, 2, 6, 7), 4)[:, 0, 0, 0]
    assert set(many.tolist()) == {7 * row + column for row in range(3) for column in range(4)}


def test_an_evaluation_sees_the_middle_and_does_not_explore(tmp_path: Path) -> None:
    run, _ = headwise.train_experiment(parse_experiment(make_tables("run", "catch", "dqn", 2)), tmp_path)
    loaded = headwise.load(run.path, which="last")
    task: Any = loaded.task
    frames = torch.randint(256, (2, 6, 24, 24), dtype=torch.uint8)
    torch.testing.assert_close(task.view(frames, training=False), frames[..., 2:22, 2:22] / 255)
    one, two = (loaded.evaluate() for _ in range(2))
    assert one.outputs == two.outputs and len(one.outputs) == 2 and one.scores[0].name == "return"


def test_a_policy_is_equal_for_one_and_many_copies(tmp_path: Path) -> None:
    run, _ = headwise.train_experiment(parse_experiment(make_tables("run", "catch", "m-curl", 2)), tmp_path)
    loaded = headwise.load(run.path, which="last")
    place = Environment.of("catch", {"max_steps": 7, "observe": "pixels"})
    policy = AgentPolicy(loaded.task, loaded.model)
    many = play(place.make(3), policy, [1, 2, 3])
    for episode, seed in zip(many, (1, 2, 3), strict=True):
        alone = play(place.make(1), policy, [seed])[0]
        assert np.array_equal(alone.actions, episode.actions) and alone.total == episode.total


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"data": {"name": ""}}, "data.name: names no environment"),
        ({"data": {"name": "reach"}}, "has discrete actions, headwise/Reach-v0 continuous ones"),
        ({"task": {"capacity": 12}}, "task.capacity: there must be room for more than 12 frames"),
        ({"train": {"accumulate": 2}}, "train.accumulate: batches depend on what was learnt"),
        ({"data": {"settings": {"observe": "state"}}}, "shows numbers, not pixels; leave it out"),
        ({"model": {"kind": "transformer"}}, "cannot q-learning"),
        ({"data": {"kind": "texts", "train": "x.tsv"}}, "reads environment, not texts"),
    ],
)
def test_mistakes_are_told_in_one_sentence(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    tables = make_tables("run", "catch", "dqn", 2)
    for table, settings in change.items():
        tables[table] = settings if "kind" in settings else {**tables[table], **settings}
    with pytest.raises(UserError, match=sentence):
        headwise.train_experiment(parse_experiment(tables), tmp_path)


def test_a_checkpoint_of_another_buffer_is_refused(tmp_path: Path) -> None:
    run, _ = headwise.train_experiment(parse_experiment(make_tables("run", "catch", "dqn", 4)), tmp_path)
    config = (run.path / "config.toml").read_text()
    (run.path / "config.toml").write_text(config.replace("environments = 3", "environments = 4"))
    (run.path / "manifest.json").unlink()
    with pytest.raises(UserError, match="the replay buffer of the checkpoint does not fit this run"):
        resume(run.path, steps=2)


def test_the_catch_is_learnt(tmp_path: Path) -> None:
    """From the numbers of the state, with one thing at a time: a random paddle loses most of four things."""
    tables = make_tables("catch", "catch", "dqn", 1200, environments=8, capacity=20_000, warmup=500, explore=2000)
    tables["task"] |= {"frame": 0, "crop": 0, "stack": 1, "discount": 0.95, "n_step": 3, "updates": 2}
    tables["data"] = {
        "name": "catch",
        "settings": {"observe": "state", "things": 1, "falls": 4},
        "valid_episodes": 20,
        "test_episodes": 20,
    }
    tables["model"] = {"kind": "dqn", "mlp": [64, 64]}
    tables["train"] |= {"batch_size": 64, "validate_every": 1200, "log_every": 100}
    tables["train"]["schedule"] = {"kind": "constant", "lr": 0.002}
    run, _ = headwise.train_experiment(parse_experiment(tables), tmp_path)
    assert headwise.load(run.path).evaluate().scores[0].value > 1


def test_weights_of_a_target_are_saved(tmp_path: Path) -> None:
    run, _ = headwise.train_experiment(parse_experiment(make_tables("run", "catch", "dqn", 3)), tmp_path)
    model = headwise.load(run.path, which="last").model
    assert isinstance(model, nn.Module) and any(name.startswith("target_encoder.") for name in model.state_dict())
