"""ListOps (Nangia and Bowman 2018), drawn as in the Long Range Arena (Tay et al. 2021, listops.py).

    [MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]  ->  5

A place of a list is a digit, or with probability 1/4 another list, down to a depth; expressions of the wrong length are
thrown away. The label is the value, so it depends on tokens from all over the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from pydantic import Field

from headwise.data.generated import SampledCorpus
from headwise.data.texts import Pair

NESTED_PROBABILITY = 0.25  # the share of places that hold a list


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
    """Expression -> value. DISCREPANCY: the Arena has 500 to 2,000 tokens, 96,000 texts to train on and 2,000 each to
    validate and test."""

    length: int = Field(512, ge=16)  # the most tokens, the end mark included; at least a quarter of it, as there
    depth: int = Field(10, ge=2)
    arguments: int = Field(10, ge=2)  # of one operator, at most

    def draw(self, chance: Random) -> Pair:
        tokens: list[str] = []
        value = 0
        while not self.length // 4 <= len(tokens) < self.length:
            tokens.clear()
            value = self._grow(tokens, chance.random, level=1)
        return " ".join(tokens), str(value)

    def _grow(self, tokens: list[str], chance: Callable[[], float], level: int) -> int:
        """Write a list behind the tokens; its value."""
        operator = list(OPERATORS)[int(4 * chance())]
        tokens.append(operator)
        values = []
        for _ in range(2 + int((self.arguments - 1) * chance())):
            if len(tokens) >= self.length:  # it will be thrown away
                return 0
            if level + 1 < self.depth and chance() <= NESTED_PROBABILITY:
                values.append(self._grow(tokens, chance, level + 1))
            else:
                values.append(int(10 * chance()))
                tokens.append(str(values[-1]))
        tokens.append("]")
        return OPERATORS[operator](values)
