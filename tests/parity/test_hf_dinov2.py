"""DINOv2 of `transformers`, with registers and without, with random weights: the same outputs, in and out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image
from tiny_folders import build_hf_model
from torch import Tensor

from headwise import UserError
from headwise.blocks.stream import Context
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.hf.files import open_state_dict
from headwise.interop.hf.read import read_folder
from headwise.testing import assert_parity

PROCESSOR: dict[str, Any] = {
    "image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 36}, "resample": 3, "do_center_crop": True,
    "crop_size": {"height": 32, "width": 32},
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {"mlp": {}, "swiglu": {"use_swiglu_ffn": True, "layerscale_value": 0.3}}
KINDS = {"dinov2": "", "dinov2_with_registers": "WithRegisters"}
IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def save_folder(model: Any, folder: Path, **changes: Any) -> Path:
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, **changes}))
    return folder


def output(model: Any, pixels: Tensor) -> Tensor:
    actual = model(pixels)
    return actual.logits if hasattr(actual, "logits") else actual.pooler_output


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["Dinov2{}ForImageClassification", "Dinov2{}Model"])
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(name: str, case: str, kind: str, tmp_path: Path) -> None:
    name = name.format(KINDS[kind])
    model = build_hf_model(kind, name, **CASES[case])
    imported = from_hf(save_folder(model, tmp_path / "in"))
    assert_parity(imported.model(IMAGES), output(model, IMAGES))
    base = getattr(model, kind, model)
    assert_parity(imported.model.encoder(IMAGES, Context()).x, base(IMAGES).last_hidden_state)
    to_hf(imported, tmp_path / "out")
    again = getattr(transformers, name).from_pretrained(tmp_path / "out").eval()
    assert torch.equal(output(again, IMAGES), output(model, IMAGES))
    before, after = (open_state_dict(tmp_path / side).add_prefix(f"{kind}.") for side in ("in", "out"))
    assert set(before.names) == {*after.names, f"{kind}.embeddings.mask_token"}


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_positions_are_interpolated_to_the_images_of_the_processor(kind: str, tmp_path: Path) -> None:
    """Also through a saved run and an exported folder, which have the interpolated positions."""
    name = f"Dinov2{KINDS[kind]}ForImageClassification"
    model = build_hf_model(kind, name)
    folder = save_folder(model, tmp_path / "in", crop_size={"height": 24, "width": 40})
    imported = from_hf(folder)
    Image.effect_noise((61, 53), 90).convert("RGB").save(tmp_path / "noise.png")
    image = Image.open(tmp_path / "noise.png")
    pixels = transformers.BitImageProcessorPil.from_pretrained(folder)(image, return_tensors="pt").pixel_values
    assert pixels.shape == (1, 3, 24, 40)
    expected = output(model, pixels)
    assert_parity(imported.model(pixels), expected)
    probabilities = imported.classify_images([image])[0]
    assert sorted(probabilities.values()) == pytest.approx(expected.softmax(-1)[0].sort().values.tolist(), abs=1e-5)
    assert "image" in to_hf(imported, tmp_path / "wide")  # not square, which config.json of DINOv2 cannot express
    assert_parity(from_hf(tmp_path / "wide").model(pixels), expected)
    square = from_hf(save_folder(model, tmp_path / "square", crop_size={"height": 48, "width": 48}))
    to_hf(square, tmp_path / "out")
    larger = torch.randn(2, 3, 48, 48)
    again = getattr(transformers, name).from_pretrained(tmp_path / "out").eval()
    assert_parity(output(again, larger), output(model, larger))


def test_what_cannot_be_expressed_is_refused(tmp_path: Path) -> None:
    model = build_hf_model("dinov2", "Dinov2ForImageClassification")
    model.config.image_size = [16, 64]
    with pytest.raises(UserError, match="image_size: must be square"):
        read_folder(save_folder(model, tmp_path / "wide"))
    model.config.image_size = 32
    with pytest.raises(UserError, match="30 x 30 pixels cannot be cut into patches of 8 x 8"):
        read_folder(save_folder(model, tmp_path / "odd", crop_size=30))
