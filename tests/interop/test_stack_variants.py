"""Stacks that no other library has are not exported: overrides, recurrence and pooled layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwise import UserError
from headwise.catalog import MODELS
from headwise.interop.hf.write import write_folder
from headwise.interop.plain import read_plain_stack

VARIANTS: dict[str, Any] = {
    "overrides": [{"layers": [2], "feedforward": {"kind": "mlp", "hidden": 8}}],
    "recurrence": {"before": 1},
    "pooled_layers": [2],
}


@pytest.mark.parametrize("key", VARIANTS)
def test_a_marian_or_ctranslate2_model_has_plain_stacks(key: str) -> None:
    config: Any = MODELS.parse({"kind": "transformer-tiny", "encoder": {"depth": 2, key: VARIANTS[key]}})
    with pytest.raises(UserError, match=rf"encoder\.{key}: cannot be exported; train without it"):
        read_plain_stack(config, "encoder")
    assert read_plain_stack(config, "decoder").layer_numbers == (0, 1)


@pytest.mark.parametrize(("kind", "task"), [("t5-tiny", "transduce"), ("bert-tiny", "masked")])
@pytest.mark.parametrize("key", VARIANTS)
def test_a_folder_of_transformers_has_plain_stacks(key: str, kind: str, task: str, tmp_path: Path) -> None:
    stack = {"depth": 2, key: VARIANTS[key]}
    config: Any = MODELS.parse({"kind": kind, **(stack if kind == "bert-tiny" else {"encoder": stack})})
    with pytest.raises(UserError, match=rf"^{key}: config\.json of \w+ cannot express this"):
        write_folder(config.build(20, task=task), config, task, None, tmp_path / "out")


def test_initial_weights_are_no_reason_against_an_export(tmp_path: Path) -> None:
    config: Any = MODELS.parse({"kind": "bert-tiny", "init": "truncated_normal"})
    write_folder(config.build(20, task="masked"), config, "masked", None, tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").is_file()
