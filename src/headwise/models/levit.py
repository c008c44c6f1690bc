"""LeViT (Graham et al. 2021, "LeViT: a Vision Transformer in ConvNet's Clothing for Faster Inference"): a convolutional
stem, then stages of attention that subsample the grid, with batch norm everywhere, which is fused into the linear
layers for inference (`blocks.batchnorm.fuse_batch_norms`).

Two heads, one trained on the labels and one on a teacher; the prediction is the mean of their logits. Every layer is
one residual branch, as in the released code. Reference: transformers' LevitForImageClassificationWithTeacher.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from torch import nn

from headwise.blocks.batchnorm import ConvNorm, NormLinear
from headwise.blocks.convolution import ConvStem
from headwise.blocks.feedforward import identity
from headwise.blocks.images import ImageEncoder, ImageStem
from headwise.blocks.mixers.levit_attention import (
    LEVIT_ACTIVATIONS,
    BatchNormCrossProjection,
    LeViTActivation,
    LeViTAttention,
    LeViTAttentionConfig,
    LeViTMlpConfig,
    OffsetBias,
    SubsampleAttention,
)
from headwise.blocks.part import BuildContext
from headwise.blocks.pool import Pool
from headwise.blocks.residual import PreNorm, ResidualAdd
from headwise.blocks.stack import Stack
from headwise.blocks.tables import AnyPart
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import ImageInitFields, init_image_model


class LevitConfig(ImageFields, ImageInitFields, ModelConfig):
    """Tuples have one number for each stage."""

    kind: Literal["levit"] = "levit"
    widths: tuple[int, ...] = Field((128, 256, 384), min_length=1)
    depths: tuple[int, ...] = (2, 3, 4)
    heads: tuple[int, ...] = (4, 6, 8)
    head_width: int = Field(16, ge=1)  # of queries and keys
    expand: int = Field(2, ge=1)  # hidden width of the feed-forward networks, relative to the stage's width
    stem_layers: int = Field(4, ge=1)  # convolutions of the stem, each with stride 2
    activation: LeViTActivation = "hard_swish"  # of the stem; the parts have their own
    mixer: AnyPart = LeViTAttentionConfig()
    feedforward: AnyPart = LeViTMlpConfig()
    position_bias: bool = True  # learned attention bias for each offset on the grid
    drop_path: float = Field(0.0, ge=0, lt=1)  # stochastic depth: rate of every branch
    class_heads: int = Field(2, ge=1)  # classification heads

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if not len(self.widths) == len(self.depths) == len(self.heads):
            raise ValueError("widths, depths and heads have different lengths; give each one number per stage")
        if min(self.widths[:-1], default=self.head_width) < self.head_width:
            raise ValueError(
                f"widths: must be at least head_width, {self.head_width}, except the last; make them wider"
            )
        return self

    @property
    def output_width(self) -> int:
        return self.widths[-1]

    def grids(self) -> list[tuple[int, int]]:
        """Rows and columns of the grid in each stage."""
        rows, columns = self.image
        steps = [2 ** (self.stem_layers + stage) for stage in range(len(self.widths))]
        return [(ceil(rows / step), ceil(columns / step)) for step in steps]

    def init_weights(self, model: nn.Module) -> None:
        init_image_model(model, self.output_width, self.init)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        heads = [
            ImageHead(Pool("mean"), NormLinear(self.output_width, outputs or 1000)) for _ in range(self.class_heads)
        ]
        model = ImageClassifier(self.encoder(), heads)
        self.init_weights(model)
        return model

    def encoder(self) -> ImageEncoder:
        return ImageEncoder(
            self._build_stem(), Stack([self._build_stage(number) for number in range(len(self.widths))])
        )

    def _build_stem(self) -> nn.Module:
        widths = [max(self.widths[0] >> halvings, 1) for halvings in reversed(range(self.stem_layers))]
        layers = [
            ConvNorm(inputs, outputs, 3, 2, LEVIT_ACTIVATIONS[self.activation]() if outputs < widths[-1] else identity)
            for inputs, outputs in pairwise((self.channels, *widths))
        ]
        return ImageStem(ConvStem(self.channels, *layers, grid=self.grids()[0]), self.widths[0])

    def _build_stage(self, number: int) -> Stack:
        build_ctx = self._build_context(number)
        layers = [self._build_branch(part, build_ctx) for part in (self.mixer, self.feedforward) * self.depths[number]]
        if number + 1 < len(self.widths):
            next_ctx, heads = self._build_context(number + 1), build_ctx.width // self.head_width
            qkv = BatchNormCrossProjection(build_ctx.width, heads, self.head_width, 4 * self.head_width)
            activation: LeViTActivation = getattr(self.mixer, "activation", "hard_swish")
            attention = LeViTAttention(
                qkv, next_ctx.width, build_ctx.build_score_mods(heads, self.head_width), 1.0, activation
            )
            layers += [SubsampleAttention(attention), self._build_branch(self.feedforward, next_ctx)]
        return Stack(layers)

    def _build_context(self, number: int) -> BuildContext:
        width, grid = self.widths[number], self.grids()[number]

        def build_score_mods(heads: int, head_width: int) -> tuple[Any, ...]:
            return (OffsetBias(heads, grid),) if self.position_bias else ()

        return BuildContext(
            width, self.heads[number], self.expand * width, self.head_width, build_score_mods=build_score_mods
        )

    def _build_branch(self, part: Any, build_ctx: BuildContext) -> nn.Module:
        """Residual branch, x + part(x); the part contains its norms."""
        return PreNorm([part.build(build_ctx)], nn.Identity, lambda: ResidualAdd(drop_path=self.drop_path))


SIZES: dict[str, dict[str, Any]] = {
    "128s": {},
    "128": {"depths": (4, 4, 4), "heads": (4, 8, 12)},
    "192": {"widths": (192, 288, 384), "depths": (4, 4, 4), "heads": (3, 5, 6), "head_width": 32},
    "256": {"widths": (256, 384, 512), "depths": (4, 4, 4), "heads": (4, 6, 8), "head_width": 32},
    "384": {
        "widths": (384, 512, 768), "depths": (4, 4, 4), "heads": (6, 9, 12), "head_width": 32, "drop_path": 0.1,
    },
    "tiny": {
        "image": 16, "channels": 1, "widths": (16, 24), "depths": (1, 1), "heads": (2, 3), "head_width": 8,
        "stem_layers": 2,
    },
}  # fmt: skip

ENTRY = Entry(
    name="levit",
    paper="Graham et al., LeViT: a Vision Transformer in ConvNet's Clothing for Faster Inference",
    year=2021,
    family="vision",
    config=LevitConfig,
    sizes=SIZES,
    vocab=0,
    outputs=1000,
    published={"128s": "7.8M", "128": "9.2M", "192": "11M", "256": "19M", "384": "39M"},
    checks=(
        Check(
            "transformers.LevitForImageClassificationWithTeacher",
            "tests/parity/test_hf_levit.py::test_import_and_export_keep_outputs",
            "transformers",
        ),
    ),
)
