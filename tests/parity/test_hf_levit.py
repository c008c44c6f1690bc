"""LeViT and ResNet of `transformers` with random weights, in and out: the same numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor
from transformers.models.resnet.modeling_resnet import ResNetConvLayer
from transformers.utils import logging

import headwise
from headwise import UserError
from headwise.blocks.stream import Context
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.write import write_folder
from headwise.models.levit import SIZES, LevitConfig
from headwise.testing import assert_parity
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels
from headwise.vision.pixels import Pixels

logging.disable_progress_bar()
logging.set_verbosity_error()
LEVIT: dict[str, Any] = {
    "image_size": 64, "num_channels": 1, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 3, 2],
    "depths": [1, 2, 1], "key_dim": [8, 8, 8], "attention_ratio": [3, 3, 3], "num_labels": 3,
}  # fmt: skip
RESNET: dict[str, Any] = {  # ResNet-50, an eighth as wide
    "num_channels": 1, "embedding_size": 8, "hidden_sizes": [32, 64, 128, 256], "num_labels": 3,
}  # fmt: skip
BASIC: dict[str, Any] = {"layer_type": "basic", "hidden_sizes": [8, 16, 32], "depths": [1, 2, 1]}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "levit": ("LevitForImageClassificationWithTeacher", LEVIT),
    "levit without a teacher": ("LevitForImageClassification", LEVIT),
    "resnet": ("ResNetForImageClassification", RESNET),
    "basic resnet": ("ResNetForImageClassification", {**RESNET, **BASIC}),
}
PIXELS = torch.randn(3, 1, 64, 64)


def build_hf_model(name: str, settings: dict[str, Any]) -> Any:
    """A model that has lived: no weight and no statistic is what it began with."""
    kind = transformers.LevitConfig if name.startswith("Levit") else transformers.ResNetConfig
    model = getattr(transformers, name)(kind(**settings)).eval()
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor += 0.3 * torch.rand_like(tensor) if tensor.dim() == 1 else 0.05 * torch.randn_like(tensor)
    return model


def save_folder(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text('{"image_mean": 0.4, "image_std": 0.2}')
    return folder


def assert_same(actual: Tensor, expected: Tensor) -> None:
    assert_parity(actual, expected)


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_import_and_export_keep_outputs(case: str, tmp_path: Path) -> None:
    name, settings = CASES[case]
    model = build_hf_model(name, settings)
    imported = read_folder(save_folder(model, tmp_path / "theirs"))
    assert_same(imported.model(PIXELS), model(PIXELS).logits)
    write_folder(imported.model, imported.config, imported.task, imported.tokenisers, tmp_path / "ours")
    before, after = (load_file(tmp_path / side / "model.safetensors") for side in ("theirs", "ours"))
    assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)
    again = getattr(transformers, name).from_pretrained(tmp_path / "ours")
    assert_same(again(PIXELS).logits, imported.model(PIXELS))
    assert json.loads((tmp_path / "ours/config.json").read_text())["architectures"] == [name]
    ours, pixels = imported.model.double().train(), PIXELS.double()
    assert_same(ours(pixels), model.double().train()(pixels).logits)  # by the batch's statistics


@torch.no_grad()
def test_the_small_residual_network_is_that_of_transformers_with_another_first_layer() -> None:
    """Basic layers in stages as theirs; one convolution of 3 x 3 in the place of 7 x 7 and a pool."""
    model = build_hf_model("ResNetForImageClassification", {**RESNET, **BASIC})
    model.resnet.embedder.embedder = ResNetConvLayer(1, 8, kernel_size=3, stride=1).eval()
    model.resnet.embedder.pooler = torch.nn.Identity()
    ours = headwise.build("cnn-tiny", outputs=3, depths=(1, 2, 1), image=64).eval()
    names = {
        r"resnet\.embedder\.embedder\.": "encoder.stem.patches.layers.0.",
        r"resnet\.encoder\.stages\.(\d)\.layers\.(\d)\.": r"encoder.stack.layers.\1.layers.\2.",
        r"\.layer\.(\d)\.": r".body.\1.",
        r"convolution\.": "conv.",
        r"normalization\.": "norm.",
        r"classifier\.1\.": "heads.0.head.",
    }
    state = {}
    for name, tensor in model.state_dict().items():
        for pattern, other in names.items():
            name = re.sub(pattern, other, name)
        state[name] = tensor
    ours.load_state_dict(state)
    assert_same(ours(PIXELS), model(PIXELS).logits)


@torch.no_grad()
def test_both_heads_and_the_running_statistics(tmp_path: Path) -> None:
    model = build_hf_model("LevitForImageClassificationWithTeacher", LEVIT)
    imported, pixels = read_folder(save_folder(model, tmp_path)), PIXELS.double()
    ours, actual = imported.model.double().train().head_logits(pixels), model.double().train()(pixels)
    assert_same(ours[0], actual.cls_logits)
    assert_same(ours[1], actual.distillation_logits)
    statistics = model.state_dict()["levit.encoder.stages.0.layers.2.queries.batch_norm.running_var"]
    assert_same(imported.model.encoder.stack.layers[0].layers[2].attention.qkv.query.norm.running_var, statistics)


@pytest.mark.parametrize(("name", "settings"), [("LevitModel", LEVIT), ("ResNetModel", RESNET)])
@torch.no_grad()
def test_base_models_are_encoders(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model(name, settings)
    imported = read_folder(save_folder(model, tmp_path))
    actual = model(PIXELS)
    assert_same(imported.model(PIXELS), actual.pooler_output.flatten(1))
    stream = imported.model.encoder(PIXELS, Context())
    last = actual.last_hidden_state
    assert_same(stream.x, last if last.dim() == 3 else last.flatten(2).transpose(1, 2))


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("key_dim", [8, 8, 4], "key_dim must be equal in all stages"),
        ("down_ops", [["Subsample", 8, 2, 4, 2, 1], ["Subsample", 8, 3, 4, 2, 2]], "down_ops other than those"),
        ("mlp_ratio", [2, 2, 4], "mlp_ratio"),
        ("depths", [1, 1], "depths"),
    ],
)
def test_unsupported_settings_are_refused(key: str, value: Any, complaint: str, tmp_path: Path) -> None:
    path = save_folder(build_hf_model("LevitForImageClassification", LEVIT), tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(UserError, match=complaint):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, "image"),  # config.json of levit needs whole patches of 16
        ({"image": 32}, "stem_layers|widths|depths|heads"),
        ({"image": 32, "stem_layers": 4, "widths": (16, 24, 32), "depths": (1, 1, 1), "heads": (2, 2, 2),
          "position_bias": False}, "position_bias"),
    ],
)  # fmt: skip
def test_settings_that_config_json_cannot_express_are_refused(
    settings: dict[str, Any], key: str, tmp_path: Path
) -> None:
    config = LevitConfig(**{**SIZES["tiny"], "image": 20, **settings})
    tokenisers = Tokenisers(Pixels(*config.image, 1, (0.5,), (0.5,)), Labels(["a", "b", "c"]))
    with pytest.raises(UserError, match=rf"^({key}): config.json of levit cannot express this"):
        write_folder(config.build(0, 3), config, "classify-images", tokenisers, tmp_path / "ours")
