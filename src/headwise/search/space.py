"""The search space: ranges of experiment keys, written as `train.schedule.lr = log(1e-4, 1e-2)`.

KEY = uniform(LOW, HIGH)           a number
KEY = uniform(LOW, HIGH, STEP)     a multiple of STEP above LOW
KEY = log(LOW, HIGH)               a number, its logarithm uniform
KEY = int(LOW, HIGH)               a whole number, both ends included; int(LOW, HIGH, STEP) in steps
KEY = int(LOW, HIGH, log)          a whole number, its logarithm uniform
KEY = choice(A, B, ...)            one of these values, written as after --set
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from headwise.errors import UserError, nearest

if TYPE_CHECKING:
    from optuna.trial import Trial

Value = float | int | str

FORMS = ("uniform", "log", "int", "choice")
EXAMPLE = "'train.schedule.lr = log(1e-4, 1e-2)'"
RANGE = re.compile(r"\s*([\w.-]+)\s*=\s*([\w-]+)\s*\((.*)\)\s*", re.DOTALL)
OPENING, CLOSING = "([{", ")]}"


@dataclass(frozen=True)
class NumberRange:
    """An interval of numbers, both ends included."""

    key: str
    low: float
    high: float
    log: bool = False
    step: float | None = None

    def suggest(self, trial: Trial) -> Value:
        return trial.suggest_float(self.key, self.low, self.high, log=self.log, step=self.step)

    def examples(self) -> tuple[Value, ...]:
        """Values to validate before the search: the ends."""
        return self.low, self.high

    def contains(self, value: object) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and self.low <= value <= self.high and self.step is None  # type: ignore[operator]


@dataclass(frozen=True)
class IntRange:
    """An interval of whole numbers, both ends included."""

    key: str
    low: int
    high: int
    log: bool = False
    step: int = 1

    def suggest(self, trial: Trial) -> Value:
        return trial.suggest_int(self.key, self.low, self.high, log=self.log, step=self.step)

    def examples(self) -> tuple[Value, ...]:
        return self.low, self.high

    def contains(self, value: object) -> bool:
        is_int = isinstance(value, int) and not isinstance(value, bool)
        return is_int and self.low <= value <= self.high and (value - self.low) % self.step == 0  # type: ignore[operator]


@dataclass(frozen=True)
class Choice:
    """A categorical parameter: values as text, as they stand after `--set KEY=`."""

    key: str
    values: tuple[str, ...]

    def suggest(self, trial: Trial) -> Value:
        return str(trial.suggest_categorical(self.key, self.values))

    def examples(self) -> tuple[Value, ...]:
        return self.values

    def contains(self, value: object) -> bool:
        return isinstance(value, str) and value in self.values


Range = NumberRange | IntRange | Choice


def parse_ranges(texts: Iterable[str]) -> tuple[Range, ...]:
    """Parse the values of `--over`; a key may have one range.

    >>> parse_ranges(["train.schedule.lr = log(1e-4, 1e-2)"])
    (NumberRange(key='train.schedule.lr', low=0.0001, high=0.01, log=True, step=None),)
    >>> parse_ranges(["model.depth=int(2, 6)", "model.positions = choice(rotary, alibi)"])[1]
    Choice(key='model.positions', values=('rotary', 'alibi'))
    """
    ranges = tuple(map(parse_range, texts))
    if not ranges:
        raise UserError(f"--over: there is nothing to search; give a range such as --over {EXAMPLE}")
    keys = [each.key for each in ranges]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"--over: {key} has {keys.count(key)} ranges; keep one")
    return ranges


def parse_range(text: str) -> Range:
    """Parse one range."""
    match = RANGE.fullmatch(text)
    if not match:
        raise UserError(f"--over {text}: is not a range; write it as {EXAMPLE}")
    key, form, arguments = match[1], match[2], list(split_arguments(match[3]))
    where = f"--over {key}"
    if form not in FORMS:
        raise UserError(f"{where}: there is no range '{form}'; {nearest(form, FORMS)}")
    if form == "choice":
        return _parse_choice(key, arguments, where)
    if len(arguments) not in (2, 3) or (form == "log" and len(arguments) == 3):
        takes = "a low and a high end" if form == "log" else "a low end, a high end and perhaps a step"
        raise UserError(f"{where}: {form} takes {takes}, not {len(arguments)} values; write {EXAMPLE}")
    if form == "int":
        return _parse_int(key, arguments, where)
    low, high, *step = (_parse_number(argument, where) for argument in arguments)
    _check_ends(low, high, form == "log", where)
    if step and not 0 < step[0] <= high - low:
        raise UserError(f"{where}: the step {step[0]:g} must be above 0 and at most the width of the range")
    return NumberRange(key, low, high, log=form == "log", step=step[0] if step else None)


def _parse_choice(key: str, values: list[str], where: str) -> Choice:
    if len(values) < 2 or not all(values):
        raise UserError(f"{where}: a choice needs at least two values; write it as choice(a, b)")
    if len(set(values)) < len(values):
        raise UserError(f"{where}: a choice names the same value twice; leave one out")
    return Choice(key, tuple(values))


def _parse_int(key: str, arguments: list[str], where: str) -> IntRange:
    log = arguments[2:] == ["log"]
    numbers = [_parse_number(argument, where) for argument in (arguments[:2] if log else arguments)]
    if any(number != int(number) for number in numbers):
        raise UserError(f"{where}: the values of int are whole numbers; write uniform for others")
    low, high, *step = map(int, numbers)
    _check_ends(low, high, log, where)
    if step and not 0 < step[0] <= high - low:
        raise UserError(f"{where}: the step {step[0]} must be above 0 and at most the width of the range")
    return IntRange(key, low, high, log, step[0] if step else 1)


def _parse_number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise UserError(f"{where}: '{text}' is not a number") from None
    if not isfinite(number):
        raise UserError(f"{where}: {text} is not finite; give an end that is")
    return number


def _check_ends(low: float, high: float, log: bool, where: str) -> None:
    if not low < high:
        raise UserError(f"{where}: the low end {low:g} is not below the high end {high:g}; swap or change them")
    if log and low <= 0:
        raise UserError(f"{where}: a logarithmic range starts above 0, not at {low:g}")


def split_arguments(text: str) -> Iterator[str]:
    """Split at the commas outside of quotes and brackets.

    >>> list(split_arguments('rotary, [1, 2], "a, b"'))
    ['rotary', '[1, 2]', '"a, b"']
    """
    start, depth, quote = 0, 0, ""
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in OPENING:
            depth += 1
        elif character in CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
    yield text[start:].strip()
