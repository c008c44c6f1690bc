"""What all models of attention and feed-forward layers have in common: one config, one way to build.

A model of this family is a set of defaults, a pattern for its layer and a way to begin; its file names them and its
sizes. Everything may be changed in an experiment, so a GPT with ALiBi or a BERT with RMSNorm needs no code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from torch import nn

from headwise.blocks.activations import Activation
from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.embed import Embedding, TokenTypes
from headwise.blocks.feedforward import MlpConfig
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.absolute import SinusoidalPositionsConfig
from headwise.blocks.residual import LayerScaleAdd, PostNormConfig, ResidualAdd
from headwise.blocks.stack import Encoder, Stack
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.config.base import STACKS, Config, Problems, problems
from headwise.models.assemble import ModelParts, assemble
from headwise.models.config import ModelConfig, PoolKind, Tie
from headwise.models.init_weights import init_xavier
from headwise.text import BOS

Parts = tuple[Any, ...]


def _not_a_number(layers: Any) -> Any:
    if isinstance(layers, int):
        raise ValueError("is a pattern of parts, not a number of layers; Headwise calls that depth, as in model.depth")
    return layers


Layers = Annotated[tuple[tuple[AnyPart, ...], ...], BeforeValidator(_not_a_number)]


class StackConfig(Config):
    """`depth` layers. `layers` is a pattern that repeats; without one the model's own is used."""

    depth: int = Field(6, ge=1)
    layers: Layers = ()
    shared: bool = False  # one set of weights for every repetition of the pattern


class LayeredConfig(ModelConfig):
    """Layers of attention and feed-forward networks. 0 leaves a number to another one."""

    opens: ClassVar[bool] = False  # whether a mark is put before the texts that its encoder reads
    reads_ahead: ClassVar[bool] = True  # whether its encoder looks both ways
    decoder_opening: ClassVar[int | None] = None  # what its decoder reads before the start of a target

    width: int = Field(512, ge=1)
    heads: int = Field(8, ge=1)
    head_width: int = Field(0, ge=0)  # 0: the width divided among the heads
    key_value_heads: int = Field(0, ge=0)  # heads of keys and values, which those of queries share; 0: as many
    hidden: int = Field(0, ge=0)  # of the feed-forward network; 0: four times the width
    activation: Activation = "relu"
    mixer: AnyPart = AttentionConfig()  # what a layer mixes its tokens with
    cross_attention: AnyPart = AttentionConfig(attend_to="memory")  # what a decoder's layer looks at its memory with
    feedforward: AnyPart = MlpConfig()
    positions: AnyPosition = SinusoidalPositionsConfig()
    wiring: AnyWiring = PostNormConfig()
    norm: AnyNorm = LayerNormConfig()
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)  # on the weights; leaves the fast kernels on CPUs
    hidden_dropout: float = Field(0.0, ge=0, lt=1)  # inside the feed-forward network
    drop_path: float = Field(0.0, ge=0, lt=1)  # how often the last layer's branches are left out; others less, by depth
    layer_scale: float = Field(0.0, ge=0)  # what gains of the branches begin with; 0: there are none
    attention_bias: bool = True
    mlp_bias: bool = True
    scale_embeddings: bool = True  # embeddings times sqrt(width)
    embedding_width: int = Field(0, ge=0)  # of a table in two factors; 0: as wide as the model
    embedding_norm: bool = False
    token_types: int = Field(0, ge=0)  # vectors that tell the texts of a pair apart
    # with them, one that guesses hidden words also judges whether the second text follows
    next_sentence_head: bool = True
    tie: Tie = "auto"  # auto: all where the vocabulary is shared, else target; not the words of outputs that are wider
    output_bias: bool = False
    suppress_ids: tuple[int, ...] = ()  # ids that are read but never written: marks that another program does not have
    pool: PoolKind = "mean"  # of a classifier
    embeddings: str = ""  # a run or a word2vec text file, whose vectors its words begin with
    start_id: int = BOS  # the token before the first; Marian starts from the padding

    @model_validator(mode="before")
    @classmethod
    def _spread_depth(cls, data: Any) -> Any:
        """`depth` is that of every stack that does not say its own."""
        if not isinstance(data, Mapping) or "depth" not in data:
            return data
        depth = {"depth": data["depth"]}
        try:
            StackConfig.model_validate(depth)
        except ValidationError as error:
            raise Problems(problems(error)) from None
        stacks = {side: data.get(side, {}) for side in STACKS if side in cls.model_fields}
        spread = {side: {**depth, **stack} for side, stack in stacks.items() if isinstance(stack, Mapping)}
        return {key: value for key, value in data.items() if key != "depth" or key in cls.model_fields} | spread

    def stacks(self) -> tuple[StackConfig, StackConfig]:
        """The one that reads and the one that writes."""
        raise TypeError(f"{type(self).__name__} has no stacks")

    @property
    def outer(self) -> int:
        """How wide the outputs of a stack are."""
        return self.wiring.widens * self.width

    def layer(self, memory: bool) -> Parts:
        """The parts of one layer, with or without a memory to attend to."""
        return self.mixer, *((self.cross_attention,) if memory else ()), self.feedforward

    def before_words(self) -> nn.Module | None:
        """What stands between a decoder's outputs and the product with its words."""
        return nn.Linear(self.outer, self.embedding_width) if self.embedding_width else None

    def init_weights(self, model: nn.Module) -> None:
        """Set the weights of a new model."""
        init_xavier(model, self.width, self.outer)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        """Encoder and decoder to transduce, the decoder alone as a language model, the encoder alone to label."""
        reads, writes = self.stacks()

        pieces = ModelParts(
            self.embedding_width or self.width,
            self._embed,
            encoder=lambda embedding: self._encoder(embedding, reads),
            decoder=lambda memory: self._stack(writes, causal=True, memory=memory),
            inner=self.outer,
            head=self.embedding_width or self.outer,
            before=self.before_words,
            norm=lambda: self.norm.build(self.embedding_width or self.width),
            activation=self.activation,
            dropout=self.dropout,
            tie=self.tie,
            output_bias=self.output_bias,
            suppress_ids=self.suppress_ids,
            start_id=self.start_id,
            pool=self.pool,
            pairs=self.next_sentence_head and self.token_types > 1,
            opening=self.decoder_opening,
        )
        model = assemble(self.resolve_task(task), pieces, vocab, outputs)
        self.init_weights(model)
        return model

    def _embed(self, table: nn.Embedding) -> Embedding:
        width = self.embedding_width or self.width
        return self.positions.embed(
            table,
            width,
            scale=width**0.5 if self.scale_embeddings else 1.0,
            dropout=self.dropout,
            types=TokenTypes(width, self.token_types) if self.token_types else None,
            norm=self.norm.build(width) if self.embedding_norm else None,
            widen=nn.Linear(width, self.width) if self.embedding_width else None,
        )

    def _encoder(self, embedding: Embedding, stack: StackConfig) -> Encoder:
        opening = BOS if self.opens else None
        return Encoder(embedding, self._stack(stack, causal=not self.reads_ahead), opening=opening)

    def _stack(self, stack: StackConfig, causal: bool, memory: bool = False) -> Stack:
        site = self._site(causal, memory)
        pattern = stack.layers or (self.layer(memory),)
        wiring = self.wiring.build()
        kinds = [pattern[i % len(pattern)] for i in range(len(pattern) if stack.shared else stack.depth)]
        layers = [
            wiring(
                [part.build(site) for part in parts],
                lambda: self.norm.build(self.width),
                self._add(number, len(kinds)),
            )
            for number, parts in enumerate(kinds)
        ]
        order = [i % len(layers) for i in range(stack.depth)]
        return Stack(layers, wiring.close(lambda: self.norm.build(self.outer)), order)

    def _add(self, number: int, depth: int) -> Callable[[], nn.Module]:
        """What makes the residual adds of one layer of `depth`."""
        drop_path = self.drop_path * number / max(depth - 1, 1)
        if self.layer_scale:
            return lambda: LayerScaleAdd(self.width, self.layer_scale, self.dropout, drop_path)
        return lambda: ResidualAdd(self.dropout, drop_path)

    def _site(self, causal: bool, memory: bool) -> BuildContext:
        site = BuildContext(
            width=self.width,
            heads=self.heads,
            hidden=self.hidden or 4 * self.width,
            head_width=self.head_width,
            key_value_heads=self.key_value_heads,
            activation=self.activation,
            causal=causal,
            memory_width=self.outer if memory else 0,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            hidden_dropout=self.hidden_dropout,
            attention_bias=self.attention_bias,
            mlp_bias=self.mlp_bias,
        )
        return replace(site, score_mods=self.positions.score_mods(site))


class TwoStacksConfig(LayeredConfig):
    """An encoder, which reads, and a decoder, which writes. `depth` stands for that of both."""

    encoder: StackConfig = StackConfig()
    decoder: StackConfig = StackConfig()

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        return (*super().known_keys(), "depth")

    def changed(self, **changes: Any) -> Any:
        sides = STACKS if "depth" in changes else ()
        stacks = {side: getattr(self, side).changed(depth=changes["depth"]) for side in sides}
        return super().changed(**{**stacks, **changes})

    def stacks(self) -> tuple[StackConfig, StackConfig]:
        return self.encoder, self.decoder


class OneStackConfig(LayeredConfig):
    """One stack, which reads or writes."""

    depth: int = Field(12, ge=1)
    layers: Layers = ()  # a pattern that repeats; without one the model's own
    shared: bool = False  # one set of weights for every repetition of the pattern

    def stacks(self) -> tuple[StackConfig, StackConfig]:
        stack = StackConfig(depth=self.depth, layers=self.layers or self.pattern(), shared=self.shared)
        return stack, stack

    def pattern(self) -> tuple[Parts, ...]:
        """Layers that take turns; none: all are alike."""
        return ()
