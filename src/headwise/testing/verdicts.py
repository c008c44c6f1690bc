"""Verdicts: the result of one check of one part or model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from headwise.config.plugins import PREFIX, describe_error
from headwise.errors import UserError


@dataclass(frozen=True)
class Verdict:
    """Whether a check passed. `problem` says what is wrong, empty if nothing is; `note` what was seen."""

    subject: str
    check: str
    problem: str = ""
    note: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem or self.note}"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed, "note": self.note if self.passed else ""}


def find_violation(check: Callable[[], object], catch: bool = False) -> str:
    """The message of a failed check; empty if it passes. With `catch`, other exceptions than those of checks are
    violations, too, described with the line of the user's file."""
    try:
        check()
    except AssertionError as violation:
        return str(violation) or "an assertion fails"
    except UserError as refusal:
        return f"it refuses: {refusal}"
    except Exception as error:
        if not catch:
            raise
        return f"it raises {describe_error(error, find_user_file(error))}"
    return ""


def find_user_file(error: BaseException) -> str:
    """The parts file in which an exception was raised; empty if it is not in the traceback."""
    trace, file = error.__traceback__, ""
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).startswith(PREFIX):
            file = trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return file
