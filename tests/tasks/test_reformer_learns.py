"""The Reformer learns, from texts in rows and packed, and writes what it has learnt step by step."""

import tomllib
from pathlib import Path

import pytest

from headwise.catalog import MODELS

FILE = Path(__file__).parents[2] / "experiments" / "reformer-gpt.toml"


def test_the_experiment_is_a_reversible_stack_of_local_and_hashed_layers():
    model = MODELS.parse(tomllib.loads(FILE.read_text(encoding="utf-8"))["model"])
    assert [part.kind for part, _ in model.pattern()] == ["local", "lsh"]
    assert model.wiring.kind == "reversible"


@pytest.mark.parametrize("packing", [False, True])
def test_it_goes_on_with_what_it_has_learnt(learn, tmp_path, packing):
    (tmp_path / "text").write_text("\n".join(["abcdefgh"] * 100))
    data = {"train": str(tmp_path / "text"), "valid": str(tmp_path / "text"), "format": "lines"}
    task = {"kind": "language-model", "context": 16, "packing": packing}
    mixer = {"kind": "lsh", "chunk": 4, "rounds": 1, "buckets": 2}
    run = learn(
        task, data, "characters", {"kind": "reformer-tiny", "mixer": mixer}, batch_size=4, steps=60, validate_every=60
    )
    [[way]] = run.generate(["abc"], max_ratio=0, max_extra=20)
    assert way.text == "abcdefgh"
