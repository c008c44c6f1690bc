"""Both sides of a task, as one value and one file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headwise.data.config import TokeniserConfig
from headwise.errors import UserError, nearest
from headwise.interop.marian_text import MarianTokeniser
from headwise.text.base import Tokeniser
from headwise.text.hf import HfTokeniser
from headwise.text.normalise import Normaliser
from headwise.text.paired import BETWEEN, Paired
from headwise.text.parsed import Parsed
from headwise.text.subword import Bpe, Unigram
from headwise.text.vocabulary import Bytes, Characters, Labels, Words
from headwise.utils.files import read_json, write
from headwise.vision.pixels import Pixels

CLASSES = (Characters, Words, Parsed, Labels, Bytes, Bpe, Unigram, Paired, HfTokeniser, MarianTokeniser, Pixels)
KINDS: dict[str, type[Tokeniser]] = {cls.kind: cls for cls in CLASSES}
FORMAT, VERSION = "headwise-tokenisers", 1


@dataclass(frozen=True)
class Tokenisers:
    """The tokenisers of the source and the target side, which are one object when shared.

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
        """Learn both sides from pairs that can be iterated anew."""

        def units(side: str) -> list[str]:
            return side.split(BETWEEN) if config.pairs else [side]

        if config.shared:
            every = (text for pair in pairs for side in pair for text in units(side))
            both = KINDS[config.kind].train(every, config, normalise)
            found = cls(both, both)
        else:
            side = config.target_side
            found = cls(
                KINDS[config.kind].train((text for source, _ in pairs for text in units(source)), config, normalise),
                KINDS[side.kind].train((target for _, target in pairs), side, normalise),
            )
        return found.paired() if config.pairs else found

    def paired(self) -> Tokenisers:
        """The same for sources that may be two texts with a tab between them."""
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
            source = _side(data["source"])
            return cls(source, _side(data["target"]) if "target" in data else source)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except Exception as error:  # the tokenizers library raises bare Exception
            raise UserError(f"{path}: is damaged ({error}); copy it from the run again") from None


def _side(data: dict[str, Any]) -> Tokeniser:
    if data["kind"] not in KINDS:
        raise UserError(f"no tokeniser is called '{data['kind']}'; {nearest(data['kind'], KINDS)}")
    return KINDS[data["kind"]].from_json(data, Normaliser(**data["normalise"]))
