"""One way from stacks to a whole model, whatever the stacks are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from headwise.blocks.embed import Embedding
from headwise.blocks.heads import VocabularyHead
from headwise.blocks.pool import Pool
from headwise.blocks.stack import Classifier, Decoder, Encoder, EncoderDecoder, LanguageModel, Stack, Tagger
from headwise.errors import UserError


@dataclass(frozen=True)
class Pieces:
    """What an architecture brings: tables to embeddings, its encoder and the stack of its decoder."""

    width: int
    embed: Callable[[nn.Embedding], Embedding]
    encoder: Callable[[Embedding], Encoder]
    decoder: Callable[[bool], Stack]  # with or without a memory to attend to
    head: int = 0  # how wide outputs are before they become words; 0: as wide as words
    tie: str = "auto"
    output_bias: bool = False
    start_id: int = 1
    pool: str = "mean"

    def words(self, count: int, table: nn.Embedding | None) -> VocabularyHead:
        """From the decoder's outputs to one of `count` words; tied to a table where one is given."""
        width = self.head or self.width
        if table is not None and width != self.width:
            raise UserError(f"tie: words of {self.width} channels cannot be outputs of {width}; use tie = 'none'")
        return VocabularyHead(width, count, table, self.output_bias)

    def reader(self, vocab: int) -> Encoder:
        """An encoder with a table of its own."""
        return self.encoder(self.embed(nn.Embedding(vocab, self.width)))


def assemble(task: str, pieces: Pieces, vocab: int, outputs: int = 0) -> Any:
    """The pieces as a model that does `task`."""
    return ASSEMBLIES[task](pieces, vocab, outputs)


def transducer(pieces: Pieces, vocab: int, outputs: int) -> EncoderDecoder:
    tie = pieces.tie if pieces.tie != "auto" else "target" if outputs else "all"
    if tie == "all" and outputs not in (0, vocab):
        raise UserError("tie: one table for source and target needs a shared vocabulary; use tie = 'target'")
    outputs = outputs or vocab
    target_table = nn.Embedding(outputs, pieces.width)
    source_table = target_table if tie == "all" else nn.Embedding(vocab, pieces.width)
    head = pieces.words(outputs, None if tie == "none" else target_table)
    return EncoderDecoder(
        pieces.encoder(pieces.embed(source_table)),
        Decoder(pieces.embed(target_table), pieces.decoder(True), head),
        start_id=pieces.start_id,
    )


def language_model(pieces: Pieces, vocab: int, outputs: int) -> LanguageModel:
    table = nn.Embedding(vocab, pieces.width)
    head = pieces.words(vocab, None if pieces.tie == "none" else table)
    return LanguageModel(Decoder(pieces.embed(table), pieces.decoder(False), head), start_id=pieces.start_id)


def tagger(pieces: Pieces, vocab: int, outputs: int) -> Tagger:
    return Tagger(pieces.reader(vocab), VocabularyHead(pieces.width, outputs or vocab, bias=True))


def classifier(pieces: Pieces, vocab: int, outputs: int) -> Classifier:
    head = VocabularyHead(pieces.width, outputs or vocab, bias=True)
    return Classifier(pieces.reader(vocab), Pool(pieces.pool), head)


ASSEMBLIES: dict[str, Callable[[Pieces, int, int], nn.Module]] = {
    "transduce": transducer,
    "language-model": language_model,
    "tag": tagger,
    "classify": classifier,
}
