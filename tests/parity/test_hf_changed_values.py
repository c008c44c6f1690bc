"""A changed value of `config.json` changes outputs as it does in transformers, or is refused: never silently different.

`make test-weights` tries every value of every key of every architecture, and combinations of values in every class;
`make test` one value of the keys that are used, in five families.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from changed_values import Trial, walk, walk_combinations

from headwise.interop.hf import ARCHITECTURES

FAMILIES = ("bert", "gpt2", "llama", "t5", "vit")


def check_trials(trials: list[Trial]) -> None:
    wrong = [str(trial) for trial in trials if trial.outcome in ("different", "crash")]
    assert not wrong, "\n".join(wrong)


def check_equal_ones(trials: list[Trial]) -> None:
    check_trials(trials)
    assert sum(trial.outcome == "equal" for trial in trials) > 5


@pytest.mark.parametrize("kind", FAMILIES)
def test_one_changed_value_of_each_used_key(kind: str, tmp_path: Path) -> None:
    check_equal_ones(list(walk(kind, tmp_path / "folder", used=True)))


@pytest.mark.weights
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_every_changed_value_of_every_key(kind: str, tmp_path: Path) -> None:
    check_equal_ones(list(walk(kind, tmp_path / "folder")))


@pytest.mark.weights
@pytest.mark.parametrize("kind", [kind for kind in ARCHITECTURES if kind != "detr"])  # slow, and it has one class
def test_combinations_of_changed_values_in_every_class(kind: str, tmp_path: Path) -> None:
    check_trials(list(walk_combinations(kind, tmp_path / "folder", count=20)))
