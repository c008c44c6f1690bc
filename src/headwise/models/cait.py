"""CaiT (Touvron et al. 2021, "Going deeper with Image Transformers"): patches through deep layers with small gains on
their branches and talking heads; then a class token that looks at them, in two layers which change nothing else.

Reference: timm's cait_*, the code that the authors released. Branches are left out equally often at any depth, and
never those of the class token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.talking_heads import TalkingConfig
from headwise.blocks.class_attention import ClassAttentionLayer, PrependClassTokens, in_a_row
from headwise.blocks.images import ImageEncoder, ImageStem, PatchEmbedding
from headwise.blocks.stack import Stack
from headwise.blocks.tables import AnyPart
from headwise.errors import UserError
from headwise.models.entry import Check, Entry
from headwise.models.vit import PatchModelConfig


class ClassStageConfig(PatchModelConfig):
    """Marks join the patches after all other layers; then they look at them with the part `cross_attention`."""

    class_tokens: int = Field(1, ge=1)
    class_depth: int = Field(2, ge=1)  # layers in which they do

    def encoder(self) -> ImageEncoder:
        if self.wiring.kind == "reversible":
            raise UserError("wiring: a class token cannot join layers that end in halves; use pre or post")
        return ImageEncoder(self.stem(), in_a_row(*self.patch_stages(), self._class_stage()))

    def stem(self) -> nn.Module:
        positions = self.positions.on_grid(self.width, self.grid(self.patch), class_tokens=0)
        return ImageStem(PatchEmbedding(self.channels, self.width, self.patch), self.width, 0, positions, self.dropout)

    def patch_stages(self) -> list[Stack]:
        """What the patches go through before there are class_tokens."""
        return [self._stack(self.stacks()[0], causal=False)]

    def _class_stage(self) -> Stack:
        site, add = self._site(causal=False, memory=True), self.changed(drop_path=0.0)._add(0, 1)

        def norm() -> nn.Module:
            return self.norm.build(self.width)

        parts = (self.cross_attention, self.feedforward)
        layers = [ClassAttentionLayer([part.build(site) for part in parts], norm, add) for _ in range(self.class_depth)]
        return Stack([PrependClassTokens(self.width, self.class_tokens), *layers], norm())


class CaitConfig(ClassStageConfig):
    kind: Literal["cait"] = "cait"
    width: int = Field(384, ge=1)
    heads: int = Field(8, ge=1)
    depth: int = Field(24, ge=1)
    mixer: AnyPart = AttentionConfig(score_mods=(TalkingConfig(),))
    layer_scale: float = Field(1e-5, ge=0)

    def _add(self, number: int, depth: int) -> Callable[[], nn.Module]:
        return super()._add(1, 2)  # as if each layer were the last


SIZES: dict[str, dict[str, Any]] = {
    "s24": {},
    "xxs24": {"width": 192, "heads": 4},
    "xxs36": {"width": 192, "heads": 4, "depth": 36},
    "xs24": {"width": 288, "heads": 6, "image": 384},
    "s36": {"depth": 36, "image": 384, "layer_scale": 1e-6},
    "m36": {"width": 768, "heads": 16, "depth": 36, "image": 384, "layer_scale": 1e-6},
    "m48": {"width": 768, "heads": 16, "depth": 48, "image": 448, "layer_scale": 1e-6},
    "tiny": {
        "image": 16,
        "channels": 1,
        "patch": 4,
        "width": 24,
        "heads": 4,
        "depth": 2,
        "class_depth": 1,
        "layer_scale": 0.1,
    },
}

ENTRY = Entry(
    name="cait",
    paper="Touvron et al., Going deeper with Image Transformers",
    year=2021,
    family="vision",
    config=CaitConfig,
    sizes=SIZES,
    vocab=0,
    outputs=1000,
    published={
        "xxs24": "12.0M",
        "xxs36": "17.3M",
        "xs24": "26.6M",
        "s24": "46.9M",
        "s36": "68.2M",
        "m36": "270.9M",
        "m48": "356.0M",
    },
    checks=(
        Check(
            "the equations of class attention and talking heads",
            "tests/blocks/test_class_attention.py::test_heads_exchange_scores_and_weights",
        ),
        Check("timm cait_* (by hand, outside the test suite)", "benchmarks/timm_parity.py", "timm"),
    ),
)
