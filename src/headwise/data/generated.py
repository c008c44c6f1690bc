"""Generated corpora: sampled with a seed or cut from texts, once, and cached as TSV files.

Settings follow the name, as in `data.name = "listops:length=1024,train=50000"`.
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

VERSION = 1  # of all generators; another number generates everything anew
PARTS = ("train", "valid", "test")


class GeneratedCorpus(Config):
    """A generator of a corpus, with its settings."""

    @abstractmethod
    def generate(self, root: str) -> Mapping[str, Iterable[Pair]]:
        """Generate the pairs of each of `PARTS`, the same on every machine; `root` is the user's data folder."""

    def list_sources(self, root: str) -> list[tuple[str, int]]:
        """Name and size of the files that the corpus is cut from; none if it is sampled."""
        return []

    def build_files(self, name: str, root: str, cache: Path) -> dict[str, tuple[str, ...]]:
        """The files of each part, generated at the first call. Other processes see all of them or none."""
        inputs = json.dumps([VERSION, self.model_dump(mode="json"), self.list_sources(root)], sort_keys=True)
        folder = cache.absolute() / "generated" / f"{name}-{sha256(inputs.encode()).hexdigest()[:16]}"
        if not folder.exists():
            with writing(folder):
                self._write_parts(folder, root)
        return {part: (str(folder / f"{part}.tsv"),) for part in PARTS}

    def _write_parts(self, folder: Path, root: str) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".tmp-{folder.name}-", dir=folder.parent) as temporary:
            new = Path(temporary, "new")
            new.mkdir()
            for part, pairs in self.generate(root).items():
                with (new / f"{part}.tsv").open("w", encoding="utf-8") as file:
                    file.writelines(f"{source}\t{target}\n" for source, target in pairs)
            try:
                new.rename(folder)
            except OSError:
                if not folder.exists():  # otherwise another process has written the same in the meantime
                    raise


class SampledCorpus(GeneratedCorpus):
    """Random pairs with distinct sources. Held-out pairs are drawn first, so that they stay the same when `train`
    grows."""

    train: int = Field(20_000, ge=1)
    valid: int = Field(500, ge=1)
    test: int = Field(1000, ge=1)
    seed: int = Field(1, ge=0)

    @abstractmethod
    def draw_pair(self, generator: random.Random) -> Pair:
        """Draw one pair."""

    def generate(self, root: str) -> Mapping[str, Iterable[Pair]]:
        generator = random.Random(self.seed)
        pairs = draw_distinct(lambda: self.draw_pair(generator))
        return {part: list(islice(pairs, getattr(self, part))) for part in ("test", "valid", "train")}


def draw_distinct(draw: Callable[[], Pair]) -> Iterator[Pair]:
    """Draw pairs and skip those whose source was drawn before."""
    seen = set()
    while True:
        source, target = draw()
        if source not in seen:
            seen.add(source)
            yield source, target


def parse_corpus(corpus: type[GeneratedCorpus], name: str, settings: str) -> GeneratedCorpus:
    """Build a generator from the settings after its name: `key=value`, separated by commas."""
    fields = dict(setting.strip().partition("=")[::2] for setting in settings.split(",") if setting.strip())
    return validate(corpus, fields, f"data.name: {name}")
