"""Image captioning: a Vision Transformer as encoder, a Transformer decoder with cross-attention to its outputs (Xu et
al. 2015 with the encoder and decoder of Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.feedforward import Activation
from headwise.blocks.heads import VocabularyHead
from headwise.blocks.images import ImageEncoder, ImageStem, PatchEmbedding
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.absolute import SinusoidalPositionsConfig
from headwise.blocks.positions.grid import LearnedGridPositionsConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Decoder
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.errors import UserError
from headwise.models.config import ModelConfig
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.entry import Check, Entry
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import ImageInitFields, init_image_model
from headwise.models.layers import OneStackFields, Parts, StackConfig, build_stack


class CaptionerConfig(OneStackFields, ImageFields, ImageInitFields, ModelConfig):
    """`depth` is that of the encoder, and of the decoder unless `decoder.depth` is set; both have the same width."""

    tasks = ("caption",)
    kind: Literal["captioner"] = "captioner"
    patch: int = Field(16, ge=1)
    class_tokens: int = Field(0, ge=0)
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    depth: int = Field(12, ge=1)
    activation: Activation = "gelu"
    cross_attention: AnyPart = AttentionConfig(attend_to="memory")
    # with the 0.02 of classifiers it learns which objects there are, but not where they are
    positions: AnyPosition = LearnedGridPositionsConfig(std=3.0)
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-6)
    dropout: float = Field(0.0, ge=0, lt=1)
    decoder: StackConfig = StackConfig(depth=6)
    word_positions: AnyPosition = SinusoidalPositionsConfig()

    def stacks(self) -> tuple[StackConfig, StackConfig]:
        return self.stack, self.decoder

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        return ((self.mixer, *((self.cross_attention,) if memory else ()), self.feedforward),)

    def encoder(self) -> ImageEncoder:
        patches = PatchEmbedding(self.channels, self.width, self.patch)
        positions = self.positions.build_grid_positions(self.width, self.grid(self.patch), self.class_tokens)
        stem = ImageStem(patches, self.width, self.class_tokens, positions, self.dropout)
        return ImageEncoder(stem, build_stack(self, self.stack))

    def init_weights(self, model: nn.Module) -> None:
        init_image_model(model, self.output_width, self.init)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> EncoderDecoder:
        self.resolve_task(task)
        if self.wiring.kind == "reversible":
            raise UserError(
                "wiring: a tied output layer cannot read the two halves of reversible layers; use pre or post"
            )
        table = nn.Embedding(outputs, self.width)
        embedding = self.word_positions.build_embedding(table, self.width, scale=self.width**0.5, dropout=self.dropout)
        stack = build_stack(self, self.decoder, causal=True, memory=True)
        decoder = Decoder(embedding, stack, VocabularyHead(self.width, outputs, table))
        model = EncoderDecoder(self.encoder(), decoder)
        self.init_weights(model)
        nn.init.normal_(table.weight, std=self.width**-0.5)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"image": 64, "patch": 8, "width": 128, "heads": 4, "depth": 4, "decoder": {"depth": 2}},
    "tiny": {
        "image": 16,
        "channels": 1,
        "patch": 4,
        "width": 32,
        "heads": 4,
        "depth": 2,
        "decoder": {"depth": 2},
    },
}

ENTRY = Entry(
    name="captioner",
    paper="Xu et al., Show, Attend and Tell, with the encoder and decoder of a Transformer",
    year=2015,
    family="vision",
    config=CaptionerConfig,
    sizes=SIZES,
    vocab=0,
    outputs=10_000,
    checks=(Check("torch.nn.Transformer", "tests/parity/test_torch.py::test_captioner", "torch"),),
)
