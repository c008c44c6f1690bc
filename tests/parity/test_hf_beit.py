"""BEiT of `transformers` with random weights, in and out: the same outputs, the same tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_folders import build_hf_model, save_folder

from headwise import UserError
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.hf.files import open_state_dict
from headwise.interop.hf.read import read_folder
from headwise.testing import assert_parity

NAME = "BeitForImageClassification"
CASES: dict[str, dict[str, Any]] = {
    "relative": {},
    "absolute": {"use_relative_position_bias": False, "use_absolute_position_embeddings": True},
    "both": {"use_absolute_position_embeddings": True, "hidden_act": "relu"},
    "token": {"use_mean_pooling": False},
    "unscaled": {"layer_scale_init_value": 0.0},
    "shared": {"use_relative_position_bias": False, "use_shared_relative_position_bias": True},
    "both biases": {"use_shared_relative_position_bias": True, "use_absolute_position_embeddings": True},
}
HEADLESS = ("relative", "token", "both biases")


@pytest.mark.parametrize(
    ("name", "case"), [(NAME, case) for case in CASES] + [("BeitModel", case) for case in HEADLESS]
)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(name: str, case: str, tmp_path: Path) -> None:
    model = build_hf_model("beit", name, **CASES[case])
    imported = from_hf(save_folder(model, tmp_path / "in"))
    images, output = torch.randn(3, 3, 32, 32), "logits" if name == NAME else "pooler_output"
    assert_parity(imported.model(images), model(images)[output])
    to_hf(imported, tmp_path / "out")
    again = getattr(transformers, name).from_pretrained(tmp_path / "out").eval()
    assert_parity(again(images)[output], model(images)[output])
    modes = {(tmp_path / "out" / file).stat().st_mode for file in ("config.json", "model.safetensors")}
    assert len(modes) == 1  # not for the owner alone
    before, after = (open_state_dict(tmp_path / side).add_prefix("beit.") for side in ("in", "out"))
    assert set(before.names) == set(after.names)
    assert all(torch.equal(before[name], after[name]) for name in before.names)


@pytest.mark.parametrize("size", [(48, 48), (16, 16), (24, 40)])
@torch.inference_mode()
def test_biases_and_positions_are_interpolated_to_images_of_another_size(size: tuple[int, int], tmp_path: Path) -> None:
    settings = {"use_absolute_position_embeddings": True, "use_shared_relative_position_bias": True}
    model = build_hf_model("beit", NAME, **settings)
    images = torch.randn(2, 3, *size)
    assert_parity(read_folder(save_folder(model, tmp_path)).model(images), model(images).logits)


def test_what_cannot_be_expressed_is_refused(tmp_path: Path) -> None:
    model = build_hf_model("beit", NAME)
    model.config.image_size = [16, 64]
    with pytest.raises(UserError, match="image_size: must be square"):
        read_folder(save_folder(model, tmp_path / "wide"))
