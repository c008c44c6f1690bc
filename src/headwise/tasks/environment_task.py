"""Base of tasks that act in an environment, which `[data]` names, and are scored on new episodes."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from headwise.data.config import DataConfig
from headwise.data.prepare import Prepared
from headwise.errors import UserError
from headwise.tasks.base import Task, TaskConfig
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.worlds.config import EnvironmentConfig
from headwise.worlds.episodes import EpisodeSeeds
from headwise.worlds.spaces import EpisodeEncoder, Spaces

# of the first episodes of validation and evaluation; training never uses these
VALID_SEED, TEST_SEED = 1_000_000, 1_100_000

Settings = TypeVar("Settings", bound=TaskConfig)
Actor = TypeVar("Actor", bound=nn.Module)


class EnvironmentTask(Task[Settings, Actor, EpisodeSeeds, EpisodeSeeds]):
    """Acting in an environment without logs: examples are the seeds of episodes that are always the same."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        from headwise.worlds.environments import Environment

        assert isinstance(data, EnvironmentConfig)
        if not data.name:
            raise UserError("data.name: names no environment; set catch, grid, reach, road, or an id of Gymnasium")
        place = Environment.of(data.name, data.settings)
        example = place.make(1)
        spaces = Spaces.of(example)
        example.close()
        if isinstance(tokeniser, Tokenisers):
            known = tokeniser.source
            if not isinstance(known, EpisodeEncoder) or known.spaces != spaces:
                trained_in = getattr(known, "environment", "") or "no environment"
                raise UserError(
                    f"data.name: {place.id}, but the model was trained in {trained_in}, whose observations or actions "
                    "differ; name that environment"
                )
        encoder = EpisodeEncoder.without_logs(place.id, place.settings, spaces)
        valid = EpisodeSeeds(range(VALID_SEED, VALID_SEED + data.valid_episodes))
        return Prepared(Tokenisers(encoder, encoder), EpisodeSeeds(()), valid, valid, list_test_episodes(data))

    @property
    def encoder(self) -> EpisodeEncoder:
        if not isinstance(self.tokenisers.source, EpisodeEncoder):
            raise UserError("this run knows no environment; name one in [data]")
        return self.tokenisers.source

    def load_test_pairs(self, data: DataConfig) -> EpisodeSeeds:
        return list_test_episodes(data)


def list_test_episodes(data: DataConfig) -> EpisodeSeeds:
    """The episodes of an evaluation."""
    assert isinstance(data, EnvironmentConfig)
    return EpisodeSeeds(range(TEST_SEED, TEST_SEED + data.test_episodes))
