"""VOLO (Yuan et al. 2021, "VOLO: Vision Outlooker for Visual Recognition"): convolutions, outlook attention on a fine
grid, attention on one of half its sides, class attention. Beside the class token's head another one labels the patches;
the surest of them count half (token labelling, Jiang et al. 2021).

Reference: timm's volo_*, the code that the authors released; there no outlooker is ever left out (`drop_path`).
DISCREPANCY: the paper teaches each patch the label that another network gives it. Here the surest patch for each label
is taught the image's, so that nothing but the images is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.attention.multihead import BareConfig
from headwise.blocks.class_attention import PatchVotes
from headwise.blocks.feedforward import MlpConfig
from headwise.blocks.images import ImageStem, PatchEmbedding
from headwise.blocks.mixers.outlook import OutlookConfig
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.stack import Stack
from headwise.blocks.stems import ConvolvedPatches, Regrid
from headwise.blocks.tables import AnyNorm, AnyPart
from headwise.models.cait import ClassStageConfig
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, TokenLabelingClassifier


class VoloConfig(ClassStageConfig):
    """`width`, `heads` and `depth` are those of attention, on patches of twice `patch` pixels."""

    kind: Literal["volo"] = "volo"
    patch: int = Field(8, ge=2)
    stem_hidden: int = Field(64, ge=1)  # channels of the convolutions before the patches
    outlook: AnyPart = OutlookConfig(heads=6)  # what the first layers mix their patches with
    outlook_depth: int = Field(4, ge=1)
    outlook_width: int = Field(0, ge=0)  # 0: half the width
    width: int = Field(384, ge=1)
    heads: int = Field(12, ge=1)
    depth: int = Field(14, ge=1)
    mixer: AnyPart = BareConfig()
    cross_attention: AnyPart = BareConfig(attend_to="memory")
    feedforward: AnyPart = MlpConfig(expand=3)
    norm: AnyNorm = LayerNormConfig()

    def stem(self) -> nn.Module:
        width = self.outlook_width or max(1, self.width // 2)
        patches = ConvolvedPatches(self.channels, width, self.patch, self.stem_hidden, multiple=2 * self.patch)
        return ImageStem(patches, width)

    def patch_stages(self) -> list[Stack]:
        near = self.changed(
            width=self.outlook_width or max(1, self.width // 2),
            depth=self.outlook_depth,
            mixer=self.outlook,
            layers=(),
            positions="none",
            drop_path=0.0,
        )
        positions = self.positions.on_grid(self.width, self.grid(2 * self.patch), class_tokens=0)
        coarser = ImageStem(PatchEmbedding(near.width, self.width, 2), self.width, 0, positions, self.dropout)
        return [near._stack(near.stacks()[0], causal=False), Stack([Regrid(coarser)]), *super().patch_stages()]

    def _add(self, number: int, depth: int) -> Callable[[], nn.Module]:
        return super()._add(number + self.outlook_depth, depth + self.outlook_depth)

    def build_heads(self, outputs: int) -> list[nn.Module]:
        return [*super().build_heads(outputs), PatchVotes(nn.Linear(self.width, outputs))]

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        model = TokenLabelingClassifier(self.encoder(), self.build_heads(outputs or 1000))
        self.init_weights(model)
        return model


def outlook(heads: int, depth: int) -> dict[str, Any]:
    return {"outlook": {"kind": "outlook", "heads": heads}, "outlook_depth": depth}


SIZES: dict[str, dict[str, Any]] = {
    "d1": {},
    "d2": {"width": 512, "heads": 16, "depth": 18, **outlook(8, 6)},
    "d3": {"width": 512, "heads": 16, "depth": 28, **outlook(8, 8)},
    "d4": {"width": 768, "heads": 16, "depth": 28, **outlook(12, 8)},
    "d5": {
        "width": 768,
        "heads": 16,
        "depth": 36,
        **outlook(12, 12),
        "stem_hidden": 128,
        "feedforward": {"kind": "mlp", "expand": 4},
    },
    "tiny": {
        "image": 16,
        "channels": 1,
        "patch": 2,
        "stem_hidden": 8,
        "width": 24,
        "heads": 4,
        "depth": 2,
        **outlook(2, 1),
        "class_depth": 1,
    },
}

ENTRY = Entry(
    name="volo",
    paper="Yuan et al., VOLO: Vision Outlooker for Visual Recognition",
    year=2021,
    family="vision",
    config=VoloConfig,
    sizes=SIZES,
    vocab=0,
    outputs=1000,
    published={"d1": "27M", "d2": "59M", "d3": "86M", "d4": "193M", "d5": "296M"},
    checks=(
        Check("loops over places", "tests/blocks/mixers/test_outlook.py::test_it_is_its_algorithm_place_by_place"),
        Check("timm volo_* (by hand, outside the test suite)", "benchmarks/timm_parity.py", "timm"),
    ),
)
