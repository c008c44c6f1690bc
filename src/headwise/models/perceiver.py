"""Perceiver (Jaegle et al. 2021) and Perceiver IO (Jaegle et al. 2022) for texts, byte by byte, and for images, pixel
by pixel.

Latents attend to the inputs (cross-attention) and then to each other, `repeats` times. All repeats but the first share
the weights of the cross-attention, and all share those of the layers between, which gives the 44.9M parameters of the
paper's ImageNet model. The second paper, and transformers, attend to images once and repeat the layers
(`cross_attends = 1`). A classifier pools the latents, as in the first paper; where every position has an output, a
query for each position attends to the latents, as in the second; for an image, a single learned query can
(`learned_query`).

Reference: transformers' PerceiverForMaskedLM with the settings of deepmind/language-perceiver, and
PerceiverForImageClassificationFourier and ...Learned with those of deepmind/vision-perceiver-fourier and ...-learned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.feedforward import Activation
from headwise.blocks.images import ImageEncoder
from headwise.blocks.latent_images import LatentImageEncoder, OutputQuery, PixelStem
from headwise.blocks.latents import LatentEncoder, LatentOutputs, OutputQueries, PerceiverAttentionConfig, ReplaceStream
from headwise.blocks.part import BuildContext
from headwise.blocks.pool import Pool
from headwise.blocks.positions.absolute import LearnedPositionsConfig
from headwise.blocks.positions.fourier import FourierPositionsConfig
from headwise.blocks.residual import LayerScaleAdd, PreNormConfig, ResidualAdd
from headwise.blocks.stack import Embedding, Stack
from headwise.blocks.tables import AnyPart, AnyPosition, AnyWiring
from headwise.blocks.token_embeddings import TokenTable
from headwise.errors import UserError
from headwise.models.assemble import ModelParts, TextFields, assemble, build_embedding
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import init_normal
from headwise.models.layers import LayerFields, Layers, Parts, StackConfig, build_context
from headwise.models.masked_lm import MaskedLanguageModel


class PerceiverFields(LayerFields):
    """Settings of the latents, and the methods that build their layers, for texts and images. `width` is that of the
    latents; with `hidden` 0 the feed-forward network is as wide as its inputs."""

    latents: int = Field(256, ge=1)
    depth: int = Field(26, ge=1)  # layers of latents after each cross-attention to the inputs
    layers: Layers = ()  # a pattern of parts that repeats; empty: mixer and feedforward
    repeats: int = Field(1, ge=1)  # how often these layers are applied
    cross_attends: int = Field(0, ge=0)  # how many of the repeats start with cross-attention; 0: all
    activation: Activation = "gelu"
    mixer: AnyPart = PerceiverAttentionConfig()
    cross_attention: AnyPart = PerceiverAttentionConfig(attend_to="memory")
    wiring: AnyWiring = PreNormConfig()

    def stacks(self) -> tuple[StackConfig, StackConfig]:
        stack = StackConfig(depth=self.depth, layers=self.layers)
        return stack, stack

    def init_weights(self, model: nn.Module) -> None:
        """Embeddings N(0, 0.02^2), matrices N(0, 1 / fan-in), as in the released code. With smaller matrices the output
        queries, which have no residual path, stay nearly identical for long."""
        init_normal(model)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)

    def check_positions(self, usable: str) -> None:
        """Refuse positions that are score mods: latents have none."""
        if self.positions.make_score_mod_builder(build_context(self))(1, 2):
            raise UserError(
                f"positions: '{self.positions.kind}' is relative, but latents have no positions; use {usable}"
            )

    def build_latent_stack(self, cross_attention: Any, memory_width: int) -> Stack:
        """Cross-attention to inputs of `memory_width` and layers of latents, `repeats` times."""
        if self.wiring.kind == "reversible":
            raise UserError("wiring: latents cannot be the two halves of reversible layers; use pre or post")
        if self.wiring.kind == "none":
            raise UserError("wiring: latents need a residual path around cross-attention; use pre or post")
        build_ctx = self.build_context(self.width, memory_width)
        cross_attends = min(self.cross_attends or self.repeats, self.repeats)
        cross_layers = min(cross_attends, 2)  # the first one, and one that all later repeats share
        pattern = self.layers or self.pattern()
        parts = [pattern[number % len(pattern)] for number in range(self.depth)]
        layers = [
            self.build_layer(build_ctx, layer_parts)
            for layer_parts in [(cross_attention, self.feedforward)] * cross_layers + parts
        ]
        layer_numbers: list[int] = []
        for repeat in range(self.repeats):
            layer_numbers += [min(repeat, 1)] * (repeat < cross_attends) + list(range(cross_layers, len(layers)))
        return Stack(layers, layer_numbers=layer_numbers)

    def build_layer(self, build_ctx: BuildContext, parts: Parts) -> Any:
        """Build one layer. Its drop_path rate does not depend on depth, as layers are used at several."""

        def add() -> nn.Module:
            if self.layer_scale:
                return LayerScaleAdd(build_ctx.width, self.layer_scale, self.dropout, self.drop_path)
            return ResidualAdd(self.dropout, self.drop_path)

        wiring = self.wiring.build()
        return wiring([part.build(build_ctx) for part in parts], lambda: self.norm.build(build_ctx.width), add)

    def build_context(self, width: int, memory_width: int) -> BuildContext:
        """Build context of layers of `width` that attend to a memory of `memory_width`."""
        build_ctx = build_context(self, memory=True)
        return replace(build_ctx, width=width, hidden=self.hidden or width, memory_width=memory_width)


class PerceiverConfig(PerceiverFields, TextFields, ModelConfig):
    """`embedding_width` is the width of inputs and outputs."""

    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["perceiver"] = "perceiver"
    width: int = Field(1280, ge=1)
    embedding_width: int = Field(768, ge=1)
    heads: int = Field(8, ge=1)
    head_width: int = Field(32, ge=0)  # of queries and keys
    positions: AnyPosition = LearnedPositionsConfig(max_length=2048)
    scale_embeddings: bool = False
    output_attention: AnyPart | Literal[""] = ""  # from output queries to the latents; empty: as cross_attention
    learned_query: bool = False  # of a classifier: attends to the latents; else they are pooled

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        task = self.resolve_task(task)
        pooled = task == "classify"
        parts = ModelParts(
            self.embedding_width,
            self._build_embedding,
            encoder=lambda embedding: self._build_encoder(embedding, pooled),
            encoder_width=self.width if pooled else self.embedding_width,
            dropout=self.dropout,
            tie=self.tie,
            token_embedding=self.token_embedding,
            output_layer=self.output_layer,
            pool=self.pool,
            z_loss=self.z_loss,
        )
        model = self._build_masked_lm(parts, vocab) if task == "masked" else assemble(task, parts, vocab, outputs)
        self.init_weights(model)
        return model

    def _build_masked_lm(self, parts: ModelParts, vocab: int) -> MaskedLanguageModel:
        """Unlike BERT's head, there is no dense layer before the output layer."""
        table = parts.build_table(vocab)
        tied = table if self.tie in ("auto", "all", "target") else None
        head = parts.build_output_layer(vocab, self.embedding_width, tied, True, None)
        return MaskedLanguageModel(parts.encoder(parts.embed(table)), head, nn.Identity())

    def _build_embedding(self, table: TokenTable) -> Embedding:
        self.check_positions("learned or sinusoid")
        embedding = build_embedding(self, table)
        embedding.projection = nn.Identity()  # cross-attention takes inputs of embedding_width
        return embedding

    def _build_encoder(self, embedding: Embedding, pooled: bool) -> LatentEncoder:
        outputs: LatentOutputs | OutputQueries | OutputQuery = LatentOutputs() if pooled else self._build_queries()
        if pooled and self.learned_query:
            outputs = OutputQuery(self.width, self._build_output_layer(self.width))
        stack = self.build_latent_stack(self.cross_attention, self.embedding_width)
        return LatentEncoder(embedding, self.latents, self.width, stack, outputs)

    def _build_queries(self) -> OutputQueries:
        width = self.embedding_width
        layer = self._build_output_layer(width)
        layer.adds[0] = ReplaceStream()
        return OutputQueries(width, self.positions.build_positions(width), layer)

    def _build_output_layer(self, width: int) -> Any:
        """The layer in which queries of `width` attend to the latents."""
        attention = self.output_attention or self.cross_attention
        return self.build_layer(self.build_context(width, self.width), (attention, self.feedforward))


class ImagePerceiverConfig(PerceiverFields, ImageFields, ModelConfig):
    """Every pixel is an input: its channels, projected to `embedding_width` where that is set, and its position."""

    kind: Literal["perceiver-image"] = "perceiver-image"
    width: int = Field(1024, ge=1)
    latents: int = Field(512, ge=1)
    embedding_width: int = Field(0, ge=0)
    position_width: int = Field(256, ge=1)  # width of learned positions; Fourier positions define their own
    depth: int = Field(6, ge=1)
    repeats: int = Field(8, ge=1)
    heads: int = Field(8, ge=1)
    # head_width and value_width 0: the memory's width / heads
    cross_attention: AnyPart = PerceiverAttentionConfig(attend_to="memory", heads=1)
    positions: AnyPosition = FourierPositionsConfig()
    dropout: float = Field(0.0, ge=0, lt=1)
    learned_query: bool = False  # a learned query attends to the latents at the end; else they are mean-pooled

    @property
    def position_channels(self) -> int:
        positions = self.positions
        return positions.width if isinstance(positions, FourierPositionsConfig) else self.position_width

    def configure_attention(self, memory_width: int) -> Any:
        """Cross-attention to a memory of that width, which is split among its heads by default."""
        if not isinstance(self.cross_attention, PerceiverAttentionConfig):
            return self.cross_attention
        share = memory_width // (self.cross_attention.heads or self.heads)
        return self.cross_attention.replace(
            head_width=self.cross_attention.head_width or share,
            value_width=self.cross_attention.value_width or share,
        )

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        head = nn.Linear(self.width, outputs or 1000)
        model = ImageClassifier(self.encoder(), [ImageHead(Pool("mean"), head)])
        self.init_weights(model)
        return model

    def encoder(self) -> ImageEncoder:
        outputs: LatentOutputs | OutputQuery = LatentOutputs()
        if self.learned_query:
            parts = (self.configure_attention(self.width), self.feedforward)
            outputs = OutputQuery(self.width, self.build_layer(self.build_context(self.width, self.width), parts))
        stem, inputs = self._build_stem(), (self.embedding_width or self.channels) + self.position_channels
        stack = self.build_latent_stack(self.configure_attention(inputs), inputs)
        return LatentImageEncoder(stem, stack, self.latents, self.width, outputs)

    def _build_stem(self) -> PixelStem:
        self.check_positions("fourier, grid or sinusoid")
        width = self.position_channels
        positions = self.positions.build_grid_positions(width, self.image, class_tokens=0)
        widen = nn.Linear(self.channels, self.embedding_width) if self.embedding_width else nn.Identity()
        fourier = isinstance(self.positions, FourierPositionsConfig)
        project = nn.Identity() if fourier else nn.Linear(width, width)
        return PixelStem(self.channels, positions, width, widen, project)


SIZES: dict[str, dict[str, Any]] = {
    "bytes": {},
    "tiny": {
        "width": 32,
        "latents": 8,
        "embedding_width": 24,
        "depth": 2,
        "repeats": 2,
        "heads": 4,
        "head_width": 8,
        "positions": {"kind": "learned", "max_length": 64},
    },
}

ONCE: dict[str, Any] = {"cross_attends": 1, "learned_query": True}  # as in the second paper
IMAGE_SIZES: dict[str, dict[str, Any]] = {
    "fourier": ONCE,
    "learned": {**ONCE, "embedding_width": 256, "positions": "grid"},
    "paper": {},
    "tiny": {
        "image": 16,
        "channels": 1,
        "width": 32,
        "latents": 8,
        "depth": 1,
        "repeats": 2,
        "heads": 4,
        "positions": {"kind": "fourier", "bands": 4},
    },
}

PERCEIVER_ENTRY = Entry(
    name="perceiver",
    paper="Jaegle et al., Perceiver IO: A General Architecture for Structured Inputs & Outputs; Perceiver 2021",
    year=2021,
    family="encoder",
    config=PerceiverConfig,
    sizes=SIZES,
    vocab=262,
    published={"bytes": "201M"},
    checks=(
        Check(
            "transformers.PerceiverForMaskedLM",
            "tests/parity/test_perceiver_hf.py::test_logits_are_equal",
            "transformers",
        ),
    ),
)

PERCEIVER_IMAGE_ENTRY = Entry(
    name="perceiver-image",
    paper="Jaegle et al., Perceiver: General Perception with Iterative Attention; Perceiver IO 2022",
    year=2021,
    family="vision",
    config=ImagePerceiverConfig,
    sizes=IMAGE_SIZES,
    vocab=0,
    outputs=1000,
    published={"fourier": "48.4M", "learned": "62.3M", "paper": "44.9M"},
    checks=(
        Check(
            "transformers.PerceiverForImageClassificationFourier and ...Learned",
            "tests/parity/test_perceiver_hf.py::test_labels_of_images_are_equal",
            "transformers",
        ),
    ),
)
