"""Logs of episodes: what is written is read back, and what is damaged is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headwise.errors import UserError
from headwise.worlds.config import EpisodesConfig, load_episodes
from headwise.worlds.environments import Environment
from headwise.worlds.episodes import Episodes, compute_returns_to_go
from headwise.worlds.logs import MANIFEST, read_log, write_log
from headwise.worlds.rollout import POLICIES, collect
from headwise.worlds.spaces import EpisodeEncoder, Spaces


def record(folder: Path, name: str = "grid", episodes: int = 6, **settings: object) -> Path:
    place = Environment.of(name, settings or ({"observe": "state"} if name == "grid" else {}))
    example = place.make(1)
    players = {"noisy": (POLICIES["noisy"](), episodes)}
    write_log(
        folder, collect(place, players, 0), environment=place.id, settings=place.settings, spaces=Spaces.of(example),
        policies={"noisy": 1.0}, seed=0,
    )  # fmt: skip
    return folder


def test_a_log_is_read_back(tmp_path: Path) -> None:
    place, players = Environment.of("reach", {"observe": "state"}), {"random": (POLICIES["random"](), 3)}
    played = [episode for episode, _ in collect(place, players, 7)]
    manifest = write_log(
        tmp_path / "log", ((episode, "random") for episode in played), environment=place.id, settings=place.settings,
        spaces=Spaces.of(place.make(1)), policies={"random": 1.0}, seed=7,
    )  # fmt: skip
    again, episodes = read_log(tmp_path / "log")
    assert again == manifest and len(episodes) == 3 and again.versions["gymnasium"]
    for ours, theirs in zip(played, episodes, strict=True):
        np.testing.assert_array_equal(ours.observations, theirs.observations)
        np.testing.assert_array_equal(ours.actions, theirs.actions)
        assert ours.total == theirs.total and ours.terminated == theirs.terminated
    assert again.returns == pytest.approx(episodes.returns.tolist())


def test_the_same_seeds_give_the_same_episodes_whatever_is_played_together() -> None:
    place = Environment.of("grid", {"observe": "state"})
    alone, together = (
        [episode.actions.tolist() for episode, _ in collect(place, {"noisy": (POLICIES["noisy"](), 5)}, 3, at_once)]
        for at_once in (1, 5)
    )
    assert alone == together


def test_episodes_are_held_out_and_the_best_are_taken(tmp_path: Path) -> None:
    log = str(record(tmp_path / "log", episodes=20))
    splits = load_episodes(EpisodesConfig(train=(log,), valid_fraction=0.2))
    assert (len(splits.train), len(splits.valid)) == (16, 4)
    best = load_episodes(EpisodesConfig(train=(log,), valid_fraction=0.2, best=0.25)).train
    assert sorted(best.returns) == sorted(splits.train.returns)[-4:]
    assert not {*splits.train.starts} & {*splits.valid.starts}
    assert compute_returns_to_go(best[0].rewards)[0] == pytest.approx(best[0].total)
    assert isinstance(Episodes.join(list(best)), Episodes)


def test_statistics_of_observations_actions_and_returns(tmp_path: Path) -> None:
    import torch

    manifest, episodes = read_log(record(tmp_path / "log", "Pendulum-v1", 2))
    encoder = EpisodeEncoder.from_episodes(manifest.environment, manifest.settings, manifest.spaces, episodes)
    x = encoder.normalise_observations(torch.from_numpy(episodes.observations))
    assert x.mean(0).abs().max() < 1e-4 and (x.std(0) - 1).abs().max() < 1e-2
    scaled = encoder.scale_actions(episodes.actions)
    assert 0.9 < np.abs(scaled).max() <= 1 and np.allclose(encoder.unscale_actions(scaled), episodes.actions, atol=1e-6)
    assert encoder.scale == np.abs(episodes.returns).max() and encoder.max_steps == 200
    again = EpisodeEncoder.from_json(json.loads(json.dumps(encoder.to_json())), encoder.normalise)
    assert again == encoder


def damage(log: Path, change) -> None:
    data = json.loads((log / MANIFEST).read_text())
    change(data)
    (log / MANIFEST).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(format="other"), "is no manifest of episodes of version 1"),
        (lambda data: data.pop("spaces"), "KeyError: 'spaces'; it may be damaged"),
        (lambda data: data.update(lengths=[1]), "its episodes are not those of manifest.json"),
        (lambda data: data["files"].update({"../other": "0"}), "with files outside its folder"),
        (lambda data: data["files"].update({"episodes-00000.safetensors": "0"}), "has another SHA-256"),
        (lambda data: data["files"].update({"missing.safetensors": "0"}), "cannot be read"),
        (lambda data: data["spaces"].update(actions=2), "its arrays do not fit those of manifest.json"),
        (lambda data: data["spaces"].update(shape=[]), "it may be damaged"),
        (lambda data: data.update(settings=3), "settings, policies and files must be objects"),
        (lambda data: data.update(files=["a"]), "settings, policies and files must be objects"),
    ],
)
def test_damaged_logs_are_refused(tmp_path: Path, change, message: str) -> None:
    log = record(tmp_path / "log", episodes=2)
    damage(log, change)
    with pytest.raises(UserError, match=message) as error:
        read_log(log)
    assert "\n" not in str(error.value) and str(log) in str(error.value)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such folder"):
        read_log(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"has no manifest\.json"):
        read_log(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        read_log(tmp_path)


def test_logs_of_two_environments_are_not_mixed(tmp_path: Path) -> None:
    logs = [
        str(record(tmp_path / name, "grid", 3, observe="state", coins=coins)) for name, coins in (("a", 3), ("b", 4))
    ]
    with pytest.raises(UserError, match=r"b: is a log of headwise/Grid-v0 .*'coins': 4.*one environment"):
        load_episodes(EpisodesConfig(train=tuple(logs)))


def test_what_agents_cannot_read_is_refused() -> None:
    for name, words in (("FrozenLake-v1", "its observations are"), ("Blackjack-v1", "its observations are")):
        with pytest.raises(UserError, match=words):
            Spaces.of(Environment.of(name).make(1))
    with pytest.raises(UserError, match="did you mean CartPole"):
        Environment.of("CartPole-v9")
    with pytest.raises(UserError, match="known: catch, grid, reach, road, and the ids of Gymnasium"):
        Environment.of("zzzzzzzz")
    with pytest.raises(UserError, match="coin"):
        Environment.of("grid", {"coin": 3}).make(1)


def test_a_log_cannot_name_a_module_to_import() -> None:
    with pytest.raises(UserError, match="antigravity:Evil-v0: names a module to import"):
        Environment("antigravity:Evil-v0").make(1)
