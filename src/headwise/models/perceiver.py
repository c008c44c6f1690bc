"""Perceiver (Jaegle et al. 2021) and Perceiver IO (Jaegle et al. 2022) for texts, byte by byte.

Latents look at the inputs and then at each other, `repeats` times; the looks at the inputs share their weights but the
first, the layers between them all do (which is what makes 44.9M parameters of the paper's ImageNet model). To label a
text the latents are pooled, as in the first paper; where every place has an output, a query for each place looks at the
latents, as in the second. Reference: transformers' PerceiverForMaskedLM with the settings of
deepmind/language-perceiver.

DISCREPANCY: with several repeats, transformers repeats the layers but not the look at the inputs; the paper does both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from headwise.config.parts import (
    Activation,
    AnyPart,
    AnyPosition,
    AnyWiring,
    LearnedConfig,
    PreConfig,
    Site,
    UnevenConfig,
)
from headwise.errors import UserError
from headwise.models.layered import OneStackConfig, Parts

if TYPE_CHECKING:
    from torch import nn

    from headwise.blocks.embed import Embedding
    from headwise.blocks.latent import LatentEncoder, Queries
    from headwise.blocks.stack import Stack


class PerceiverConfig(OneStackConfig):
    """`width` is that of the latents, `embedding_width` that of inputs and outputs; `hidden` 0: as wide as the site."""

    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["perceiver"] = "perceiver"
    width: int = Field(1280, ge=1)
    latents: int = Field(256, ge=1)
    embedding_width: int = Field(768, ge=1)
    depth: int = Field(26, ge=1)  # layers of latents after each look at the inputs
    repeats: int = Field(1, ge=1)  # looks at the inputs
    heads: int = Field(8, ge=1)
    head_width: int = Field(32, ge=0)  # of queries and keys
    activation: Activation = "gelu"
    mixer: AnyPart = UnevenConfig()
    across: AnyPart = UnevenConfig(see="memory")
    positions: AnyPosition = LearnedConfig(limit=2048)
    wiring: AnyWiring = PreConfig()
    scaled: bool = False

    def begin(self, model: nn.Module) -> None:
        """Tables N(0, 0.02^2), matrices N(0, 1 / fan-in), as in the released code: with smaller ones all queries look
        alike for long, as no residual tells them apart."""
        from torch import nn

        from headwise.models.initial import normal

        normal(model)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        from headwise.models.assemble import Pieces, assemble

        task = self.task_or_first(task)
        if self.wiring.kind == "reversible":
            raise UserError("wiring: the layers of latents and of outputs do not end in halves; use pre or post")
        pooled = task == "classify"
        pieces = Pieces(
            self.embedding_width,
            self._embed,
            encoder=lambda embedding: self._latent_encoder(embedding, pooled),
            decoder=self._no_decoder,
            inner=self.width if pooled else self.embedding_width,
            dropout=self.dropout,
            pool=self.pool,
        )
        model = self._masked(pieces, vocab) if task == "masked" else assemble(task, pieces, vocab, outputs)
        self.begin(model)
        return model

    def _masked(self, pieces: Any, vocab: int) -> nn.Module:
        """Unlike BERT's, the outputs meet the table as they are."""
        from torch import nn

        from headwise.blocks.heads import VocabularyHead
        from headwise.blocks.readers import MaskedModel

        table = nn.Embedding(vocab, self.embedding_width)
        tied = table if self.tie in ("auto", "all", "target") else None
        head = VocabularyHead(self.embedding_width, vocab, tied, bias=True)
        return MaskedModel(pieces.encoder(pieces.embed(table)), head, nn.Identity())

    def _embed(self, table: nn.Embedding) -> Embedding:
        from torch import nn

        if self.positions.terms(self._site(causal=False, memory=False))(1, 2):
            raise UserError(
                f"positions: latents have no places that '{self.positions.kind}' could compare; use learned or sinusoid"
            )
        embedding = super()._embed(table)
        embedding.widen = nn.Identity()  # the inputs stay as narrow as they are
        return embedding

    def _latent_encoder(self, embedding: Embedding, pooled: bool) -> LatentEncoder:
        from headwise.blocks.latent import LatentEncoder, Latents

        outputs = Latents() if pooled else self._queries()
        return LatentEncoder(embedding, self.latents, self.width, self._latent_stack(), outputs)

    def _queries(self) -> Queries:
        from headwise.blocks.latent import Instead, Queries

        site = self._place(self.embedding_width, self.width)
        layer = self._layer(site, (self.across, self.feedforward))
        layer.adds[0] = Instead()
        return Queries(site.width, self.positions.embedding(site.width), layer)

    def _latent_stack(self) -> Stack:
        from headwise.blocks.stack import Stack

        site, looks = self._place(self.width, self.embedding_width), min(self.repeats, 2)
        pattern = self.layers or ((self.mixer, self.feedforward),)
        parts = [(self.across, self.feedforward)] * looks + [pattern[i % len(pattern)] for i in range(self.depth)]
        inner = range(looks, looks + self.depth)
        order = [number for repeat in range(self.repeats) for number in (min(repeat, 1), *inner)]
        return Stack([self._layer(site, each) for each in parts], order=order)

    def _layer(self, site: Site, parts: Parts) -> Any:
        from headwise.blocks.residual import Add

        wiring = self.wiring.build()
        built = [part.build(site) for part in parts]
        return wiring(built, lambda: self.norm.build(site.width), lambda: Add(self.dropout))

    def _place(self, width: int, memory_width: int) -> Site:
        """Where vectors of one width look at those of another."""
        site = self._site(causal=False, memory=True)
        return replace(site, width=width, hidden=self.hidden or width, memory_width=memory_width)

    def _no_decoder(self, memory: bool) -> Stack:
        raise TypeError("a Perceiver does not write")


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
        "positions": {"kind": "learned", "limit": 64},
    },
}
