"""The results of a comparison as frozen values: arms -> seeds -> outcomes -> scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headwise.compare.config import LOWER_IS_BETTER, AnalysisConfig, Published
from headwise.errors import UserError, nearest
from headwise.evaluate.score import Score
from headwise.models.summary import TRAINING_PASSES
from headwise.utils.files import read_json, write
from headwise.utils.notebook import render_table


@dataclass(frozen=True)
class Outcome:
    """The results of one run of one arm. A value that does not exist for its kind of model is None."""

    scores: Mapping[str, Score]
    parameters: int | None
    flops_per_token: int | None  # forward, see headwise.models.cost
    tokens_per_second: float | None  # in training: the median over the rows of metrics
    minutes: float  # of training
    run: Path
    items: Path  # JSON: sources, outputs and references of the test items, as columns
    unit: str = "token"  # of FLOPs and speed: token or image
    steps: int | None = None  # of training
    tokens: int | None = None  # of the targets in training
    validation: Sequence[Sequence[float]] = ()  # (tokens, score) of each validation, by the score of checkpoints
    recorded: str = ""  # when and where, if it was read from a file of records and has no run here

    @property
    def training_flops(self) -> float | None:
        """Of forward and backward passes."""
        return self.count_training_flops(self.tokens) if self.tokens else None

    def count_training_flops(self, tokens: float) -> float | None:
        """The FLOPs of training on so many tokens."""
        return TRAINING_PASSES * self.flops_per_token * tokens if self.flops_per_token else None

    @property
    def steps_per_second(self) -> float | None:
        return self.steps / (60 * self.minutes) if self.steps and self.minutes else None

    def save(self, file: Path, key: str) -> None:
        write(file, json.dumps({"key": key, **self.to_json()}, indent=1))

    @classmethod
    def load(cls, file: Path, key: str) -> Outcome | None:
        """Load what `save` wrote; None if it is missing, damaged or has another key."""
        try:
            data = read_json(file)
            if data.pop("key") != key:
                return None
            # the folder may have been moved since
            return cls.from_json({**data, "run": file.parent, "items": file.parent / Path(data["items"]).name})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """The outcome that `to_json` wrote; a TypeError or the like if it is damaged."""
        outcome = cls(**{**data, "scores": {name: Score(**score) for name, score in data["scores"].items()}})
        if not all(isinstance(score.value, int | float) for score in outcome.scores.values()):
            raise TypeError("a score is no number")
        return outcome

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"run": str(self.run), "items": str(self.items)}


@dataclass(frozen=True)
class Arm:
    """A variant: the outcome of each seed, or its error message."""

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
    lower: bool | None = None  # whether lower is better; None: not known
    analysis: AnalysisConfig = field(default_factory=AnalysisConfig)

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for arm in self.arms.values() for outcome in arm.outcomes.values()]

    @property
    def scores(self) -> list[str]:
        """All scores that any arm has, the ranking score first."""
        names = dict.fromkeys(name for outcome in self.outcomes for name in outcome.scores)
        return sorted(names, key=lambda name: name != self.score)

    @property
    def unit(self) -> str:
        return next((outcome.unit for outcome in self.outcomes), "token")

    def _repr_html_(self) -> str:
        from headwise.compare.render import build_notes, build_rows

        return render_table(self.title, build_rows(self), build_notes(self))

    def rank_by(self, score: str = "", lower: bool | None = None) -> Comparison:
        """A copy with another ranking score: by default the first one reported."""
        known = self.scores
        # a table that says whether its score is lower has one that runs may lack, such as the time of what does not fit
        if score and known and score not in known and lower is None:
            raise UserError(f"score: no arm reports '{score}'; {nearest(score, known)}")
        score = score or next(iter(known), "")
        return replace(self, score=score, lower=LOWER_IS_BETTER.get(score) if lower is None else lower)
