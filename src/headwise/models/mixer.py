"""MLP-Mixer (Tolstikhin et al. 2021): pre-norm layers of two MLPs, one along the patches (token mixing) and one along
the channels; no attention, no positions, no class token; a final norm and mean pooling.

`model.mixer = "tokens"` gives any text encoder the same token mixing. Reference: timm's mixer_*.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.feedforward import Activation
from headwise.blocks.images import ImageEncoder, ImageStem, PatchEmbedding, TakeClassToken
from headwise.blocks.mixers.token_mixing import TokensConfig
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.pool import Pool
from headwise.blocks.positions.absolute import NoPositionsConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stems import FixedGridPatchEmbedding
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import ImageInitFields, init_image_model
from headwise.models.layers import OneStackFields, Parts, build_stack


class MixerConfig(OneStackFields, ImageFields, ImageInitFields, ModelConfig):
    kind: Literal["mixer"] = "mixer"
    patch: int = Field(16, ge=1)
    class_tokens: int = Field(0, ge=0)  # each has a head; 0: one head on the pooled patches
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)  # of other mixers
    depth: int = Field(12, ge=1)
    activation: Activation = "gelu"
    mixer: AnyPart = TokensConfig()
    positions: AnyPosition = NoPositionsConfig()
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-6)
    dropout: float = Field(0.0, ge=0, lt=1)
    pool: PoolKind = "mean"  # of the patches, where there is no class token

    @property
    def pooling(self) -> str:
        return self.pool

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        rows, columns = self.grid(self.patch)
        return ((self.mixer.fit_length(self.class_tokens + rows * columns), self.feedforward),)

    def encoder(self) -> ImageEncoder:
        grid = self.grid(self.patch)
        patches = PatchEmbedding(self.channels, self.width, self.patch)
        if self.mixer.fixed_length:
            patches = FixedGridPatchEmbedding(self.channels, self.width, self.patch, grid)
        positions = self.positions.build_grid_positions(self.width, grid, self.class_tokens)
        stem = ImageStem(patches, self.width, self.class_tokens, positions, self.dropout)
        return ImageEncoder(stem, build_stack(self, self.stack))

    def init_weights(self, model: nn.Module) -> None:
        """Matrices N(0, 1 / fan-in), biases zero, as in the released code."""
        init_image_model(model, self.output_width, self.init)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                self.init.fill(module.weight, module.in_features**-0.5)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        pools: list[nn.Module] = [TakeClassToken(number) for number in range(self.class_tokens)] or [Pool(self.pool)]
        heads = [ImageHead(pool, nn.Linear(self.output_width, outputs or 1000)) for pool in pools]
        model = ImageClassifier(self.encoder(), heads)
        self.init_weights(model)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "b16": {},
    "s32": {"width": 512, "depth": 8, "patch": 32},
    "s16": {"width": 512, "depth": 8},
    "b32": {"patch": 32},
    "l32": {"width": 1024, "depth": 24, "patch": 32},
    "l16": {"width": 1024, "depth": 24},
    "h14": {"width": 1280, "depth": 32, "patch": 14},
    "tiny": {"image": 16, "channels": 1, "patch": 4, "width": 32, "heads": 4, "depth": 2},
}

ENTRY = Entry(
    name="mixer",
    paper="Tolstikhin et al., MLP-Mixer: An all-MLP Architecture for Vision",
    year=2021,
    family="vision",
    config=MixerConfig,
    sizes=SIZES,
    vocab=0,
    outputs=1000,
    published={
        "s32": "19M",
        "s16": "18M",
        "b32": "60M",
        "b16": "59M",
        "l32": "206M",
        "l16": "207M",
        "h14": "431M",
    },
    checks=(
        Check(
            "the equation of token mixing",
            "tests/blocks/mixers/test_token_mixing.py::test_it_is_an_mlp_along_the_tokens_shared_by_all_channels",
        ),
        Check("timm mixer_* (by hand, outside the test suite)", "benchmarks/timm_parity.py", "timm"),
    ),
)
