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
    """What an architecture brings: tables to embeddings, and its stacks."""

    width: int
    embed: Callable[[nn.Embedding], Embedding]
    encoder: Callable[[], Stack]
    decoder: Callable[[bool], Stack]  # with or without a memory to attend to
    tie: str = "auto"
    output_bias: bool = False
    start_id: int = 1
    pool: str = "mean"


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
    head = VocabularyHead(pieces.width, outputs, None if tie == "none" else target_table, pieces.output_bias)
    return EncoderDecoder(
        Encoder(pieces.embed(source_table), pieces.encoder()),
        Decoder(pieces.embed(target_table), pieces.decoder(True), head),
        start_id=pieces.start_id,
    )


def language_model(pieces: Pieces, vocab: int, outputs: int) -> LanguageModel:
    table = nn.Embedding(vocab, pieces.width)
    head = VocabularyHead(pieces.width, vocab, None if pieces.tie == "none" else table, pieces.output_bias)
    return LanguageModel(Decoder(pieces.embed(table), pieces.decoder(False), head), start_id=pieces.start_id)


def tagger(pieces: Pieces, vocab: int, outputs: int) -> Tagger:
    encoder = Encoder(pieces.embed(nn.Embedding(vocab, pieces.width)), pieces.encoder())
    return Tagger(encoder, VocabularyHead(pieces.width, outputs or vocab, bias=True))


def classifier(pieces: Pieces, vocab: int, outputs: int) -> Classifier:
    encoder = Encoder(pieces.embed(nn.Embedding(vocab, pieces.width)), pieces.encoder())
    return Classifier(encoder, Pool(pieces.pool), VocabularyHead(pieces.width, outputs or vocab, bias=True))


ASSEMBLIES: dict[str, Callable[[Pieces, int, int], nn.Module]] = {
    "transduce": transducer,
    "language-model": language_model,
    "tag": tagger,
    "classify": classifier,
}
