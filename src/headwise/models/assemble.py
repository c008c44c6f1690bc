"""Text models: embeddings, encoder and decoder stacks, and the head that a task needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.feedforward import Activation
from headwise.blocks.funnel import PooledStack
from headwise.blocks.heads import MLMTransform, OutputLayer, Pooler, TransposedLinear, VocabularyHead
from headwise.blocks.norm import LayerNorm
from headwise.blocks.output_layers import OutputContext, SoftmaxConfig
from headwise.blocks.pool import Pool
from headwise.blocks.residual import make_dropout
from headwise.blocks.stack import Decoder, Embedding, Encoder, Stack, TaskTypes, TokenTypes
from headwise.blocks.tables import AnyOutputLayer, AnyTokenEmbedding
from headwise.blocks.token_embeddings import TableConfig, TokenTable
from headwise.config.base import Config
from headwise.errors import UserError
from headwise.models.config import CLASSIFY_WITH_LM, PoolKind, Tie
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.language_model import LanguageModel
from headwise.models.layers import LayerFields
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.models.text_classifier import (
    DecoderClassifier,
    SequenceClassifier,
    SpanClassifier,
    TextDecoder,
    TextEncoder,
    TokenClassifier,
)
from headwise.text import BOS

# activation of the dense layer
POOLERS = {
    "pooler": "tanh",
    "pooler_gelu": "gelu",
    "pooler_gelu_tanh": "gelu_tanh",
    "pooler_relu": "relu",
    "pooler_last": "tanh",
}


class HeadTransformConfig(Config):
    """The MLM transform: a dense layer, an activation and a norm before the output layer of a masked language model."""

    dense: bool = True  # false: no transform, the output layer reads the encoder's outputs
    labels: bool = False  # also before the output layer of labels and answers, as in ModernBERT
    bias: bool = True
    activation: Activation | Literal[""] = ""  # empty: that of the layers


class VocabularyFields(Config):
    """Settings of the token embedding and of the output layer over the vocabulary."""

    token_embedding: AnyTokenEmbedding = TableConfig()
    output_layer: AnyOutputLayer = SoftmaxConfig()  # of encoder-decoders, language models and masked language models


class TextFields(VocabularyFields, LayerFields):
    """Settings of token embeddings, output layer and pooling, beside those of layers."""

    scale_embeddings: bool = True  # by sqrt(width)
    embedding_width: int = Field(0, ge=0)  # factorised embedding table; 0: as wide as the model
    # of a factorised embedding: one projection for encoder and decoder and, where the table is tied, the output layer
    tie_projection: bool = False
    factorise_outputs: bool = True  # false: beside a factorised embedding the output layer has a full table of its own
    embedding_norm: bool = False
    token_types: int = Field(0, ge=0)  # token type embeddings, one for each text of a pair; 0: none
    # false: the texts of a pair have one type, as with tokenizers of `transformers` that return no token types
    pair_types: bool = True
    # embedding table of task types, of which every token has the first (ERNIE 2.0); 0: none
    task_types: int = Field(0, ge=0)
    # with token types, a masked language model also predicts whether the second text follows
    next_sentence_head: bool = True
    # weight tying. auto: all where the vocabulary is shared, else target; none where outputs are wider than the table,
    # or where an adaptive softmax has other clusters
    tie: Tie = "auto"
    output_bias: bool = False
    z_loss: float = Field(0.0, ge=0)  # weight of log(Z)^2 in the loss of the output layer, Z the softmax's denominator
    head_transform: HeadTransformConfig = HeadTransformConfig()
    suppress_ids: tuple[int, ...] = ()  # ids that are never generated: those without a token in an imported vocabulary
    pool: PoolKind = "mean"  # of a classifier
    pooler_width: int = Field(0, ge=0)  # outputs of the pooler of a classifier; 0: as many as inputs
    embeddings: str = ""  # a run or a word2vec text file to initialise the embedding table from
    start_id: int = BOS  # the decoder's first input; Marian starts from the padding


def build_projection(config: TextFields) -> nn.Linear:
    """The projection of a factorised embedding to the model's width; one that the output layer shares has no bias."""
    return nn.Linear(config.embedding_width, config.width, bias=not config.tie_projection)


def build_embedding(
    config: TextFields, table: TokenTable, projection: Callable[[TextFields], nn.Linear] = build_projection
) -> Embedding:
    """Token embedding with positions, token types, norm, dropout and, of a factorised embedding, the projection."""
    width = config.embedding_width or config.width
    return config.positions.build_embedding(
        table,
        width,
        scale=width**0.5 if config.scale_embeddings else 1.0,
        dropout=config.dropout,
        types=TokenTypes(width, config.token_types, pairs=config.pair_types) if config.token_types else None,
        tasks=TaskTypes(width, config.task_types) if config.task_types else None,
        norm=config.norm.build(width) if config.embedding_norm else None,
        projection=projection(config) if config.embedding_width else None,
    )


def no_module(tied: bool) -> None:
    """Default of optional parts."""


def no_decoder(memory: bool) -> Stack:
    raise TypeError("this model has no decoder")


@dataclass(frozen=True)
class ModelParts:
    """Callbacks that build the parts of a text model: embedding, encoder, decoder stack; and the settings of heads."""

    width: int  # of the embedding tables
    embed: Callable[[TokenTable], Embedding]
    encoder: Callable[[Embedding], Encoder]
    decoder: Callable[[bool], Stack] = no_decoder  # with or without a memory to attend to
    encoder_width: int = 0  # width of the encoder's outputs; 0: that of the tables
    head_input_width: int = 0  # width of the output layer's inputs; 0: that of the tables
    # between the decoder and the output layer, which is or is not tied to an embedding table
    output_transform: Callable[[bool], nn.Module | None] = no_module
    norm: Callable[[int], nn.Module] | None = None  # of the head transform, by width
    activation: str = "gelu"
    head_transform: HeadTransformConfig = field(default_factory=HeadTransformConfig)
    dropout: float = 0.0
    tie: str = "auto"
    token_embedding: AnyTokenEmbedding = field(default_factory=TableConfig)
    output_layer: AnyOutputLayer = field(default_factory=SoftmaxConfig)
    tie_projection: bool = False
    factorise_outputs: bool = True
    output_bias: bool = False
    z_loss: float = 0.0
    suppress_ids: tuple[int, ...] = ()
    start_id: int = 1
    pool: str = "mean"
    pooler_width: int = 0
    next_sentence_head: bool = False
    decoder_prefix_id: int | None = None  # id that the decoder reads before the start token, as BART's EOS
    labels_from: str = "encoder"  # side whose outputs the heads of classes and answers read

    def build_table(self, vocab: int) -> TokenTable:
        """The token embedding table."""
        return self.token_embedding.build(vocab, self.width)

    def build_vocabulary_head(self, count: int, table: TokenTable | None) -> OutputLayer:
        """Build the output layer for `count` tokens, with weight tying where a table is given. tie = "auto" leaves it
        untied where the widths differ."""
        width = self.head_input_width or self.width
        if table is not None and width != self.width:
            if self.tie == "auto":
                return self.build_vocabulary_head(count, None)
            raise UserError(f"tie: embeddings and outputs have widths {self.width} and {width}; use tie = 'none'")
        return self.build_output_layer(
            count, width, table, self.output_bias, self.output_transform(table is not None), self.suppress_ids
        )

    def build_output_layer(
        self,
        count: int,
        width: int,
        table: TokenTable | None,
        bias: bool,
        transform: nn.Module | None,
        suppress_ids: tuple[int, ...] = (),
    ) -> OutputLayer:
        """Build the output layer for `count` tokens and inputs of `width`, tied to the table where there is one."""
        must_tie = self.tie != "auto"
        return self.output_layer.build(
            OutputContext(width, count, table, must_tie, bias, transform, suppress_ids, self.z_loss)
        )

    def build_encoder(self, vocab: int) -> Encoder:
        """An encoder with a new embedding table."""
        return self.encoder(self.embed(self.build_table(vocab)))

    def build_sides(self, vocab: int) -> tuple[Encoder, TextDecoder | None]:
        """The encoder of a text classifier, and the decoder that its head reads, if any. They share one table; the
        decoder reads its first token, `decoder_prefix_id` or `start_id`, before the text."""
        if self.labels_from == "encoder":
            return self.build_encoder(vocab), None
        table = self.build_table(vocab)
        first = self.start_id if self.decoder_prefix_id is None else self.decoder_prefix_id
        decoder = TextDecoder(self.embed(table), self.decoder(True), first)
        return self.encoder(self.embed(table)), decoder

    def build_label_head(self, count: int) -> VocabularyHead:
        """Classification head: encoder outputs to logits of `count` labels."""
        transform = self.build_head_transform(self.output_width) if self.head_transform.labels else None
        return VocabularyHead(self.output_width, count, bias=True, transform=transform, z_loss=self.z_loss)

    def build_text_label_head(self, count: int) -> VocabularyHead:
        """Classification head: pooled vectors to logits of `count` labels."""
        if self.pool in POOLERS and self.pooler_width:
            return VocabularyHead(self.pooler_width, count, bias=True, z_loss=self.z_loss)
        return self.build_label_head(count)

    def build_span_head(self) -> nn.Module:
        """The head of extractive question answering: logits of start and end."""
        head = nn.Linear(self.output_width, 2)
        return nn.Sequential(self.build_head_transform(self.output_width), head) if self.head_transform.labels else head

    def build_head_transform(self, out: int) -> MLMTransform:
        """The transform of encoder outputs to `out` channels before an output layer."""
        norm = self.norm(out) if self.norm else LayerNorm(out)
        settings = self.head_transform
        return MLMTransform(self.output_width, out, settings.activation or self.activation, norm, settings.bias)

    @property
    def output_width(self) -> int:
        """Width of the encoder's outputs."""
        return self.encoder_width or self.width

    def build_pool(self) -> nn.Module:
        """Pooling of token vectors to one vector per text."""
        if self.pool not in POOLERS:
            return Pool(self.pool)
        pooler = Pooler(self.output_width, POOLERS[self.pool], self.pooler_width)
        pool = Pool("last" if self.pool == "pooler_last" else "first")
        return nn.Sequential(pool, pooler, make_dropout(self.dropout))


def build_text_parts(
    config: TextFields, encoder: Callable[[Embedding], Encoder], decoder: Callable[[bool], Stack] = no_decoder
) -> ModelParts:
    """ModelParts of a Transformer with these stacks, and the embedding and heads of its config."""
    table_width = config.embedding_width or config.width
    if not config.embedding_width and (config.tie_projection or not config.factorise_outputs):
        key = "tie_projection" if config.tie_projection else "factorise_outputs"
        raise UserError(f"{key}: the embedding is not factorised and has no projection; set embedding_width")
    projection = cache(build_projection) if config.tie_projection else build_projection

    def build_output_transform(tied: bool) -> nn.Module | None:
        if not (config.embedding_width and config.factorise_outputs):
            return None
        if tied and config.tie_projection:
            return TransposedLinear(projection(config))
        return nn.Linear(config.output_width, config.embedding_width)

    return ModelParts(
        table_width,
        embed=lambda table: build_embedding(config, table, projection),
        encoder=encoder,
        decoder=decoder,
        encoder_width=config.output_width,
        head_input_width=(config.factorise_outputs and config.embedding_width) or config.output_width,
        output_transform=build_output_transform,
        norm=config.norm.build,
        activation=config.activation,
        head_transform=config.head_transform,
        dropout=config.dropout,
        tie=config.tie,
        token_embedding=config.token_embedding,
        output_layer=config.output_layer,
        tie_projection=config.tie_projection,
        factorise_outputs=config.factorise_outputs,
        output_bias=config.output_bias,
        z_loss=config.z_loss,
        suppress_ids=config.suppress_ids,
        start_id=config.start_id,
        pool=config.pool,
        pooler_width=config.pooler_width,
        next_sentence_head=config.next_sentence_head and config.token_types > 1,
    )


def assemble(task: str, parts: ModelParts, vocab: int, outputs: int = 0) -> Any:
    """Assemble the model for `task`."""
    return ASSEMBLIES[task](parts, vocab, outputs)


def build_encoder_decoder(parts: ModelParts, vocab: int, outputs: int) -> EncoderDecoder:
    tie = parts.tie if parts.tie != "auto" else "target" if outputs else "all"
    if tie in ("all", "inputs") and outputs not in (0, vocab):
        raise UserError("tie: one embedding table for source and target needs a shared vocabulary; use tie = 'target'")
    if parts.tie_projection and tie not in ("all", "inputs"):
        raise UserError(
            f"tie_projection: with tie = '{tie}' encoder and decoder have tables of their own, and no projection to "
            "share; use tie = 'all' or 'inputs'"
        )
    outputs = outputs or vocab
    target_table = parts.build_table(outputs)
    source_table = target_table if tie in ("all", "inputs") else parts.build_table(vocab)
    head = parts.build_vocabulary_head(outputs, target_table if tie in ("all", "target") else None)
    encoder = parts.encoder(parts.embed(source_table))
    if isinstance(encoder.stack, PooledStack):
        encoder.stack.restores_length = False  # the decoder attends to the pooled tokens
    return EncoderDecoder(
        encoder,
        Decoder(parts.embed(target_table), parts.decoder(True), head, parts.decoder_prefix_id),
        start_id=parts.start_id,
    )


def build_language_model(parts: ModelParts, vocab: int, outputs: int) -> LanguageModel:
    table = parts.build_table(vocab)
    head = parts.build_vocabulary_head(vocab, table if parts.tie in ("auto", "all", "target") else None)
    return LanguageModel(Decoder(parts.embed(table), parts.decoder(False), head), start_id=parts.start_id)


def build_masked_lm(parts: ModelParts, vocab: int, outputs: int) -> MaskedLanguageModel:
    table = parts.build_table(vocab)
    width, tied = parts.width, parts.tie in ("auto", "all", "target")
    if not parts.factorise_outputs or not parts.head_transform.dense:
        width, tied = parts.output_width, tied and (parts.output_width == parts.width or parts.tie != "auto")
    if tied and width != parts.width:
        raise UserError(f"tie: embeddings and outputs have widths {parts.width} and {width}; use tie = 'none'")
    transform = parts.build_head_transform(width) if parts.head_transform.dense else None
    head = parts.build_output_layer(vocab, width, table if tied else None, True, transform)
    next_sentence_head: nn.Module = nn.Identity()
    if parts.next_sentence_head:
        next_sentence_head = nn.Sequential(
            Pool("first"), Pooler(parts.output_width), nn.Linear(parts.output_width, outputs or 2)
        )
    return MaskedLanguageModel(parts.encoder(parts.embed(table)), head, next_sentence_head)


def build_token_classifier(parts: ModelParts, vocab: int, outputs: int) -> TokenClassifier:
    return TokenClassifier(parts.build_encoder(vocab), parts.build_label_head(outputs or vocab))


def build_sequence_classifier(parts: ModelParts, vocab: int, outputs: int) -> SequenceClassifier:
    (encoder, decoder), pool = parts.build_sides(vocab), parts.build_pool()
    return SequenceClassifier(encoder, pool, parts.build_text_label_head(outputs or vocab), decoder)


def build_decoder_classifier(parts: ModelParts, vocab: int, outputs: int) -> DecoderClassifier:
    encoder = parts.build_encoder(vocab)
    table = encoder.embed.table if parts.tie in ("auto", "all", "target") else None
    language_model_head = parts.build_vocabulary_head(vocab, table)
    return DecoderClassifier(encoder, parts.build_pool(), parts.build_text_label_head(outputs), language_model_head)


def build_span_classifier(parts: ModelParts, vocab: int, outputs: int) -> SpanClassifier:
    encoder, decoder = parts.build_sides(vocab)
    return SpanClassifier(encoder, parts.build_span_head(), decoder=decoder)


ASSEMBLIES: dict[str, Callable[[ModelParts, int, int], nn.Module]] = {
    "transduce": build_encoder_decoder,
    "language-model": build_language_model,
    "masked": build_masked_lm,
    "tag": build_token_classifier,
    "classify": build_sequence_classifier,
    CLASSIFY_WITH_LM: build_decoder_classifier,
    "answer": build_span_classifier,
    "encode": lambda parts, vocab, outputs: TextEncoder(parts.build_encoder(vocab), parts.build_pool()),
}
