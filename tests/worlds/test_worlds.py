"""Our own worlds: environments of Gymnasium, equal alone and together, whose state can be saved."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from headwise.worlds.base import SIDE
from headwise.worlds.drawing import paint
from headwise.worlds.environments import WorldVectorEnv, register_worlds
from headwise.worlds.grid import AGENT, COIN, DOOR, EXIT, FLOOR, KEY, WALL, Grid, GridConfig
from headwise.worlds.road import MAP, make_tracks
from headwise.worlds.tables import HOMES, get_id, make_world

CHANGED: dict[str, dict[str, Any]] = {
    "catch": {"colours": "random", "distractors": 3},
    "grid": {"coins": 5},
    "reach": {"colours": "shifted"},
    "road": {"colours": "random", "distractors": 2, "tracks": 2},
}


def draw_actions(environment: Any, steps: int) -> list[np.ndarray]:
    environment.action_space.seed(3)
    return [environment.action_space.sample() for _ in range(steps)]


@pytest.mark.parametrize("name", HOMES)
@pytest.mark.parametrize("settings", [{}, {"observe": "state"}], ids=["pixels", "state"])
def test_gymnasium_has_nothing_to_complain_of(name: str, settings: dict[str, Any]) -> None:
    register_worlds()
    check_env(gymnasium.make(get_id(name), render_mode="rgb_array", **settings).unwrapped)


@pytest.mark.parametrize("name", HOMES)
def test_copies_are_equal_to_single_environments(name: str) -> None:
    """Also after an episode has ended: a new one begins in the step after."""
    register_worlds()
    settings = {**CHANGED[name], "max_steps": 12}
    together = gymnasium.make_vec(get_id(name), 3, **settings)
    assert isinstance(together.unwrapped, WorldVectorEnv)
    single = gymnasium.make_vec(get_id(name), 3, "sync", **settings)
    starts = [each.reset(seed=5)[0] for each in (together, single)]
    assert np.array_equal(*starts) and starts[0].shape == (3, SIDE, SIDE, 3)
    for actions in draw_actions(together, 30):
        outcomes = [each.step(actions)[:4] for each in (together, single)]
        for ours, theirs in zip(*outcomes, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", HOMES)
def test_a_saved_state_continues_bit_by_bit(name: str) -> None:
    environment = WorldVectorEnv(name, 3, **{**CHANGED[name], "max_steps": 12})
    environment.reset(seed=1)
    actions = draw_actions(environment, 40)
    for action in actions[:10]:
        environment.step(action)
    state = environment.save_state()
    first = [environment.step(action)[:4] for action in actions[10:]]
    other = WorldVectorEnv(name, 3, **{**CHANGED[name], "max_steps": 12})
    other.restore_state(state)
    for action, before in zip(actions[10:], first, strict=True):
        for ours, theirs in zip(other.step(action)[:4], before, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="no state of 2 copies"):
        WorldVectorEnv(name, 2, **CHANGED[name]).restore_state(state)


@pytest.mark.parametrize("name", HOMES)
def test_experts_are_better_than_chance(name: str) -> None:
    world = make_world(name, 16, observe="state")
    totals = []
    for expert in (True, False):
        random, total, running = np.random.default_rng(0), np.zeros(16), np.ones(16, bool)
        world.reset(np.arange(16), np.arange(16, dtype=np.uint64))
        while running.any():
            low, high = np.array(world.action_low), np.array(world.action_high)
            chance = (
                random.integers(world.actions, size=16) if world.actions else random.uniform(low, high, (16, len(low)))
            )
            result = world.step(world.act_expert() if expert else chance)
            total += result.rewards * running
            running &= ~(result.terminated | result.truncated)
        totals.append(total)
    assert totals[0].min() > totals[1].max()


@pytest.mark.parametrize("name", ["catch", "reach", "road"])
def test_colours_and_distractors_change_frames_and_nothing_else(name: str) -> None:
    worlds = [make_world(name, 2), make_world(name, 2, colours="shifted"), make_world(name, 2, distractors=2)]
    for world in worlds:
        world.reset(np.arange(2), np.array([3, 4], np.uint64))
    for _ in range(60):
        actions = worlds[0].act_expert()
        steps = [world.step(actions).rewards for world in worlds]
        assert np.array_equal(steps[0], steps[1]) and np.array_equal(steps[0], steps[2])
    plain, shifted, distracted = (world.render() for world in worlds)
    assert (plain != shifted).all(-1).all() and 0 < (plain != distracted).any(-1).mean() < 0.2
    for other in worlds[1:]:
        np.testing.assert_array_equal(worlds[0].describe(), other.describe())


def make_room(rows: list[str]) -> Grid:
    """One copy with this plan: # wall, D door, k key, o coin, E exit, @ agent."""
    world, kinds = Grid(GridConfig(), 1), {"#": WALL, "D": DOOR, "k": KEY, "o": COIN, "E": EXIT, ".": FLOOR, "@": FLOOR}
    plan = np.array([[kinds[tile] for tile in row] for row in rows], np.uint8)
    agent = next((r, c) for r, row in enumerate(rows) for c, tile in enumerate(row) if tile == "@")
    world.arrays["tiles"][0], world.arrays["agent"][0], world.arrays["key"][0] = plan, agent, False
    return world


ROOM = ["########", "#@k#...#", "#..#.o.#", "#..D..E#", "#o.#...#", "#..#...#", "#..#...#", "########"]
UP, RIGHT, DOWN, LEFT = range(4)


def test_the_rules_of_the_grid() -> None:
    world = make_room(ROOM)

    def go(*moves: int) -> float:
        return sum(float(world.step(np.array([move])).rewards[0]) for move in moves)

    assert go(UP) == pytest.approx(-0.02) and world.arrays["agent"][0].tolist() == [1, 1]  # a wall
    assert go(DOWN, DOWN, RIGHT) == pytest.approx(-0.06) and go(RIGHT) == pytest.approx(-0.02)  # a locked door
    assert world.arrays["agent"][0].tolist() == [3, 2]
    assert go(UP, UP) == pytest.approx(0.96) and world.arrays["key"][0]
    assert go(DOWN, DOWN, RIGHT) == pytest.approx(0.94)  # the door is opened
    assert go(RIGHT, UP, RIGHT) == pytest.approx(0.94)  # a coin
    result = [world.step(np.array([move])) for move in (DOWN, RIGHT)][-1]
    assert result.terminated[0] and result.rewards[0] == pytest.approx(2.98)


def test_the_expert_of_the_grid_takes_everything_the_nearest_first() -> None:
    world, total, steps = make_room(ROOM), 0.0, 0
    while True:
        result, steps = world.step(world.act_expert()), steps + 1
        total += float(result.rewards[0])
        if result.terminated[0]:
            break
    assert total == pytest.approx(1 + 1 + 2 + 3 - 0.02 * steps) and steps == 1 + 3 + 3 + 8 + 4


def test_a_frame_shows_each_tile() -> None:
    frame = make_room(ROOM).render()[0]
    corners = frame.reshape(8, 8, 8, 8, 3)[:, 0, :, 0]  # the first pixel of each tile
    walls = np.array([[tile == "#" for tile in row] for row in ROOM])
    assert (corners[walls] == corners[0, 0]).all() and not (corners[~walls] == corners[0, 0]).all(-1).any()
    assert frame[8 + 4, 8 + 4].tolist() == [80, 140, 250]  # the agent
    state = make_room(ROOM).describe()[0]
    assert state[5 * 36] == 1 and state[5 * 36 :].sum() == 1 and AGENT == 6


def test_painting_is_a_lookup_of_colours() -> None:
    random = np.random.default_rng(0)
    palette = random.integers(256, size=(3, 5, 3)).astype(np.uint8)
    kinds = random.integers(5, size=(3, SIDE * SIDE)).astype(np.uint8)
    expected = np.stack([palette[row][kinds[row]] for row in range(3)]).reshape(3, SIDE, SIDE, 3)
    np.testing.assert_array_equal(paint(kinds, palette), expected)


def test_a_car_sees_the_road_ahead() -> None:
    """The frame turns with the car: what is in front is above it."""
    world = make_world("road", 1)
    track = int(world.arrays["track"][0])
    ground = make_tracks(8).maps[track]
    for heading, (dx, dy) in {0.0: (1, 0), np.pi / 2: (0, 1), np.pi: (-1, 0)}.items():
        world.arrays["heading"][0] = heading
        x, y = np.rint(world.arrays["place"][0]).astype(int)
        frame = world.render()[0]
        for distance in (10, 25, 40):
            kind = ground[y + dy * distance, x + dx * distance]
            assert frame[48 - distance, 32].tolist() == world.arrays["palette"][0, kind].tolist()
    assert ground.shape == (MAP, MAP)


def test_road_gives_its_reward_once() -> None:
    world, total = make_world("road", 1), 0.0
    for _ in range(150):
        total += float(world.step(np.array([[0.0, 0.0, 0.0]])).rewards[0])
    assert total == pytest.approx(1000 / 128 - 15)
