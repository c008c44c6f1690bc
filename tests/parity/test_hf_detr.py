"""DETR of `transformers` with random weights, in and out: the same objects at the same places."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.utils import logging

from headwise import UserError
from headwise.interop.hf.files import WEIGHTS
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.write import write_folder
from headwise.testing import assert_parity

logging.disable_progress_bar()
logging.set_verbosity_error()

SIZES: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_queries": 5, "num_labels": 3, "use_timm_backbone": False,
}  # fmt: skip
BACKBONE: dict[str, Any] = {
    "embedding_size": 8, "hidden_sizes": [32, 64], "depths": [1, 2], "layer_type": "bottleneck",
    "out_features": ["stage2"],
}  # fmt: skip
PROCESSOR = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
IMAGES = torch.randn(2, 3, 48, 64, generator=torch.Generator().manual_seed(1))


def build_hf_model(folder: Path, backbone: dict[str, Any] | None = None, **settings: Any) -> Any:
    """A model of theirs in a folder, with norms that do something."""
    torch.manual_seed(0)
    layers = transformers.ResNetConfig(**{**BACKBONE, **(backbone or {})})
    config = transformers.DetrConfig(backbone_config=layers, **{**SIZES, **settings})
    model = transformers.DetrForObjectDetection(config).eval()
    for tensor in (*model.parameters(), *model.model.backbone.buffers()):
        tensor.data += 0.1 * torch.rand_like(tensor)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return model


def compare(model: Any, other: Any, keep: Tensor | None = None) -> None:
    expected = other(IMAGES, None if keep is None else keep.long())
    actual = model(IMAGES, keep)
    assert_parity(actual.logits, expected.logits)
    assert_parity(actual.boxes, expected.pred_boxes)


@pytest.mark.parametrize(
    "backbone", [{}, {"layer_type": "basic", "hidden_sizes": [8, 16]}], ids=["bottleneck", "basic"]
)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(backbone: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model(tmp_path / "in", backbone)
    imported = read_folder(tmp_path / "in")
    compare(imported.model, model)
    write_folder(imported.model, imported.config, "detect", imported.tokenisers, tmp_path / "out")
    compare(imported.model, transformers.DetrForObjectDetection.from_pretrained(tmp_path / "out").eval())
    assert imported.task == "detect" and imported.tokenisers is not None


@torch.inference_mode()
def test_images_of_several_sizes_in_one_batch(tmp_path: Path) -> None:
    model, keep = build_hf_model(tmp_path / "in"), torch.zeros(2, 48, 64, dtype=torch.bool)
    keep[0, :30, :41] = keep[1] = True
    compare(read_folder(tmp_path / "in").model, model, keep)


@torch.inference_mode()
def test_names_of_timm_are_read(tmp_path: Path) -> None:
    """Folders from before `transformers` had a ResNet of its own, such as facebook/detr-resnet-50."""
    model = build_hf_model(tmp_path)
    save_file({timm(name): tensor for name, tensor in load_file(tmp_path / WEIGHTS).items()}, tmp_path / WEIGHTS)
    compare(read_folder(tmp_path).model, model)


def timm(name: str) -> str:
    for pattern, there in (
        (r"embedder\.embedder\.convolution", "conv1"),
        (r"embedder\.embedder\.normalization", "bn1"),
        (r"encoder\.stages\.(\d)\.layers\.", lambda actual: f"layer{int(actual[1]) + 1}."),
        (r"shortcut\.convolution", "downsample.0"),
        (r"shortcut\.normalization", "downsample.1"),
        (r"layer\.(\d)\.convolution", lambda actual: f"conv{int(actual[1]) + 1}"),
        (r"layer\.(\d)\.normalization", lambda actual: f"bn{int(actual[1]) + 1}"),
    ):
        name = re.sub(pattern, there, name)
    return name


@pytest.mark.parametrize(
    ("backbone", "settings", "complaint"),
    [
        ({"downsample_in_bottleneck": True}, {}, "downsample_in_bottleneck"),
        ({"hidden_sizes": [32, 48]}, {}, "every stage doubles"),
        ({"out_features": ["stage1"]}, {}, "must end with the last stage, stage2"),
        ({}, {"position_embedding_type": "learned"}, "position_embedding_type"),
        ({}, {"auxiliary_loss": True}, "auxiliary_loss"),
    ],
    ids=str,
)
def test_unsupported_settings_are_refused(
    backbone: dict[str, Any], settings: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    build_hf_model(tmp_path, backbone, **settings)
    with pytest.raises(UserError, match=complaint):
        read_folder(tmp_path)
