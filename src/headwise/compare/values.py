"""What came out of a comparison, as frozen values: arms -> seeds -> outcomes -> scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headwise.compare.config import LOWER, Published
from headwise.errors import UserError, nearest
from headwise.evaluate.score import Score
from headwise.utils.files import read_json, write


@dataclass(frozen=True)
class Outcome:
    """One run of one arm. A figure that cannot be had for its kind of model is None."""

    scores: Mapping[str, Score]
    parameters: int | None
    flops_per_token: int | None  # forward, see headwise.models.cost
    tokens_per_second: float | None  # in training, the median over its rows of metrics
    minutes: float  # of training
    run: Path
    items: Path  # JSON: sources, outputs and references of the test items, as columns
    unit: str = "token"  # what FLOPs and speed are of: a token or an image

    def save(self, file: Path, key: str) -> None:
        write(file, json.dumps({"key": key, **self.to_json()}, indent=1))

    @classmethod
    def load(cls, file: Path, key: str) -> Outcome | None:
        """What `save` wrote under the same key."""
        try:
            found = read_json(file)
            if found.pop("key") != key:
                return None
            found["scores"] = {name: Score(**score) for name, score in found["scores"].items()}
            # the folder may have been moved since
            found |= {"run": file.parent, "items": file.parent / Path(found["items"]).name}
            outcome = cls(**found)
            sound = all(isinstance(score.value, int | float) for score in outcome.scores.values())
            return outcome if sound else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"run": str(self.run), "items": str(self.items)}


@dataclass(frozen=True)
class Arm:
    """A variant: the outcome of each seed, or the sentence that says why there is none."""

    name: str
    outcomes: Mapping[int, Outcome]
    failures: Mapping[int, str] = field(default_factory=dict)
    published: Published = field(default_factory=Published)


@dataclass(frozen=True)
class Comparison:
    """All arms of a table, in its order."""

    title: str
    arms: Mapping[str, Arm]
    published: tuple[Published, ...] = ()
    score: str = ""  # the one to rank by; empty: nothing has been scored
    lower: bool | None = None  # whether less of it is better; None: not known

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for arm in self.arms.values() for outcome in arm.outcomes.values()]

    @property
    def scores(self) -> list[str]:
        """Every score that some arm has, the decisive one first."""
        found = dict.fromkeys(name for outcome in self.outcomes for name in outcome.scores)
        return sorted(found, key=lambda name: name != self.score)

    @property
    def unit(self) -> str:
        return next((outcome.unit for outcome in self.outcomes), "token")

    def ranked_by(self, score: str = "", lower: bool | None = None) -> Comparison:
        """The same with another decisive score: by default the first one reported."""
        known = self.scores
        if score and known and score not in known:
            raise UserError(f"score: no arm reports '{score}'; {nearest(score, known)}")
        score = score or next(iter(known), "")
        return Comparison(self.title, self.arms, self.published, score, LOWER.get(score) if lower is None else lower)
