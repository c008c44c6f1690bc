"""gMLP (Liu et al. 2021, "Pay Attention to MLPs"): layers of one block each, a feed-forward network whose channels are
gated along the tokens; no attention, no positions.

`gmlp` is the masked language model with Toeplitz matrices, at 512 tokens; its `amlp-*` sizes add a tiny attention.
`gmlp-image` classifies images: patches, pre-norm blocks, a final norm and mean pooling. Reference: timm's gmlp_*.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.feedforward import Activation
from headwise.blocks.images import ImageEncoder, ImageStem, PatchEmbedding, TakeClassToken
from headwise.blocks.mixers.spatial_gating import GatedMlpConfig
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.pool import Pool
from headwise.blocks.positions.absolute import NoPositionsConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.stems import FixedGridPatchEmbedding
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.config.base import Config
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import ImageInitFields, TextInitFields, init_image_model, init_normal
from headwise.models.layers import LayerFields, OneStackFields, Parts, build_stack
from headwise.text import BOS


class GatedMlpFields(Config):
    """Settings of gMLP layers: one block, which is mixer and feed-forward network; other mixers have a feed-forward
    network beside them."""

    heads: int = Field(8, ge=1)  # of other mixers
    activation: Activation = "gelu"  # of other mixers' feed-forward network, and of the head
    positions: AnyPosition = NoPositionsConfig()
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-6)


def list_layer_parts(config: LayerFields, mixer: Any) -> tuple[Parts, ...]:
    """The parts of a layer: a gMLP block stands alone."""
    return ((mixer,),) if mixer.with_feedforward else ((mixer, config.feedforward),)


class GatedMlpModelConfig(GatedMlpFields, OneStackFields, TextFields, TextInitFields, ModelConfig):
    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["gmlp"] = "gmlp"
    width: int = Field(512, ge=1)
    depth: int = Field(48, ge=1)
    hidden: int = Field(3072, ge=0)
    mixer: AnyPart = GatedMlpConfig(toeplitz=True)
    scale_embeddings: bool = False
    pool: PoolKind = "pooler"

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        return list_layer_parts(self, self.mixer)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack), prefix_id=BOS),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_normal(model, self.init)
        return model


class ImageGatedMlpConfig(GatedMlpFields, OneStackFields, ImageFields, ImageInitFields, ModelConfig):
    kind: Literal["gmlp-image"] = "gmlp-image"
    patch: int = Field(16, ge=1)
    class_tokens: int = Field(0, ge=0)  # each has a head; 0: one head on the pooled patches
    width: int = Field(256, ge=1)
    depth: int = Field(30, ge=1)
    hidden: int = Field(1536, ge=0)
    mixer: AnyPart = GatedMlpConfig()
    dropout: float = Field(0.0, ge=0, lt=1)
    pool: PoolKind = "mean"  # of the patches, where there is no class token

    @property
    def pooling(self) -> str:
        return self.pool

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        rows, columns = self.grid(self.patch)
        return list_layer_parts(self, self.mixer.fit_length(self.class_tokens + rows * columns))

    def encoder(self) -> ImageEncoder:
        grid = self.grid(self.patch)
        patches = PatchEmbedding(self.channels, self.width, self.patch)
        if self.mixer.fixed_length:
            patches = FixedGridPatchEmbedding(self.channels, self.width, self.patch, grid)
        positions = self.positions.build_grid_positions(self.width, grid, self.class_tokens)
        stem = ImageStem(patches, self.width, self.class_tokens, positions, self.dropout)
        return ImageEncoder(stem, build_stack(self, self.stack))

    def init_weights(self, model: nn.Module) -> None:
        init_image_model(model, self.output_width, self.init)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        pools: list[nn.Module] = [TakeClassToken(number) for number in range(self.class_tokens)] or [Pool(self.pool)]
        heads = [ImageHead(pool, nn.Linear(self.output_width, outputs or 1000)) for pool in pools]
        model = ImageClassifier(self.encoder(), heads)
        self.init_weights(model)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": {"width": 768, "depth": 96},
    "xlarge": {"width": 1024, "depth": 144, "hidden": 4096},
    "amlp-base": {"depth": 36, "mixer": {"kind": "gmlp", "toeplitz": True, "attention_width": 64}},
    "amlp-large": {"width": 768, "depth": 72, "mixer": {"kind": "gmlp", "toeplitz": True, "attention_width": 128}},
    "tiny": {
        "width": 32,
        "heads": 4,
        "depth": 2,
        "hidden": 64,
        "mixer": {"kind": "gmlp", "toeplitz": True, "max_length": 128},
    },
}
IMAGE_SIZES: dict[str, dict[str, Any]] = {
    "s16": {},
    "ti16": {"width": 128, "hidden": 768},
    "b16": {"width": 512, "hidden": 3072},
    "tiny": {"image": 16, "channels": 1, "patch": 4, "width": 32, "heads": 4, "depth": 2, "hidden": 64},
}
EQUATIONS = Check(
    "the equations of the block, token by token",
    "tests/blocks/mixers/test_spatial_gating.py::test_the_block_is_its_equations_token_by_token",
)

GMLP_ENTRY = Entry(
    name="gmlp",
    paper="Liu et al., Pay Attention to MLPs",
    year=2021,
    family="encoder",
    config=GatedMlpModelConfig,
    sizes=SIZES,
    vocab=32_000,
    published={"base": "130M", "large": "365M", "xlarge": "941M", "amlp-base": "109M", "amlp-large": "316M"},
    checks=(EQUATIONS,),
)

GMLP_IMAGE_ENTRY = Entry(
    name="gmlp-image",
    paper="Liu et al., Pay Attention to MLPs",
    year=2021,
    family="vision",
    config=ImageGatedMlpConfig,
    sizes=IMAGE_SIZES,
    vocab=0,
    outputs=1000,
    published={"ti16": "5.9M", "s16": "19.5M", "b16": "73M"},
    checks=(EQUATIONS, Check("timm gmlp_* (by hand, outside the test suite)", "benchmarks/timm_parity.py", "timm")),
)
