"""The tokenisers of source and target, as one value and one file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from headwise.errors import UserError, nearest
from headwise.text.base import Tokeniser
from headwise.text.config import TokeniserConfig
from headwise.text.normalise import Normaliser
from headwise.text.paired import SEPARATOR, Paired
from headwise.utils.files import read_json, write

# kind -> "module:Class"; those of images, episodes and graphs are in packages above this one
HOMES = {
    "characters": "headwise.text.vocabulary:Characters",
    "words": "headwise.text.vocabulary:Words",
    "parsed": "headwise.text.parsed:Parsed",
    "labels": "headwise.text.vocabulary:Labels",
    "bytes": "headwise.text.vocabulary:Bytes",
    "bpe": "headwise.text.subword:Bpe",
    "unigram": "headwise.text.subword:Unigram",
    "paired": "headwise.text.paired:Paired",
    "hf": "headwise.text.hf:HfTokeniser",
    "marian": "headwise.text.marian:MarianTokeniser",
    "pixels": "headwise.vision.pixels:Pixels",
    "levels": "headwise.vision.pixel_levels:PixelLevels",
    "episodes": "headwise.worlds.spaces:EpisodeEncoder",
    "graphs": "headwise.placement.encoder:GraphEncoder",
}
FORMAT, VERSION = "headwise-tokenisers", 1


@dataclass(frozen=True)
class Tokenisers:
    """The tokenisers of the source and the target side, one object when they are shared.

    >>> from headwise.text.vocabulary import Characters
    >>> letters = Characters("abc")
    >>> Tokenisers(letters, letters).shared
    True
    """

    source: Tokeniser
    target: Tokeniser

    @property
    def shared(self) -> bool:
        return self.source is self.target

    @classmethod
    def train(cls, pairs: Iterable[tuple[str, str]], config: TokeniserConfig, normalise: Normaliser) -> Tokenisers:
        """Train both sides on re-iterable pairs."""

        def split_side(side: str) -> list[str]:
            return side.split(SEPARATOR) if config.pairs else [side]

        if config.shared:
            texts = (text for pair in pairs for side in pair for text in split_side(side))
            both = get_tokeniser_class(config.kind).train(texts, config, normalise)
            tokenisers = cls(both, both)
        else:
            target_config = config.target_side
            sources = (text for source, _ in pairs for text in split_side(source))
            targets = (target for _, target in pairs)
            tokenisers = cls(
                get_tokeniser_class(config.kind).train(sources, config, normalise),
                get_tokeniser_class(target_config.kind).train(targets, target_config, normalise),
            )
        return tokenisers.accept_pairs() if config.pairs else tokenisers

    def accept_pairs(self) -> Tokenisers:
        """The same tokenisers, for sources that may be two texts with a tab between them."""
        return self if isinstance(self.source, Paired) else Tokenisers(Paired(self.source), self.target)

    def to_json(self) -> dict[str, Any]:
        sides = {"source": self.source} if self.shared else {"source": self.source, "target": self.target}
        return {"format": FORMAT, "version": VERSION} | {
            name: {"kind": side.kind, "normalise": asdict(side.normalise), **side.to_json()}
            for name, side in sides.items()
        }

    def save(self, path: Path | str) -> None:
        write(Path(path), json.dumps(self.to_json(), ensure_ascii=False, indent=1))

    @classmethod
    def load(cls, path: Path | str) -> Tokenisers:
        try:
            data = read_json(Path(path))
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        except ValueError:
            raise UserError(f"{path}: is not JSON; it may be damaged, copy it from the run again") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise UserError(f"{path}: is not a tokeniser file of Headwise; take the one of a run folder")
        if data.get("version") != VERSION:
            raise UserError(
                f"{path}: has format version {data.get('version')}, this Headwise reads {VERSION}; update it"
            )
        try:
            source = _load_side(data["source"])
            return cls(source, _load_side(data["target"]) if "target" in data else source)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except Exception as error:  # the tokenizers library raises bare Exception
            raise UserError(f"{path}: is damaged ({error}); copy it from the run again") from None


def get_tokeniser_class(kind: str) -> type[Tokeniser]:
    """The tokeniser class of this kind."""
    if kind not in HOMES:
        raise UserError(f"no tokeniser is called '{kind}'; {nearest(kind, HOMES)}")
    module, _, name = HOMES[kind].partition(":")
    cls: type[Tokeniser] = getattr(import_module(module), name)
    return cls


def _load_side(data: dict[str, Any]) -> Tokeniser:
    return get_tokeniser_class(data["kind"]).from_json(data, Normaliser(**data["normalise"]))
