"""One way from stacks to a whole model, whatever the stacks are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from headwise.blocks.dropout import make_dropout
from headwise.blocks.embed import Embedding
from headwise.blocks.heads import MLMTransform, Pooler, VocabularyHead
from headwise.blocks.norm import LayerNorm
from headwise.blocks.pool import Pool
from headwise.blocks.stack import Decoder, Encoder, Stack
from headwise.errors import UserError
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.language_model import LanguageModel
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.models.text_classifier import SequenceClassifier, SpanClassifier, TextEncoder, TokenClassifier

POOLERS = {"pooler": "tanh", "pooler_gelu": "gelu"}  # with the activation of their layer


def nothing() -> None:
    """No module."""


@dataclass(frozen=True)
class ModelParts:
    """What an architecture brings: tables to embeddings, its encoder and the stack of its decoder."""

    width: int  # of the vectors in tables
    embed: Callable[[nn.Embedding], Embedding]
    encoder: Callable[[Embedding], Encoder]
    decoder: Callable[[bool], Stack]  # with or without a memory to attend to
    inner: int = 0  # how wide the encoder's outputs are; 0: as wide as tables
    head: int = 0  # how wide outputs are before they become words; 0: as wide as tables
    before: Callable[[], nn.Module | None] = nothing  # what stands between the decoder's outputs and the words
    norm: Callable[[], nn.Module] | None = None  # of the head that guesses hidden words
    activation: str = "gelu"
    dropout: float = 0.0
    tie: str = "auto"
    output_bias: bool = False
    suppress_ids: tuple[int, ...] = ()
    start_id: int = 1
    pool: str = "mean"
    pairs: bool = False  # whether it can tell the texts of a pair apart
    opening: int | None = None  # what a decoder reads before its first token

    def build_vocabulary_head(self, count: int, table: nn.Embedding | None) -> VocabularyHead:
        """Build the output layer, with weight tying where a table is given: from the decoder's outputs to one of
        `count` words; tied to a table where one is given that fits them."""
        width = self.head or self.width
        if table is not None and width != self.width:
            if self.tie == "auto":
                return self.build_vocabulary_head(count, None)
            raise UserError(f"tie: words of {self.width} channels cannot be outputs of {width}; use tie = 'none'")
        return VocabularyHead(
            width, count, table, self.output_bias, before=self.before(), suppress_ids=self.suppress_ids
        )

    def build_encoder(self, vocab: int) -> Encoder:
        """An encoder with a table of its own."""
        return self.encoder(self.embed(nn.Embedding(vocab, self.width)))

    def build_label_head(self, count: int) -> VocabularyHead:
        """From the encoder's outputs to one of `count` labels."""
        return VocabularyHead(self.inner or self.width, count, bias=True)

    def build_pool(self) -> nn.Module:
        """From a vector for each token to one for the text."""
        if self.pool not in POOLERS:
            return Pool(self.pool)
        pooler = Pooler(self.inner or self.width, POOLERS[self.pool])
        return nn.Sequential(Pool("first"), pooler, make_dropout(self.dropout))


def assemble(task: str, pieces: ModelParts, vocab: int, outputs: int = 0) -> Any:
    """The pieces as a model that does `task`."""
    return ASSEMBLIES[task](pieces, vocab, outputs)


def build_encoder_decoder(pieces: ModelParts, vocab: int, outputs: int) -> EncoderDecoder:
    tie = pieces.tie if pieces.tie != "auto" else "target" if outputs else "all"
    if tie in ("all", "inputs") and outputs not in (0, vocab):
        raise UserError("tie: one table for source and target needs a shared vocabulary; use tie = 'target'")
    outputs = outputs or vocab
    target_table = nn.Embedding(outputs, pieces.width)
    source_table = target_table if tie in ("all", "inputs") else nn.Embedding(vocab, pieces.width)
    head = pieces.build_vocabulary_head(outputs, target_table if tie in ("all", "target") else None)
    return EncoderDecoder(
        pieces.encoder(pieces.embed(source_table)),
        Decoder(pieces.embed(target_table), pieces.decoder(True), head, pieces.opening),
        start_id=pieces.start_id,
    )


def build_language_model(pieces: ModelParts, vocab: int, outputs: int) -> LanguageModel:
    table = nn.Embedding(vocab, pieces.width)
    head = pieces.build_vocabulary_head(vocab, table if pieces.tie in ("auto", "all", "target") else None)
    return LanguageModel(Decoder(pieces.embed(table), pieces.decoder(False), head), start_id=pieces.start_id)


def build_masked_lm(pieces: ModelParts, vocab: int, outputs: int) -> MaskedLanguageModel:
    inner = pieces.inner or pieces.width
    table = nn.Embedding(vocab, pieces.width)
    norm = pieces.norm() if pieces.norm else LayerNorm(pieces.width)
    head = VocabularyHead(
        pieces.width,
        vocab,
        table if pieces.tie in ("auto", "all", "target") else None,
        bias=True,
        before=MLMTransform(inner, pieces.width, pieces.activation, norm),
    )
    order = nn.Sequential(Pool("first"), Pooler(inner), nn.Linear(inner, 2)) if pieces.pairs else nn.Identity()
    return MaskedLanguageModel(pieces.encoder(pieces.embed(table)), head, order)


def build_token_classifier(pieces: ModelParts, vocab: int, outputs: int) -> TokenClassifier:
    return TokenClassifier(pieces.build_encoder(vocab), pieces.build_label_head(outputs or vocab))


def build_sequence_classifier(pieces: ModelParts, vocab: int, outputs: int) -> SequenceClassifier:
    return SequenceClassifier(
        pieces.build_encoder(vocab), pieces.build_pool(), pieces.build_label_head(outputs or vocab)
    )


def build_span_classifier(pieces: ModelParts, vocab: int, outputs: int) -> SpanClassifier:
    return SpanClassifier(pieces.build_encoder(vocab), nn.Linear(pieces.inner or pieces.width, 2))


ASSEMBLIES: dict[str, Callable[[ModelParts, int, int], nn.Module]] = {
    "transduce": build_encoder_decoder,
    "language-model": build_language_model,
    "masked": build_masked_lm,
    "tag": build_token_classifier,
    "classify": build_sequence_classifier,
    "answer": build_span_classifier,
    "encode": lambda pieces, vocab, outputs: TextEncoder(pieces.build_encoder(vocab), pieces.build_pool()),
}
