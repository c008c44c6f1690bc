"""Small models of timm as folders, with weights that are computed from their names: the same without timm."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors.torch import save_file
from torch import Tensor

from headwise.config.base import validate
from headwise.interop.hf.read import SkipInit
from headwise.interop.hf.text import NO_VOCABULARIES
from headwise.interop.hf.weights import map_tensors
from headwise.interop.timm import load_family

RECORDED = Path(__file__).parent / "timm_recorded.json"
WIDTH = 8  # features of a model without a head that are recorded
HEADS = ("head", "aux_head")
LEVIT: dict[str, Any] = {
    "img_size": [64, 96], "embed_dim": [24, 36, 40], "key_dim": 8, "num_heads": [2, 3, 4], "depth": [1, 2, 1],
    "num_classes": 5,
}  # fmt: skip
CAIT: dict[str, Any] = {
    "img_size": [48, 32], "embed_dim": 36, "num_heads": 3, "depth": 3, "patch_size": 8, "num_classes": 5,
}  # fmt: skip
VOLO: dict[str, Any] = {"img_size": [64, 32], "mlp_ratio": 0.5, "stem_hidden_dim": 6, "num_classes": 5}
MIXER: dict[str, Any] = {"img_size": [64, 96], "mlp_ratio": [0.3, 0.7], "num_classes": 5}
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # label -> architecture, arguments
    "mixer": ("mixer_s32_224", MIXER),
    "mixer without a head": ("mixer_s32_224", {**MIXER, "num_classes": 0}),
    "cait": ("cait_xxs24_224", CAIT),
    "cait with other layers": (
        "cait_s36_384",
        {**CAIT, "qkv_bias": False, "depth_token_only": 3, "mlp_ratio": 2.5, "mlp_ratio_token_only": 2.5},
    ),
    "cait without a head": ("cait_xxs24_224", {**CAIT, "num_classes": 0}),
    "volo": ("volo_d1_384", {**VOLO, "qkv_bias": True, "post_layers": ["ca"], "patch_size": 16}),
    "volo without a head": ("volo_d1_224", {**VOLO, "num_classes": 0}),
    "levit": ("levit_128s", LEVIT),
    "levit of four stages": (
        "levit_192",
        {**LEVIT, "embed_dim": [16, 24, 32, 40], "num_heads": 2, "depth": [1, 1, 2, 1], "attn_ratio": 3,
         "stem_type": "s8", "distilled": False},
    ),
    "levit of convolutions": ("levit_conv_128s", LEVIT),
    "levit without a head": ("levit_128s", {**LEVIT, "num_classes": 0}),
}  # fmt: skip


def build_weights(shapes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of the shapes of a state dict: sines of other phases for each name."""
    return {name: build_weight(name, tuple(tensor.shape)) for name, tensor in shapes.items()}


def build_weight(name: str, shape: Sequence[int]) -> Tensor:
    if name.endswith("num_batches_tracked"):
        return torch.tensor(3)
    wave = torch.sin(1.7 * torch.arange(math.prod(shape), dtype=torch.float64) + crc32(name.encode()) % 1000)
    wave = wave.view(tuple(shape))
    if name.endswith("running_var"):
        wave = 1 + 0.5 * wave
    elif len(shape) == 1:
        wave = (1 if name.endswith(("weight", "gamma_1", "gamma_2")) else 0) + 0.3 * wave
    elif shape[0] > 1:
        wave = wave / math.prod(shape[1:]) ** 0.5
    return wave.float()


def build_images(arguments: Mapping[str, Any]) -> Tensor:
    """Two images of the size of a model."""
    shape = (2, 3, *arguments["img_size"])
    return torch.sin(0.37 * torch.arange(math.prod(shape), dtype=torch.float64)).view(shape)


def digest_names(shapes: Mapping[str, Sequence[int]]) -> str:
    """A digest of the names and shapes of a state dict."""
    lines = (f"{name} {list(shape)}" for name, shape in sorted(shapes.items()))
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


def build_config(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`config.json` as timm writes it."""
    model_args = {key: value for key, value in arguments.items() if key != "num_classes"}
    preset = {
        "tag": "untrained", "custom_load": False, "input_size": [3, 224, 224], "fixed_input_size": True,
        "interpolation": "bicubic", "crop_pct": 0.9, "crop_mode": "center", "mean": [0.5, 0.4, 0.3],
        "std": [0.2, 0.25, 0.3], "pool_size": None, "first_conv": "stem", "classifier": "head", "license": "apache-2.0",
    }  # fmt: skip
    classes = arguments.get("num_classes", 1000)
    return {
        "architecture": name, "num_classes": classes, "num_features": 24, "global_pool": "avg",
        "model_args": model_args, "pretrained_cfg": {**preset, "num_classes": classes},
    }  # fmt: skip


def list_shapes(name: str, arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """The state dict that Headwise writes for a model of timm, without contents."""
    data = build_config(name, arguments)
    architecture: Any = load_family(name)
    hf_config = architecture.hf_config.read(data)
    class_name = hf_config.read_class_name(architecture, data, "")
    settings = hf_config.to_settings(architecture.classes[class_name], ())
    config = validate(architecture.config, settings)
    with SkipInit(), torch.device("meta"):
        model = config.build(0, max(hf_config.num_classes, 1))
    named = hf_config.add_names(architecture.with_head(class_name))
    state = {}
    for entry in map_tensors(model, named, NO_VOCABULARIES):
        (parts,) = entry.written[0]
        state |= dict(zip(parts, entry.converter.write(entry.tensor, entry.sizes), strict=True))
    return {key: tensor for key, tensor in state.items() if hf_config.num_classes or not key.startswith(HEADS)}


def save_timm_folder(label: str, folder: Path) -> Path:
    """The folder of one of `CASES`."""
    name, arguments = CASES[label]
    weights = build_weights(list_shapes(name, arguments))
    if "_conv_" in name:
        weights = {key: to_convolution(key, tensor) for key, tensor in weights.items()}
    folder.mkdir()
    save_file({key: tensor.contiguous() for key, tensor in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(build_config(name, arguments)))
    return folder


def to_convolution(name: str, tensor: Tensor) -> Tensor:
    """A linear layer as a convolution of 1 x 1."""
    return (
        tensor[..., None, None]
        if name.endswith("linear.weight") and tensor.dim() == 2 and "head" not in name
        else tensor
    )
