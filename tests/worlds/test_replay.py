"""The replay buffer against steps kept one by one, resizing against torch, and stacks of frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headwise.worlds.replay import FrameStack, Replay, resize_frames
from headwise.worlds.spaces import Spaces

SPACES = Spaces((1,), 3, True)


def fill(replay: Replay, rows: int, lengths: tuple[int, ...] = (4, 7)) -> list[dict[str, Any]]:
    """Play: an observation is (copy, number of its row), a reward 10 times the row; copy i has episodes of `lengths[i]`
    steps, of which those of copy 0 terminate and those of copy 1 are truncated."""
    steps, last = np.zeros(2, np.int32), np.zeros(2, bool)
    history = []
    for row in range(rows):
        ends = ~last & (steps == np.array(lengths) - 1)
        added = {
            "observations": np.array([[0, row], [1, row]], np.float32), "actions": np.array([row % 3, 1]),
            "rewards": np.array([10.0 * row, 1.0]), "terminated": ends & np.array([True, False]),
            "steps": steps, "last": last,
        }  # fmt: skip
        replay.add(**added)
        history.append({name: array.copy() for name, array in added.items()})
        steps, last = np.where(last, 0, steps + 1).astype(np.int32), ends
    return history


def make_replay(rows: int) -> Replay:
    return Replay(rows, 2, np.zeros((2, 2), np.float32), SPACES)


@pytest.mark.parametrize(("rows", "n_step"), [(100, 1), (100, 3), (20, 1), (20, 6)])
def test_transitions_are_those_of_a_walk_through_the_history(rows: int, n_step: int) -> None:
    replay = make_replay(rows)
    history = fill(replay, 50)
    drawn = replay.draw_transitions(2000, 2, 0.5, n_step, np.random.default_rng(1))
    seen = set()
    for observation, action, reward, discount, following in zip(*drawn, strict=True):
        copy, row = int(observation[2]), int(observation[3])
        seen.add((copy, row))
        assert max(50 - rows, 0) <= row < 50 - n_step and not history[row]["last"][copy]
        before = row if history[row]["steps"][copy] == 0 or row == 50 - min(rows, 50) else row - 1
        assert observation.tolist() == [copy, before, copy, row] and action == history[row]["actions"][copy]
        total, factor, at = 0.0, 1.0, row
        while at < row + n_step and not history[at]["last"][copy]:
            total += factor * history[at]["rewards"][copy]
            factor *= 0.0 if history[at]["terminated"][copy] else 0.5
            at += 1
        assert (reward, discount, following[3]) == (pytest.approx(total), factor, at)
    allowed = sum(not history[row]["last"][copy] for row in range(max(50 - rows, 0), 50 - n_step) for copy in (0, 1))
    assert len(seen) == allowed


def test_windows_end_with_their_episode() -> None:
    replay = make_replay(40)
    history = fill(replay, 60)
    windows, keep = replay.draw_windows(300, 6, 1, np.random.default_rng(0))
    assert windows.shape == (300, 6, 2) and not keep.all() and keep[:, 0].all()
    for window, kept in zip(windows, keep, strict=True):
        copy, first = map(int, window[0])
        assert window[:, 1].tolist() == list(range(first, first + 6))
        start = int(history[first]["steps"][copy])
        assert kept.tolist() == [int(history[first + i]["steps"][copy]) == start + i for i in range(6)]


@pytest.mark.parametrize("filled", [7, 31])
def test_a_saved_buffer_draws_the_same(filled: int) -> None:
    spaces, random = Spaces((4, 4, 3), 2, False, (-1.0,) * 2, (1.0,) * 2), np.random.default_rng(0)
    replay, other = (Replay(12, 3, np.zeros((3, 3, 4, 4), np.uint8), spaces) for _ in range(2))
    for row in range(filled):
        replay.add(
            observations=random.integers(256, size=(3, 3, 4, 4)), actions=random.random((3, 2)),
            rewards=random.random(3), terminated=np.zeros(3, bool), steps=np.full(3, row), last=np.zeros(3, bool),
        )  # fmt: skip
    other.load(replay.dump())
    one, two = (each.draw_transitions(20, 3, 0.9, 2, np.random.default_rng(5)) for each in (replay, other))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True)) and one.observations.shape == (20, 9, 4, 4)
    smaller = Replay(5, 3, np.zeros((3, 3, 4, 4), np.uint8), spaces)
    with pytest.raises(ValueError, match=r"actions are .*, and the replay buffer has|reshape"):
        smaller.load(replay.dump())


@pytest.mark.parametrize("side", [32, 42, 50, 64])
def test_frames_are_resized_as_by_torch(side: int) -> None:
    """Whole factors are exact means; for others the mean of areas is that of frames enlarged by repeating pixels."""
    frames = np.random.default_rng(0).integers(256, size=(2, 64, 64, 3), dtype=np.uint8)
    large = torch.from_numpy(frames).permute(0, 3, 1, 2).double().repeat_interleave(side, 2).repeat_interleave(side, 3)
    wanted = F.avg_pool2d(large, 64)
    assert float((torch.from_numpy(resize_frames(frames, side)).double() - wanted).abs().max()) <= 0.5 + 1e-3
    assert np.array_equal(resize_frames(frames, 0), frames.transpose(0, 3, 1, 2))


def test_a_stack_begins_anew_with_each_episode() -> None:
    stack = FrameStack(3, np.array([[1.0], [10.0]]))
    stack.push(np.array([[2.0], [20.0]]), np.array([False, False]))
    stack.push(np.array([[3.0], [30.0]]), np.array([False, True]))
    assert stack.stacked.tolist() == [[1, 2, 3], [30, 30, 30]] and stack.newest.tolist() == [[3], [30]]
