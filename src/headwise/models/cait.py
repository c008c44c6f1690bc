"""CaiT (Touvron et al. 2021, "Going deeper with Image Transformers"): self-attention over patches with LayerScale and
talking heads; then two class-attention layers, in which a class token attends to the patches and only it is updated.

Reference: timm's cait_*, the code that the authors released. Stochastic depth has the same rate at every depth, and
class-attention layers have none.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.talking_heads import TalkingConfig
from headwise.blocks.class_attention import ClassAttentionLayer, PrependClassTokens, concatenate_stacks
from headwise.blocks.feedforward import Activation
from headwise.blocks.images import ImageEncoder, ImageStem, PatchEmbedding, TakeClassToken
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.grid import LearnedGridPositionsConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Stack
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.errors import UserError
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import ImageInitFields, init_image_model
from headwise.models.layers import LayerFields, OneStackFields, build_context, build_residual_add, build_stack


def build_class_stage(config: LayerFields, cross_attention: Any, class_tokens: int, depth: int) -> Stack:
    """Class attention: prepend class tokens to the patches; in `depth` layers they attend to them, and only they
    change."""
    if config.wiring.kind == "reversible":
        raise UserError("wiring: class tokens cannot join the two halves of reversible layers; use pre or post")
    build_ctx, make_add = build_context(config, memory=True), build_residual_add(config)

    def norm() -> nn.Module:
        return config.norm.build(config.width)

    parts = (cross_attention, config.feedforward)
    layers = [ClassAttentionLayer([part.build(build_ctx) for part in parts], norm, make_add) for _ in range(depth)]
    return Stack([PrependClassTokens(config.width, class_tokens), *layers], norm())


class CaitConfig(OneStackFields, ImageFields, ImageInitFields, ModelConfig):
    """Class tokens are added after `depth` layers and attend to the patches with the part `cross_attention`."""

    kind: Literal["cait"] = "cait"
    patch: int = Field(16, ge=1)
    class_tokens: int = Field(1, ge=1)
    class_depth: int = Field(2, ge=1)  # layers in which class tokens attend to patches
    width: int = Field(384, ge=1)
    heads: int = Field(8, ge=1)
    depth: int = Field(24, ge=1)
    activation: Activation = "gelu"
    mixer: AnyPart = AttentionConfig(score_mods=(TalkingConfig(),))
    cross_attention: AnyPart = AttentionConfig(attend_to="memory")
    positions: AnyPosition = LearnedGridPositionsConfig()
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-6)
    dropout: float = Field(0.0, ge=0, lt=1)
    layer_scale: float = Field(1e-5, ge=0)

    @property
    def pooling(self) -> str:
        return "first"

    def encoder(self) -> ImageEncoder:
        patches = PatchEmbedding(self.channels, self.width, self.patch)
        positions = self.positions.build_grid_positions(self.width, self.grid(self.patch), class_tokens=0)
        stem = ImageStem(patches, self.width, 0, positions, self.dropout)
        # the same drop_path rate at every depth: each layer counts as the last of two
        stack = build_stack(self, self.stack, make_add=lambda number, depth: build_residual_add(self, 1, 2))
        class_stage = build_class_stage(self, self.cross_attention, self.class_tokens, self.class_depth)
        return ImageEncoder(stem, concatenate_stacks(stack, class_stage))

    def init_weights(self, model: nn.Module) -> None:
        init_image_model(model, self.output_width, self.init)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        tokens = range(self.class_tokens)
        heads = [ImageHead(TakeClassToken(number), nn.Linear(self.output_width, outputs or 1000)) for number in tokens]
        model = ImageClassifier(self.encoder(), heads)
        self.init_weights(model)
        return model


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
