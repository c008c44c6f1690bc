"""Vision Transformer (Dosovitskiy et al. 2021): patch embedding, a class token, pre-norm layers, a final norm.

Every mixer, wiring, norm and feed-forward of text models can be used, for example `model.mixer = "performer"`. DeiT and
MLP-Mixer have other defaults (models/deit.py, models/mixer.py).
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator
from torch import nn

from headwise.blocks.feedforward import Activation
from headwise.blocks.images import (
    ClassTokenAndMean,
    ImageEncoder,
    ImageStem,
    MeanPatches,
    PatchEmbedding,
    TakeClassToken,
)
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.pool import Pool
from headwise.blocks.positions.grid import LearnedGridPositionsConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.tables import AnyNorm, AnyPosition, AnyWiring
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import ImageInitFields, init_image_model
from headwise.models.layers import OneStackFields, build_stack


class ViTConfig(OneStackFields, ImageFields, ImageInitFields, ModelConfig):
    kind: Literal["vit"] = "vit"
    patch: int = Field(16, ge=1)
    class_tokens: int = Field(1, ge=0)  # each has a head; 0: one head on the pooled patches
    registers: int = Field(0, ge=0)  # tokens without a head (Darcet et al. 2024)
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    depth: int = Field(12, ge=1)
    activation: Activation = "gelu"
    positions: AnyPosition = LearnedGridPositionsConfig()
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-6)
    dropout: float = Field(0.0, ge=0, lt=1)
    pool: PoolKind = "mean"  # of the patches, where there is no class token
    # what the head reads: class tokens, the mean of the patches as in BEiT, or both as in DINOv2
    head_input: Literal["token", "mean", "token+mean"] = "token"
    norm_pooled: bool = False  # the last norm is after the pooling instead of before it (fc_norm in timm)

    @model_validator(mode="after")
    def _check_head_input(self) -> Self:
        if self.head_input == "token+mean" and self.class_tokens != 1:
            raise ValueError("head_input: 'token+mean' needs one class token; use class_tokens = 1")
        if self.norm_pooled and (self.head_input == "token+mean" or not self.wiring.build().has_final_norm):
            raise ValueError("norm_pooled: needs a wiring with a last norm, and a head that reads token or mean")
        return self

    @property
    def pooling(self) -> str:
        return self.pool

    def build_pool(self) -> nn.Module:
        pool = MeanPatches() if self.head_input == "mean" else super().build_pool()
        return nn.Sequential(pool, self.norm.build(self.output_width)) if self.norm_pooled else pool

    def encoder(self) -> ImageEncoder:
        patches = PatchEmbedding(self.channels, self.width, self.patch)
        positions = self.positions.build_grid_positions(self.width, self.grid(self.patch), self.class_tokens)
        stem = ImageStem(patches, self.width, self.class_tokens, positions, self.dropout, registers=self.registers)
        stack = build_stack(self, self.stack)
        if self.norm_pooled:
            stack.final = nn.Identity()
        return ImageEncoder(stem, stack)

    def init_weights(self, model: nn.Module) -> None:
        init_image_model(model, self.output_width, self.init)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        pools: list[nn.Module] = [TakeClassToken(number) for number in range(self.class_tokens)] or [Pool(self.pool)]
        if self.head_input != "token":
            pools = [ClassTokenAndMean() if self.head_input == "token+mean" else MeanPatches()]
        if self.norm_pooled:
            pools = [nn.Sequential(pool, self.norm.build(self.output_width)) for pool in pools]
        features = self.output_width * len(self.head_input.split("+"))
        heads = [ImageHead(pool, nn.Linear(features, outputs or 1000)) for pool in pools]
        model = ImageClassifier(self.encoder(), heads)
        self.init_weights(model)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "b16": {},
    "ti16": {"width": 192, "heads": 3},
    "s16": {"width": 384, "heads": 6},
    "b32": {"patch": 32},
    "b16-384": {"image": 384},
    "l16": {"width": 1024, "heads": 16, "depth": 24},
    "l32": {"width": 1024, "heads": 16, "depth": 24, "patch": 32},
    "h14": {"width": 1280, "heads": 16, "depth": 32, "patch": 14},
    "tiny": {"image": 16, "channels": 1, "patch": 4, "width": 32, "heads": 4, "depth": 2},
}

ENTRY = Entry(
    name="vit",
    paper="Dosovitskiy et al., An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
    year=2021,
    family="vision",
    config=ViTConfig,
    sizes=SIZES,
    vocab=0,
    outputs=1000,
    published={"b16": "86M", "l16": "307M", "h14": "632M"},
    checks=(
        Check(
            "transformers.ViTForImageClassification",
            "tests/parity/test_hf_vit.py::test_outputs_are_equal_both_ways",
            "transformers",
        ),
    ),
)
