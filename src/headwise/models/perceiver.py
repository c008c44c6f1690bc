"""Perceiver (Jaegle et al. 2021) and Perceiver IO (Jaegle et al. 2022) for texts, byte by byte, and for images, pixel
by pixel.

Latents look at the inputs and then at each other, `repeats` times; the looks at the inputs share their weights but the
first, the layers between them all do (which is what makes 44.9M parameters of the paper's ImageNet model). The second
paper, and transformers, look at images once and repeat the layers (`looks = 1`). To label a text or an image the
latents are pooled, as in the first paper; where every place has an output, a query for each place looks at the latents,
as in the second, and a single one at those of an image (`learned_query`). Reference: transformers' PerceiverForMaskedLM
with the settings of deepmind/language-perceiver, PerceiverForImageClassificationFourier and ...Learned with those of
deepmind/vision-perceiver-fourier and ...-learned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.activations import Activation
from headwise.blocks.embed import Embedding
from headwise.blocks.heads import VocabularyHead
from headwise.blocks.images import ImageEncoder
from headwise.blocks.latent_images import LatentImages, PixelStem, Question
from headwise.blocks.latents import LatentEncoder, Latents, Queries, ReplaceStream, UnevenConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.pool import Pool
from headwise.blocks.positions.absolute import LearnedPositionsConfig
from headwise.blocks.positions.fourier import FourierPositionsConfig
from headwise.blocks.residual import LayerScaleAdd, PreNormConfig, ResidualAdd
from headwise.blocks.stack import Stack
from headwise.blocks.tables import AnyPart, AnyPosition, AnyWiring
from headwise.errors import UserError
from headwise.models.assemble import ModelParts, assemble
from headwise.models.entry import Check, Entry
from headwise.models.image_base import ImageModelConfig
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.init_weights import init_normal
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.models.transformer_base import OneStackConfig, Parts


class PerceiverConfig(OneStackConfig):
    """`width` is that of the latents, `embedding_width` that of inputs and outputs; `hidden` 0: as wide as the site."""

    tasks: ClassVar[tuple[str, ...]] = ("masked", "tag", "classify", "answer", "encode")
    usable: ClassVar[str] = "learned or sinusoid"  # positions
    kind: Literal["perceiver"] = "perceiver"
    width: int = Field(1280, ge=1)
    latents: int = Field(256, ge=1)
    embedding_width: int = Field(768, ge=1)
    depth: int = Field(26, ge=1)  # layers of latents after each look at the inputs
    repeats: int = Field(1, ge=1)  # how often latents go through them
    cross_attends: int = Field(0, ge=0)  # how many of these times they look at the inputs first; 0: always
    heads: int = Field(8, ge=1)
    head_width: int = Field(32, ge=0)  # of queries and keys
    activation: Activation = "gelu"
    mixer: AnyPart = UnevenConfig()
    cross_attention: AnyPart = UnevenConfig(attend_to="memory")
    positions: AnyPosition = LearnedPositionsConfig(max_length=2048)
    wiring: AnyWiring = PreNormConfig()
    scale_embeddings: bool = False

    @property
    def seen(self) -> int:
        """How wide the inputs are."""
        return self.embedding_width

    def look(self, memory_width: int) -> Any:
        """The part that looks at a memory of that width."""
        return self.cross_attention

    def init_weights(self, model: nn.Module) -> None:
        """Tables N(0, 0.02^2), matrices N(0, 1 / fan-in), as in the released code: with smaller ones all queries look
        alike for long, as no residual tells them apart."""
        init_normal(model)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        task = self.resolve_task(task)
        pooled = task == "classify"
        pieces = ModelParts(
            self.embedding_width,
            self._embed,
            encoder=lambda embedding: self._latent_encoder(embedding, pooled),
            decoder=self._no_decoder,
            inner=self.width if pooled else self.embedding_width,
            dropout=self.dropout,
            pool=self.pool,
        )
        model = self._masked(pieces, vocab) if task == "masked" else assemble(task, pieces, vocab, outputs)
        self.init_weights(model)
        return model

    def _masked(self, pieces: Any, vocab: int) -> nn.Module:
        """Unlike BERT's, the outputs meet the table as they are."""
        table = nn.Embedding(vocab, self.embedding_width)
        tied = table if self.tie in ("auto", "all", "target") else None
        head = VocabularyHead(self.embedding_width, vocab, tied, bias=True)
        return MaskedLanguageModel(pieces.encoder(pieces.embed(table)), head, nn.Identity())

    def _embed(self, table: nn.Embedding) -> Embedding:
        self._no_terms()
        embedding = super()._embed(table)
        embedding.widen = nn.Identity()  # the inputs stay as narrow as they are
        return embedding

    def _no_terms(self) -> None:
        if self.positions.score_mods(self._site(causal=False, memory=False))(1, 2):
            raise UserError(
                f"positions: latents have no places that '{self.positions.kind}' could compare; use {self.usable}"
            )

    def _latent_encoder(self, embedding: Embedding, pooled: bool) -> LatentEncoder:
        outputs = Latents() if pooled else self._queries()
        return LatentEncoder(embedding, self.latents, self.width, self._latent_stack(), outputs)

    def _queries(self) -> Queries:
        site = self._place(self.embedding_width, self.width)
        layer = self._layer(site, (self.cross_attention, self.feedforward))
        layer.adds[0] = ReplaceStream()
        return Queries(site.width, self.positions.embedding(site.width), layer)

    def _latent_stack(self) -> Stack:
        if self.wiring.kind == "reversible":
            raise UserError("wiring: the layers of latents and of outputs do not end in halves; use pre or post")
        if self.wiring.kind == "chain":
            raise UserError("wiring: latents that look at a text add to what they are; use pre or post")
        site, looks = self._place(self.width, self.seen), min(self.cross_attends or self.repeats, self.repeats)
        own = min(looks, 2)  # the first look, and the one whose weights all others share
        pattern = self.layers or ((self.mixer, self.feedforward),)
        parts = [pattern[number % len(pattern)] for number in range(self.depth)]
        layers = [self._layer(site, each) for each in [(self.look(self.seen), self.feedforward)] * own + parts]
        order: list[int] = []
        for repeat in range(self.repeats):
            order += [min(repeat, 1)] * (repeat < looks) + list(range(own, len(layers)))
        return Stack(layers, order=order)

    def _layer(self, site: BuildContext, parts: Parts) -> Any:
        def add() -> nn.Module:  # layers that stand at several depths are left out equally often at each
            if self.layer_scale:
                return LayerScaleAdd(site.width, self.layer_scale, self.dropout, self.drop_path)
            return ResidualAdd(self.dropout, self.drop_path)

        wiring = self.wiring.build()
        return wiring([part.build(site) for part in parts], lambda: self.norm.build(site.width), add)

    def _place(self, width: int, memory_width: int) -> BuildContext:
        """Where vectors of one width look at those of another."""
        site = self._site(causal=False, memory=True)
        return replace(site, width=width, hidden=self.hidden or width, memory_width=memory_width)

    def _no_decoder(self, memory: bool) -> Stack:
        raise TypeError("a Perceiver does not write")


class ImagePerceiverConfig(PerceiverConfig, ImageModelConfig):
    """Every pixel is an input: its channels, widened to `embedding_width` where that is set, and its place."""

    tasks = ("classify-images",)
    usable = "waves, grid or sinusoid"
    kind: Literal["perceiver-image"] = "perceiver-image"  # type: ignore[assignment]
    width: int = Field(1024, ge=1)
    latents: int = Field(512, ge=1)
    embedding_width: int = Field(0, ge=0)
    position_width: int = Field(256, ge=1)  # of places that are learned; waves say theirs themselves
    depth: int = Field(6, ge=1)
    repeats: int = Field(8, ge=1)
    head_width: int = Field(0, ge=0)
    # 0: its heads share out the width of what they look at
    cross_attention: AnyPart = UnevenConfig(attend_to="memory", heads=1)
    positions: AnyPosition = FourierPositionsConfig()
    dropout: float = Field(0.0, ge=0, lt=1)
    learned_query: bool = False  # a query looks at the latents in the end; else their mean is taken

    @property
    def waves(self) -> bool:
        return isinstance(self.positions, FourierPositionsConfig)

    @property
    def seen(self) -> int:
        return (self.embedding_width or self.channels) + self._place_channels

    @property
    def _place_channels(self) -> int:
        positions = self.positions
        return positions.width if isinstance(positions, FourierPositionsConfig) else self.position_width

    def look(self, memory_width: int) -> Any:
        if not isinstance(self.cross_attention, UnevenConfig):
            return self.cross_attention
        share = memory_width // (self.cross_attention.heads or self.heads)
        widths = {
            "head_width": self.cross_attention.head_width or share,
            "value_width": self.cross_attention.value_width or share,
        }
        return self.cross_attention.changed(**widths)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        head = nn.Linear(self.width, outputs or 1000)
        model = ImageClassifier(self.encoder(), [ImageHead(Pool("mean"), head)])
        self.init_weights(model)
        return model

    def encoder(self) -> ImageEncoder:
        outputs: Latents | Question = Latents()
        if self.learned_query:
            site = self._place(self.width, self.width)
            outputs = Question(self.width, self._layer(site, (self.look(self.width), self.feedforward)))
        return LatentImages(self._stem(), self._latent_stack(), self.latents, self.width, outputs)

    def _stem(self) -> PixelStem:
        self._no_terms()
        width = self._place_channels
        positions = self.positions.on_grid(width, self.image, class_tokens=0)
        widen = nn.Linear(self.channels, self.embedding_width) if self.embedding_width else nn.Identity()
        project = nn.Identity() if self.waves else nn.Linear(width, width)
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

ONCE: dict[str, Any] = {"cross_attends": 1, "learned_query": True}  # as the second paper has it
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
        "positions": {"kind": "waves", "bands": 4},
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
