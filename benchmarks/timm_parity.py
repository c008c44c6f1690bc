"""MLP-Mixer, CaiT, VOLO, LeViT, distilled DeiT and gMLP beside timm: folders of timm in and out, and their logits.

    python -m venv other && other/bin/pip install --no-deps timm torchvision==0.28.0   # never into Headwise's own
    echo "$PWD/.venv/lib/python3.11/site-packages" > other/lib/python3.11/site-packages/headwise.pth
    PYTHONPATH=src other/bin/python benchmarks/timm_parity.py

timm imports torchvision, whose compiled operators are of another torch: none of them is needed here, so their names are
declared first. Every tensor of a timm model, statistics of batch norms included, is drawn anew. Each model is saved by
timm and imported; its images, prepared by both, give the same logits; it is exported, and timm loads the folder with
the same tensors. The names and shapes of all published sizes are compared, too. Measured with timm 1.0.31.

`--record FILE` writes what the tests compare with where timm is not installed: a digest of the names and shapes of each
architecture, and logits of small models whose weights are computed from their names.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import headwise
from headwise.blocks.stack import count_parameters
from headwise.interop.hf.architecture import Architecture, keep_fused
from headwise.interop.hf.images import concatenate_vectors, flatten_kernel
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.text import NO_VOCABULARIES
from headwise.interop.hf.weights import build_state_dict
from headwise.interop.hf.write import write_folder
from headwise.interop.timm import FAMILIES, import_architecture
from headwise.models.deit import DeiTConfig
from headwise.models.gmlp import ImageGatedMlpConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "parity"))
from timm_folders import CASES, WIDTH, build_images, build_weights, digest_names, list_shapes, to_convolution

LAYER, BLOCK = "encoder.stack.layers.{i}", "blocks.{i}"
DEIT = Architecture(
    hf_config=import_architecture(FAMILIES["mixer"]).hf_config,  # not used: its folders are not read
    config=DeiTConfig,
    classes={},
    name_map={
        "encoder.stem.patches.project": flatten_kernel("patch_embed.proj"),
        "encoder.stem.class_tokens": concatenate_vectors("cls_token", "dist_token"),
        "encoder.stem.positions.table": concatenate_vectors("pos_embed"),
        f"{LAYER}.norms.0": f"{BLOCK}.norm1",
        f"{LAYER}.parts.0.qkv.project": keep_fused(f"{BLOCK}.attn.qkv"),
        f"{LAYER}.parts.0.out": f"{BLOCK}.attn.proj",
        f"{LAYER}.norms.1": f"{BLOCK}.norm2",
        f"{LAYER}.parts.1.inner": f"{BLOCK}.mlp.fc1",
        f"{LAYER}.parts.1.outer": f"{BLOCK}.mlp.fc2",
        "encoder.stack.final": "norm",
        "heads.0.head": "head",
        "heads.1.head": "head_dist",
    },
)
GMLP = Architecture(
    hf_config=DEIT.hf_config,  # not used
    config=ImageGatedMlpConfig,
    classes={},
    name_map={
        "encoder.stem.patches.project": flatten_kernel("stem.proj"),
        f"{LAYER}.norms.0": f"{BLOCK}.norm",
        f"{LAYER}.parts.0.inner": f"{BLOCK}.mlp_channels.fc1",
        f"{LAYER}.parts.0.gating.norm": f"{BLOCK}.mlp_channels.gate.norm",
        f"{LAYER}.parts.0.gating": f"{BLOCK}.mlp_channels.gate.proj",
        f"{LAYER}.parts.0.outer": f"{BLOCK}.mlp_channels.fc2",
        "encoder.stack.final": "norm",
        "heads.0.head": "head",
    },
)
WRITTEN = {  # architectures whose folders are not read -> in the catalogue, and their names
    "deit_tiny_distilled_patch16_224": ("deit-ti-distilled", DEIT),
    "gmlp_s16_224": ("gmlp-image-s16", GMLP),
}
PUBLISHED = {  # architectures that are compared at their full size -> in the catalogue
    "mixer_s16_224": "mixer-s16",
    "cait_xxs24_224": "cait-xxs24",
    "volo_d1_224": "volo-d1",
    "levit_128s": "levit-128s",
    "levit_conv_128s": "levit-128s",
}
ODD = [(37, 23), (22, 51), (16, 16), (300, 190), (11, 7)]  # widths and heights of images


def import_timm() -> Any:
    """timm, with the names of torchvision's operators declared."""
    (folder,) = importlib.util.find_spec("torchvision").submodule_search_locations  # type: ignore[union-attr,misc]
    text = Path(folder, "_meta_registrations.py").read_text()
    for name in sorted(set(re.findall(r'register_meta\("(\w+)"|torchvision::(\w+)"', text))):
        torch.library.define(f"torchvision::{''.join(name)}", "(Tensor x) -> Tensor")
    import timm

    return timm


def randomise(model: nn.Module) -> None:
    """Change all tensors, so that gains, biases and statistics count as well."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor += 0.05 * (torch.rand_like(tensor) if name.endswith("var") else torch.randn_like(tensor))


def measure(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest number."""
    assert actual.shape == expected.shape
    return float((actual - expected).abs().max() / expected.abs().max())


@torch.no_grad()
def compare_written(timm: Any, name: str, entry: str, architecture: Architecture) -> str:
    """Weights of ours in timm's model, for architectures whose folders are not read."""
    torch.manual_seed(0)
    model = timm.create_model(name).eval()
    ours = headwise.build(entry).eval()
    randomise(ours)
    model.load_state_dict(build_state_dict(ours, architecture, NO_VOCABULARIES))
    images = torch.randn(2, 3, 224, 224)
    difference = measure(ours(images), model(images))
    return f"{name:32} {count_parameters(ours):>11,} parameters: {difference:.1e}"


@torch.no_grad()
def compare_folder(timm: Any, name: str, **arguments: Any) -> str:
    """timm's folder in, ours out, timm's again."""
    from timm.models import save_for_hf

    torch.manual_seed(0)
    model = timm.create_model(name, **arguments).eval()
    randomise(model)
    with tempfile.TemporaryDirectory() as parent:
        save_for_hf(model, f"{parent}/theirs", safe_serialization=True, model_args=arguments)
        imported = read_folder(Path(parent, "theirs"))
        images = torch.randn(2, imported.config.channels, *imported.config.image)
        difference = measure(imported.model(images), model(images))
        double = measure(imported.model.double()(images.double()), model.double()(images.double()))
        imported.model.float(), model.float()
        write_folder(imported.model, imported.config, imported.task, imported.tokenisers, f"{parent}/ours")
        again = timm.create_model(f"local-dir:{parent}/ours", pretrained=True).eval()
        loaded = timm.create_model(f"local-dir:{parent}/theirs", pretrained=True)
        pixels = max(compare_pixels(timm, side, imported.tokenisers.source) for side in (loaded, again))
        before, after = model.state_dict(), again.state_dict()
        assert before.keys() == after.keys() or "conv" in name
        assert all(torch.equal(before[key].flatten(), after[key].flatten()) for key in before)
        back = measure(again(images), model(images))
        assert count_parameters(imported.model) == count_parameters(model)
    label = f"{name} {arguments or ''}"
    return (
        f"{label:32} {count_parameters(model):>11,} parameters: {difference:.1e} ({double:.1e} in float64), "
        f"timm loads the export: {back:.1e}, pixels {pixels:.1e}"
    )


def compare_pixels(timm: Any, model: Any, source: Any) -> float:
    """Images of odd sizes, prepared by timm and here."""
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    largest = 0.0
    for width, height in ODD:
        shape = (height, width, 3) if source.channels == 3 else (height, width)
        image = Image.fromarray(np.random.default_rng(width).integers(0, 256, shape, np.uint8))
        largest = max(largest, measure(source.normalise_images(source.read(image)[None]), transform(image)[None]))
    return largest


@torch.no_grad()
def record(timm: Any, file: Path) -> None:
    """Write the names and shapes of every architecture, and logits of small models."""
    names = {}
    for family in FAMILIES.values():
        for name in import_architecture(family).hf_config.variants:
            with torch.device("meta"):
                model = timm.create_model(name)
            shapes = {key: list(tensor.shape) for key, tensor in model.state_dict().items()}
            names[name] = [len(shapes), count_parameters(model), digest_names(shapes)]
            ours = list_shapes(name, {"img_size": model.pretrained_cfg["input_size"][-1]})
            ours = {key: to_convolution(key, tensor) if "_conv_" in name else tensor for key, tensor in ours.items()}
            assert shapes == {key: list(tensor.shape) for key, tensor in ours.items()}
            print(name, *names[name], flush=True)
    logits = {}
    for label, (name, arguments) in CASES.items():
        model = timm.create_model(name, **arguments).eval().double()
        model.load_state_dict(build_weights(model.state_dict()))
        logits[label] = [[round(float(value), 9) for value in row[:WIDTH]] for row in model(build_images(arguments))]
        print(label, logits[label][0][:3], flush=True)
    keys = {
        name: sorted(
            inspect.signature(getattr(timm.models, name).__init__).parameters.keys() - {"self", "args", "kwargs"}
        )
        for name in ("MlpMixer", "Cait", "VOLO", "Levit", "PretrainedCfg")
    }
    recorded = {"timm": timm.__version__, "names": names, "logits": logits, "keys": keys}
    file.write_text(json.dumps(recorded, indent=None, separators=(",", ": ")) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="such as cait_xxs24_224; all by default")
    parser.add_argument("--record", type=Path, help="write what the tests compare with")
    options = parser.parse_args()
    timm = import_timm()
    if options.record:
        record(timm, options.record)
        return
    for name, arguments in [*((name, {}) for name in PUBLISHED), *CASES.values()]:
        if not options.models or name in options.models:
            print(compare_folder(timm, name, **arguments), flush=True)
    if not options.models:
        for name, (entry, architecture) in WRITTEN.items():
            print(compare_written(timm, name, entry, architecture))


if __name__ == "__main__":
    main()
