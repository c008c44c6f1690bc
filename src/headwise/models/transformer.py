"""The Transformer of 2017 (Vaswani et al., "Attention Is All You Need").

Post-norm encoder and decoder, sinusoidal positions, one table tied three ways, ReLU feed-forward, dropout on each
sublayer's output and on embedding + position. As in the reference stacks of torch.nn and Marian, attention
projections have biases: 63,082,496 parameters for the base size with 37,000 words, where the paper says 65 million.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from headwise.config.base import Config
from headwise.config.model import ModelConfig, PoolKind, Tie
from headwise.config.parts import (
    Activation,
    AnyNorm,
    AnyPart,
    AnyPosition,
    AnyWiring,
    AttentionConfig,
    LayerNormConfig,
    MlpConfig,
    PostConfig,
    SinusoidConfig,
    Site,
)

if TYPE_CHECKING:
    from torch import nn

    from headwise.blocks.embed import Embedding
    from headwise.blocks.stack import Stack


class StackConfig(Config):
    """`depth` layers. `layers` is a pattern that repeats; without one the builder's own is used."""

    depth: int = Field(6, ge=1)
    layers: tuple[tuple[AnyPart, ...], ...] = ()
    shared: bool = False  # one set of weights for every repetition of the pattern


class TransformerConfig(ModelConfig):
    tasks = ("transduce", "language-model", "tag", "classify")
    kind: Literal["transformer"] = "transformer"
    width: int = Field(512, ge=1)
    heads: int = Field(8, ge=1)
    hidden: int = Field(0, ge=0)  # of the feed-forward network; 0: four times the width
    activation: Activation = "relu"
    encoder: StackConfig = StackConfig()
    decoder: StackConfig = StackConfig()
    positions: AnyPosition = SinusoidConfig()
    wiring: AnyWiring = PostConfig()
    norm: AnyNorm = LayerNormConfig()
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)  # on the weights; leaves the fast kernels on CPUs
    attention_bias: bool = True
    mlp_bias: bool = True
    tie: Tie = "auto"  # auto: all where the vocabulary is shared, else target
    output_bias: bool = False
    pool: PoolKind = "mean"  # of a classifier
    embeddings: str = ""  # a run or a word2vec text file, whose vectors its words begin with
    start_id: int = 1  # the token before the first: BOS; Marian starts from the padding

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        """Encoder and decoder to transduce, the decoder alone as a language model, the encoder alone to label."""
        from headwise.blocks.embed import Embedding
        from headwise.blocks.stack import Encoder
        from headwise.models.assemble import Pieces, assemble

        def embed(table: nn.Embedding) -> Embedding:
            return Embedding(table, self.positions.embedding(self.width), self.width**0.5, self.dropout)

        pieces = Pieces(
            self.width,
            embed,
            encoder=lambda embedding: Encoder(embedding, self._stack(self.encoder, causal=False)),
            decoder=lambda memory: self._stack(self.decoder, causal=True, memory=memory),
            tie=self.tie,
            output_bias=self.output_bias,
            start_id=self.start_id,
            pool=self.pool,
        )
        model = assemble(self.task_or_first(task), pieces, vocab, outputs)
        initialise(model, self.width)
        return model

    def _stack(self, stack: StackConfig, causal: bool, memory: bool = False) -> Stack:
        from headwise.blocks.residual import Add
        from headwise.blocks.stack import Stack

        site = Site(
            width=self.width,
            heads=self.heads,
            hidden=self.hidden or 4 * self.width,
            activation=self.activation,
            causal=causal,
            memory_width=self.width if memory else 0,
            attention_dropout=self.attention_dropout,
            attention_bias=self.attention_bias,
            mlp_bias=self.mlp_bias,
        )
        site = Site(**{**site.__dict__, "terms": self.positions.terms(site)})
        across = (AttentionConfig(see="memory"),) if memory else ()
        pattern = stack.layers or ((AttentionConfig(), *across, MlpConfig()),)
        wiring = self.wiring.build()
        kinds = [pattern[i % len(pattern)] for i in range(len(pattern) if stack.shared else stack.depth)]
        layers = [
            wiring(
                [part.build(site) for part in parts],
                lambda: self.norm.build(self.width),
                lambda: Add(self.dropout),
            )
            for parts in kinds
        ]
        order = [i % len(layers) for i in range(stack.depth)]
        return Stack(layers, self.norm.build(self.width) if wiring.closes else None, order)


def initialise(model: nn.Module, width: int) -> None:
    """Embeddings N(0, 1/width), so that sqrt(width) times them has unit variance; matrices Xavier-uniform, each
    projection of a fused product for itself; biases zero."""
    from torch import nn

    from headwise.blocks.attention import Itself, Memory

    fused: dict[int, int] = {}
    for module in model.modules():
        if isinstance(module, Itself | Memory):
            fused[id(module.project)] = 3 if isinstance(module, Itself) else 2
    for module in model.modules():
        if isinstance(module, nn.Embedding) and module.embedding_dim == width:
            nn.init.normal_(module.weight, std=width**-0.5)
        elif isinstance(module, nn.Linear):
            for block in module.weight.chunk(fused.get(id(module), 1)):
                nn.init.xavier_uniform_(block)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "big": {"width": 1024, "heads": 16, "dropout": 0.3},
    "small": {"width": 256, "heads": 4, "encoder": {"depth": 3}, "decoder": {"depth": 3}},
    "tiny": {"width": 32, "heads": 4, "encoder": {"depth": 2}, "decoder": {"depth": 2}},
}
