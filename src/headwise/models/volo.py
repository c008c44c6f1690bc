"""VOLO (Yuan et al. 2021, "VOLO: Vision Outlooker for Visual Recognition"): convolutions, outlook attention on a fine
grid, self-attention on a grid of half its sides, class attention. Beside the class token's head, an auxiliary head
classifies the patches; the maximum of its logits over the patches is added with weight 0.5 (token labelling, Jiang et
al. 2021).

Reference: timm's volo_*, the code that the authors released; it has no stochastic depth (`drop_path`) in outlookers.
DISCREPANCY: the paper trains each patch on a label from another network. Here the maximum over the patches is trained
on the image's label, so that no other network is needed.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.class_attention import PatchHead, concatenate_stacks
from headwise.blocks.feedforward import Activation, MlpConfig
from headwise.blocks.images import ImageEncoder, ImageStem, PatchEmbedding, TakeClassToken
from headwise.blocks.mixers.outlook import OutlookConfig
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.grid import LearnedGridPositionsConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Stack
from headwise.blocks.stems import ConvPatchEmbedding, Downsample
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.models.cait import build_class_stage
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead, TokenLabelingClassifier
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import ImageInitFields, init_image_model
from headwise.models.layers import MakeAdd, OneStackFields, build_residual_add, build_stack


class VoloConfig(OneStackFields, ImageFields, ImageInitFields, ModelConfig):
    """`width`, `heads` and `depth` are those of self-attention, on patches of twice `patch` pixels."""

    kind: Literal["volo"] = "volo"
    patch: int = Field(8, ge=2)
    class_tokens: int = Field(1, ge=1)
    class_depth: int = Field(2, ge=1)  # layers in which class tokens attend to patches
    stem_hidden: int = Field(64, ge=1)  # channels of the convolutions before the patches
    outlook: AnyPart = OutlookConfig(heads=6)  # mixer of the first layers
    outlook_depth: int = Field(4, ge=1)
    outlook_width: int = Field(0, ge=0)  # 0: half the width
    width: int = Field(384, ge=1)
    heads: int = Field(12, ge=1)
    depth: int = Field(14, ge=1)
    activation: Activation = "gelu"
    mixer: AnyPart = AttentionConfig(qkv_bias=False)
    cross_attention: AnyPart = AttentionConfig(attend_to="memory", qkv_bias=False)
    feedforward: AnyPart = MlpConfig(expand=3)
    positions: AnyPosition = LearnedGridPositionsConfig()
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = LayerNormConfig()
    dropout: float = Field(0.0, ge=0, lt=1)

    @property
    def pooling(self) -> str:
        return "first"

    def encoder(self) -> ImageEncoder:
        outlookers = self.replace(
            width=self.outlook_width or max(1, self.width // 2),
            depth=self.outlook_depth,
            mixer=self.outlook,
            layers=(),
            positions="none",
            drop_path=0.0,
        )
        patches = ConvPatchEmbedding(
            self.channels, outlookers.width, self.patch, self.stem_hidden, multiple=2 * self.patch
        )
        stem = ImageStem(patches, outlookers.width)
        stages = [
            build_stack(outlookers, outlookers.stack),
            Stack([Downsample(self._coarser_grid(outlookers.width))]),
            build_stack(self, self.stack, make_add=self._make_add),
            build_class_stage(self, self.cross_attention, self.class_tokens, self.class_depth),
        ]
        return ImageEncoder(stem, concatenate_stacks(*stages))

    def _coarser_grid(self, inputs: int) -> ImageStem:
        """Patch embedding of 2 x 2 patches of `inputs` channels, with positions."""
        positions = self.positions.build_grid_positions(self.width, self.grid(2 * self.patch), class_tokens=0)
        return ImageStem(PatchEmbedding(inputs, self.width, 2), self.width, 0, positions, self.dropout)

    def _make_add(self, number: int, depth: int) -> MakeAdd:
        """Residual adds whose stochastic depth rate counts the outlookers, too."""
        return build_residual_add(self, number + self.outlook_depth, depth + self.outlook_depth)

    def init_weights(self, model: nn.Module) -> None:
        init_image_model(model, self.output_width, self.init)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        outputs, tokens = outputs or 1000, range(self.class_tokens)
        heads = [ImageHead(TakeClassToken(number), nn.Linear(self.output_width, outputs)) for number in tokens]
        model = TokenLabelingClassifier(self.encoder(), [*heads, PatchHead(nn.Linear(self.width, outputs))])
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
        Check("loops over places", "tests/blocks/mixers/test_outlook.py::test_it_is_its_algorithm_token_by_token"),
        Check("timm volo_* (by hand, outside the test suite)", "benchmarks/timm_parity.py", "timm"),
    ),
)
