"""Both sides of a task, as one value and one file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from headwise.config.data import TokeniserConfig
from headwise.errors import UserError, nearest
from headwise.files import write
from headwise.interop.marian_text import MarianTokeniser
from headwise.text.base import Tokeniser
from headwise.text.listed import Bytes, Characters, Labels, Words
from headwise.text.normalise import Normaliser
from headwise.text.subword import Bpe, Unigram

KINDS: dict[str, type[Tokeniser]] = {
    cls.kind: cls for cls in (Characters, Words, Labels, Bytes, Bpe, Unigram, MarianTokeniser)
}
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
        if config.shared:
            both = KINDS[config.kind].train(chain.from_iterable(pairs), config, normalise)
            return cls(both, both)
        side = config.target_side
        return cls(
            KINDS[config.kind].train((source for source, _ in pairs), config, normalise),
            KINDS[side.kind].train((target for _, target in pairs), side, normalise),
        )

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
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        except (ValueError, RecursionError):
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
