"""A score with its 95 % interval, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isnan
from typing import Any


@dataclass(frozen=True)
class Score:
    """A score over a test set, in the unit in which it is printed.

    >>> print(Score("SER", 42.8, 41.9, 43.7, unit="%"))
    SER 42.8 % [41.9, 43.7]
    >>> print(Score("BLEU", 41.02, 40.1, 41.9, detail="tok:13a"))
    BLEU 41.0 [40.1, 41.9] (tok:13a)
    """

    name: str
    value: float
    low: float
    high: float
    detail: str = ""  # how it was computed: sacreBLEU's signature, the number of items
    unit: str = ""

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        detail = f" ({self.detail})" if self.detail else ""
        digits = 1 if self.value >= 10 else 2 if self.value >= 2 else 3
        interval = "" if isnan(self.low) else f" [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return f"{self.name} {self.value:.{digits}f}{unit}{interval}{detail}"

    def to_json(self) -> dict[str, Any]:
        """A plain dict for `json.dumps`; `Score(**score.to_json())` restores the value."""
        return asdict(self)
