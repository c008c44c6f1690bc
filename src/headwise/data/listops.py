"""ListOps (Nangia and Bowman 2018), drawn as in the Long Range Arena (Tay et al. 2021, listops.py).

    [MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]  ->  5

An argument of a list is a digit, or with probability 1/4 another list, up to a depth; expressions of the wrong length
are rejected. The label is the value, so it depends on tokens from the whole text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from pydantic import Field

from headwise.data.generated import SampledCorpus
from headwise.data.texts import Pair

NESTED_PROBABILITY = 0.25  # of an argument that is a list


def compute_median(values: Sequence[int]) -> int:
    """The median; between two values, their mean rounded down.

    >>> compute_median([9, 1, 4]), compute_median([1, 2, 4, 9])
    (4, 3)
    """
    ordered, count = sorted(values), len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) // 2


OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": compute_median,
    "[SM": lambda values: sum(values) % 10,
}


class ListOps(SampledCorpus):
    """Expression -> value. DISCREPANCY: the Arena has 500 to 2,000 tokens, 96,000 training texts and 2,000 each for
    validation and test."""

    length: int = Field(512, ge=16)  # maximum of tokens, EOS included; the minimum is a quarter of it, as in the Arena
    depth: int = Field(10, ge=2)
    arguments: int = Field(10, ge=2)  # of one operator, at most

    def draw_pair(self, generator: Random) -> Pair:
        tokens: list[str] = []
        value = 0
        while not self.length // 4 <= len(tokens) < self.length:
            tokens.clear()
            value = self._append_list(tokens, generator.random, level=1)
        return " ".join(tokens), str(value)

    def _append_list(self, tokens: list[str], draw: Callable[[], float], level: int) -> int:
        """Append a random list to the tokens and return its value."""
        operator = list(OPERATORS)[int(4 * draw())]
        tokens.append(operator)
        values = []
        for _ in range(2 + int((self.arguments - 1) * draw())):
            if len(tokens) >= self.length:  # too long already: it will be rejected
                return 0
            if level + 1 < self.depth and draw() <= NESTED_PROBABILITY:
                values.append(self._append_list(tokens, draw, level + 1))
            else:
                values.append(int(10 * draw()))
                tokens.append(str(values[-1]))
        tokens.append("]")
        return OPERATORS[operator](values)
