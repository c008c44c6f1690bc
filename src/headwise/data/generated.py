"""Corpora that are made: drawn from a seed, or cut from texts, once, and kept in the cache as ordinary files.

Settings stand behind the name, as in `data.name = "listops:length=1024,train=50000"`.
"""

from __future__ import annotations

import json
import random
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import Field

from headwise.config.base import Config, validate
from headwise.data.texts import Pair
from headwise.utils.files import writing

VERSION = 1  # of what the makers make; another number makes everything anew
PARTS = ("train", "valid", "test")


class GeneratedCorpus(Config):
    """The settings of a corpus that is made, and its maker."""

    @abstractmethod
    def parts(self, root: str) -> Mapping[str, Iterable[Pair]]:
        """The pairs of `PARTS`, the same on every machine; `root` is where the user's data are."""

    def sources(self, root: str) -> list[tuple[str, int]]:
        """Name and size of the files that it is cut from; one that is drawn has none."""
        return []

    def files(self, name: str, root: str, cache: Path) -> dict[str, tuple[str, ...]]:
        """The files of each part, made at the first call. Other processes see all of them or none."""
        told = json.dumps([VERSION, self.model_dump(mode="json"), self.sources(root)], sort_keys=True)
        folder = cache.absolute() / "made" / f"{name}-{sha256(told.encode()).hexdigest()[:16]}"
        if not folder.exists():
            with writing(folder):
                self._make(folder, root)
        return {part: (str(folder / f"{part}.tsv"),) for part in PARTS}

    def _make(self, folder: Path, root: str) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".tmp-{folder.name}-", dir=folder.parent) as aside:
            new = Path(aside, "new")
            new.mkdir()
            for part, pairs in self.parts(root).items():
                with (new / f"{part}.tsv").open("w", encoding="utf-8") as file:
                    file.writelines(f"{source}\t{target}\n" for source, target in pairs)
            try:
                new.rename(folder)
            except OSError:
                if not folder.exists():  # otherwise another process was quicker and made the same
                    raise


class SampledCorpus(GeneratedCorpus):
    """Pairs drawn at random, no source twice. Those held out are drawn first, so that they stay the same when there are
    more to train on."""

    train: int = Field(20_000, ge=1)
    valid: int = Field(500, ge=1)
    test: int = Field(1000, ge=1)
    seed: int = Field(1, ge=0)

    @abstractmethod
    def draw(self, chance: random.Random) -> Pair:
        """One pair."""

    def parts(self, root: str) -> Mapping[str, Iterable[Pair]]:
        chance = random.Random(self.seed)
        pairs = draw_distinct(lambda: self.draw(chance))
        return {part: list(islice(pairs, getattr(self, part))) for part in ("test", "valid", "train")}


def draw_distinct(draw: Callable[[], Pair]) -> Iterator[Pair]:
    """Draws without those whose source was drawn before."""
    seen = set()
    while True:
        source, target = draw()
        if source not in seen:
            seen.add(source)
            yield source, target


def parse_corpus(made: type[GeneratedCorpus], name: str, settings: str) -> GeneratedCorpus:
    """The maker with the settings that stand behind its name, `key=value` with commas between them."""
    given = dict(setting.strip().partition("=")[::2] for setting in settings.split(",") if setting.strip())
    return validate(made, given, f"data.name: {name}")
