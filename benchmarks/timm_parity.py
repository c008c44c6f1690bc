"""CaiT, VOLO, MLP-Mixer, gMLP and distilled DeiT beside timm: the same logits from the same random weights.

    python -m venv other && other/bin/pip install --no-deps timm torchvision==0.28.0   # never into Headwise's own
    echo "$PWD/.venv/lib/python3.11/site-packages" > other/lib/python3.11/site-packages/headwise.pth
    PYTHONPATH=src other/bin/python benchmarks/timm_parity.py

timm imports torchvision, whose compiled operators are of another torch: none of them is needed here, so their names are
declared first. Every tensor of timm's, statistics of batch norms included, is drawn anew; ours are made from them under
other names, and all of them must be used. Measured with timm 1.0.30.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import headwise
from headwise.blocks.stack import count_parameters

Names = list[tuple[str, Any]]  # patterns of theirs, and ours

WITHIN: Names = [  # what stands inside a layer
    (r"norm([12])\.weight", lambda found: f"norms.{int(found[1]) - 1}.weight"),
    (r"norm([12])\.bias", lambda found: f"norms.{int(found[1]) - 1}.bias"),
    (r"gamma_([12])", lambda found: f"adds.{int(found[1]) - 1}.gain"),
    (r"attn\.qkv\.", "parts.0.qkv.project."),
    (r"attn\.q\.", "parts.0.qkv.query."),
    (r"attn\.kv\.", "parts.0.qkv.project."),
    (r"attn\.proj\.", "parts.0.out."),
    (r"attn\.proj_l\.", "parts.0.terms.0.before."),
    (r"attn\.proj_w\.", "parts.0.terms.0.after."),
    (r"attn\.attn\.", "parts.0.weigh."),
    (r"attn\.v\.", "parts.0.value."),
    (r"mlp_tokens\.fc1", "parts.0.inner"),
    (r"mlp_tokens\.fc2", "parts.0.outer"),
    (r"(mlp|mlp_channels)\.fc1", "parts.1.inner"),
    (r"(mlp|mlp_channels)\.fc2", "parts.1.outer"),
]
AROUND: Names = [
    (r"^(patch_embed|stem)\.proj\.", "encoder.stem.patches.project."),
    (r"^norm\.weight", "encoder.stack.final.weight"),
    (r"^norm\.bias", "encoder.stack.final.bias"),
    (r"^head\.", "heads.0.head."),
    (r"^(head_dist|aux_head)\.", "heads.1.head."),
    (r"^pos_embed", "encoder.stem.positions.table"),
    (r"^blocks\.(\d+)\.", r"encoder.stack.layers.\1."),
]


@dataclass(frozen=True)
class Case:
    """One of their models and ours, and how the names of this architecture differ from those that all share."""

    theirs: str
    ours: str
    names: Callable[[nn.Module], Names] = lambda model: []

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Their tensors under our names and in our shapes."""
        found = joined(model.state_dict())
        patterns = self.names(model) + AROUND + WITHIN
        return {renamed(name, patterns): shaped(name, tensor) for name, tensor in found.items()}


def renamed(name: str, patterns: Names) -> str:
    for pattern, ours in patterns:
        name = re.sub(pattern, ours, name)
    return name


def shaped(name: str, tensor: Tensor) -> Tensor:
    """Convolutions that do not overlap are products here; positions and class_tokens have no rows of a batch."""
    if name.endswith("proj.weight"):
        return tensor.flatten(1)
    return tensor.flatten(0, -2) if name in ("pos_embed", "cls_token") else tensor


def joined(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Keys and values of one memory in one product, class_tokens in one tensor."""
    found = dict(found)
    for name in [name for name in found if ".attn.k." in name]:
        found[name.replace(".k.", ".kv.")] = torch.cat((found.pop(name), found.pop(name.replace(".k.", ".v."))))
    if "dist_token" in found:
        found["cls_token"] = torch.cat((found["cls_token"], found.pop("dist_token")), dim=1)
    return found


def cait(model: Any) -> Names:
    depth = len(model.blocks)
    return [
        (r"^cls_token", f"encoder.stack.layers.{depth}.class_tokens"),
        (r"^blocks_token_only\.(\d+)\.", lambda found: f"encoder.stack.layers.{depth + 1 + int(found[1])}."),
    ]


def gmlp(model: Any) -> Names:
    """A layer is one block with one norm."""
    return [
        (r"mlp_channels\.fc1", "parts.0.inner"),
        (r"mlp_channels\.fc2", "parts.0.outer"),
        (r"mlp_channels\.gate\.norm", "parts.0.gating.normalise"),  # no name of the norms around a layer
        (r"mlp_channels\.gate\.proj", "parts.0.gating"),
        (r"^(blocks\.\d+)\.norm\.", r"\1.norms.0."),
        (r"gating\.normalise", "gating.norm"),
    ]


def volo(model: Any) -> Names:
    """Stages in a row: outlookers, the coarser grid with its positions, attention, class_tokens, class attention."""
    first, _, *stages = (len(stage) if isinstance(stage, nn.Sequential) else 1 for stage in model.network)
    starts = {str(2 + number): first + 1 + sum(stages[:number]) for number in range(len(stages))} | {"0": 0}
    class_tokens = first + 1 + sum(stages)
    coarser = f"encoder.stack.layers.{first}.stem."
    return [
        (r"^patch_embed\.proj\.", "encoder.stem.patches.patches.project."),
        *(
            (rf"^patch_embed\.conv\.{3 * number + place}\.", f"encoder.stem.patches.convolve.{number}.{name}.")
            for number in range(3)
            for place, name in enumerate(("conv", "norm"))
        ),
        (r"^network\.1\.proj\.", f"{coarser}patches.project."),
        (r"^pos_embed", f"{coarser}positions.table"),
        (r"^network\.(\d+)\.(\d+)\.", lambda found: f"encoder.stack.layers.{starts[found[1]] + int(found[2])}."),
        (r"^cls_token", f"encoder.stack.layers.{class_tokens}.class_tokens"),
        (r"^post_network\.(\d+)\.", lambda found: f"encoder.stack.layers.{class_tokens + 1 + int(found[1])}."),
    ]


CASES = (
    Case("cait_xxs24_224", "cait-xxs24", cait),
    Case("volo_d1_224", "volo-d1", volo),
    Case("mixer_s16_224", "mixer-s16"),
    Case("gmlp_s16_224", "gmlp-image-s16", gmlp),
    Case(
        "deit_tiny_distilled_patch16_224",
        "deit-ti-distilled",
        lambda model: [(r"^cls_token", "encoder.stem.class_tokens")],
    ),
)


def import_timm() -> Any:
    """timm, with the names of torchvision's operators declared."""
    (folder,) = importlib.util.find_spec("torchvision").submodule_search_locations  # type: ignore[union-attr,misc]
    text = Path(folder, "_meta_registrations.py").read_text()
    for name in sorted(set(re.findall(r'register_meta\("(\w+)"|torchvision::(\w+)"', text))):
        torch.library.define(f"torchvision::{''.join(name)}", "(Tensor x) -> Tensor")
    import timm

    return timm


def stir(model: nn.Module) -> None:
    """Other numbers in all tensors, so that gains, biases and statistics count as well."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor += 0.05 * (torch.rand_like(tensor) if name.endswith("var") else torch.randn_like(tensor))


@torch.no_grad()
def compare(case: Case, timm: Any, dtype: torch.dtype) -> str:
    torch.manual_seed(0)
    theirs = timm.create_model(case.theirs).eval()
    stir(theirs)
    theirs = theirs.to(dtype)
    ours = headwise.build(case.ours).eval().to(dtype)
    ours.load_state_dict(case.weights(theirs))
    assert count_parameters(ours) == count_parameters(theirs)
    images = torch.randn(2, 3, 224, 224, dtype=dtype)
    expected, found = theirs(images), ours(images)
    apart, size = (found - expected).abs().max(), expected.abs().max()
    kind = str(dtype).removeprefix("torch.")
    return (
        f"{case.ours:18} {count_parameters(ours):>11,} parameters, {kind}: {apart:.1e} apart, logits up to {size:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="such as cait-xxs24; all by default")
    chosen = parser.parse_args().models
    timm = import_timm()
    for case in CASES:
        if not chosen or case.ours in chosen:
            for dtype in (torch.float64, torch.float32):
                print(compare(case, timm, dtype), flush=True)


if __name__ == "__main__":
    main()
