"""Data configs of agents: logs of episodes, and environments in which new episodes are played."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from headwise.data.config import Content, DataConfig
from headwise.errors import UserError
from headwise.worlds.episodes import Episodes
from headwise.worlds.logs import Manifest, list_files, read_log


class EpisodesConfig(DataConfig):
    """Logs of episodes in one environment, as `headwise act collect` writes them. Without `valid`, some episodes of
    `train` are held out."""

    content: ClassVar[Content] = "episodes"
    kind: Literal["episodes"] = "episodes"
    best: float = Field(1.0, gt=0, le=1)  # train on this share of the episodes, those with the highest returns

    @model_validator(mode="after")
    def _check_consistency(self) -> EpisodesConfig:
        if self.name or self.test:
            raise ValueError("episodes are read from folders; set `train`, and `valid` if you like, and no others")
        return self


class EnvironmentConfig(DataConfig):
    """An environment in which the learner plays, by `name`: one of our worlds, or the id of one of Gymnasium."""

    content: ClassVar[Content] = "environment"
    kind: Literal["environment"] = "environment"
    settings: dict[str, Any] = Field(default_factory=dict)  # keyword arguments of `gymnasium.make`
    valid_episodes: int = Field(32, ge=1, le=100_000)  # of a validation
    test_episodes: int = Field(100, ge=1, le=100_000)  # of an evaluation

    @model_validator(mode="after")
    def _check_consistency(self) -> EnvironmentConfig:
        if self.train or self.valid or self.test:
            raise ValueError("an environment has no files; set its `name` and `settings`")
        return self


class EpisodeSplits(NamedTuple):
    """Episodes to train on and to validate with, their environment, and the files that were read."""

    manifest: Manifest
    train: Episodes
    valid: Episodes
    files: tuple[Path, ...]


def load_episodes(config: EpisodesConfig) -> EpisodeSplits:
    """Read the logs of a config; all must be of one environment with the same settings."""
    if not config.train:
        raise UserError("data.train: names no log of episodes; write one with `headwise act collect`")
    root, first = Path(config.root).expanduser(), Path()
    manifests, parts, files = list[Manifest](), dict[str, list[Episodes]](), list[Path]()
    for part in ("train", "valid"):
        for name in getattr(config, part):
            folder = root / Path(name).expanduser()
            manifest, episodes = read_log(folder)
            first = first if manifests else folder
            check_same(manifest, manifests[0] if manifests else manifest, folder, first)
            manifests.append(manifest)
            parts.setdefault(part, []).append(episodes)
            files.extend(list_files(folder, manifest))
    train = Episodes.concatenate(parts["train"])
    if "valid" in parts:
        valid = Episodes.concatenate(parts["valid"])
    else:
        order = np.random.default_rng(0).permutation(len(train))
        count = max(1, round(config.valid_fraction * len(train)))
        if count >= len(train):
            raise UserError(f"{first}: has {len(train)} episode, of which one is held out; collect more")
        train, valid = train.take(sorted(order[count:])), train.take(sorted(order[:count]))
    return EpisodeSplits(manifests[0], train.take_best(config.best), valid, tuple(files))


def check_same(manifest: Manifest, other: Manifest, folder: Path, first: Path) -> None:
    """Refuse a log of another environment."""
    if (manifest.environment, manifest.settings, manifest.spaces) != (other.environment, other.settings, other.spaces):
        raise UserError(
            f"{folder}: is a log of {manifest.environment} {dict(manifest.settings)}, but {first} one of "
            f"{other.environment} {dict(other.settings)}; train on logs of one environment with the same settings"
        )
