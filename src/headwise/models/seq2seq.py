"""Encoder-decoders before the Transformer: two recurrent networks, and what goes from one to the other.

    sutskever  the last states (Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks")
    cho        one summary (Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder")
    bahdanau   what the decoder looks for before each step (Bahdanau et al. 2015, "Neural Machine Translation by Jointly
               Learning to Align and Translate")
    luong      what it looks at after each step (Luong et al. 2015, "Effective Approaches to Attention-based Neural
               Machine Translation")

DISCREPANCY: weights begin as recurrent parts do everywhere here, not uniform in +-0.08 or +-0.1.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import Field
from torch import nn

from headwise.blocks.attention.scores import AdditiveConfig, GeneralConfig
from headwise.blocks.bridge import FromFirstWord, FromSummary, RecurrentEncoder, SameStates
from headwise.blocks.embed import Embedding
from headwise.blocks.mixers.recurrent import Recurrence, Recurrent, RecurrentConfig
from headwise.blocks.mixers.rnn_attention import (
    BahdanauDecoder,
    ChoDecoder,
    InputFeedingDecoder,
    LuongDecoder,
    Maxout,
    SourceAttention,
)
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.base import NoPositions
from headwise.blocks.residual import NoResidual, ResidualAdd
from headwise.blocks.stack import Stack
from headwise.blocks.tables import PARTS, AnyScore, AnyScoreMod
from headwise.models.assemble import ModelParts, assemble
from headwise.models.config import ModelConfig, Tie
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.entry import Check, Entry
from headwise.models.recurrent import initialise

Cell = Literal["lstm", "gru", "gru_cho"]


class Seq2SeqConfig(ModelConfig):
    """What all four have in common. As published, source, target and output have tables of their own."""

    width: int = Field(1000, ge=1)
    depth: int = Field(1, ge=1)  # layers of the encoder, and as many of the decoder
    embedding_width: int = Field(0, ge=0)  # 0: the width
    dropout: float = Field(0.0, ge=0, lt=1)  # on embeddings and on the output of each layer
    cell: Cell = "lstm"
    reverse: bool = False  # whether the source is read from its end
    tie: Tie = "none"
    output_bias: bool = True
    embeddings: str = ""  # a run or a word2vec text file, whose vectors its words begin with

    @property
    def words(self) -> int:
        """How wide a word's vector is."""
        return self.embedding_width or self.width

    def connect(
        self, vocab: int, outputs: int, task: str, encoder: Stack, bridge: nn.Module, decoder: Stack, head: int
    ) -> EncoderDecoder:
        """The stacks as a model whose outputs are `head` wide before they become words."""

        def embed(table: nn.Embedding) -> Embedding:
            return Embedding(table, NoPositions(), dropout=self.dropout)

        pieces = ModelParts(
            self.words,
            embed,
            encoder=lambda embedding: RecurrentEncoder(embedding, encoder, bridge, self.reverse),
            decoder=lambda memory: decoder,
            head=head,
            tie=self.tie,
            output_bias=self.output_bias,
        )
        model = assemble(self.resolve_task(task), pieces, vocab, outputs)
        initialise(model, self.words)
        return cast("EncoderDecoder", model)

    def recurrence(self, inputs: int) -> Recurrence:
        """One layer of one direction."""
        return cast(RecurrentConfig, PARTS[self.cell]()).direction(inputs, self.width)

    def recurrences(self, inputs: int) -> list[Recurrence]:
        """One for each layer, the lowest with `inputs` channels."""
        return [self.recurrence(self.width if layer else inputs) for layer in range(self.depth)]

    def stack(self, *parts: nn.Module) -> Stack:
        """Parts one on the other, each a layer of its own."""
        return Stack([NoResidual([part], add=lambda: ResidualAdd(self.dropout)) for part in parts])

    def recurrent(self, begin: str = "zeros") -> list[nn.Module]:
        """Layers of one direction over words."""
        return [Recurrent(self.width, recurrence, begin=begin) for recurrence in self.recurrences(self.words)]


class SutskeverConfig(Seq2SeqConfig):
    """The last states of the encoder's layers begin those of the decoder, after a source read from its end."""

    kind: Literal["sutskever"] = "sutskever"
    depth: int = Field(4, ge=1)
    reverse: bool = True

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> nn.Module:
        encoder, decoder = self.stack(*self.recurrent()), self.stack(*self.recurrent(begin="memory"))
        return self.connect(vocab, outputs, task, encoder, SameStates(), decoder, self.width)


class ChoConfig(Seq2SeqConfig):
    """A summary c of the source enters every step and every output of the decoder.

    DISCREPANCY: in the paper's appendix the reset gate acts on the summary's part of the new state, too, and the output
    matrix is a product of two; here c is an input like the word before, and the maxout units meet the words directly.
    """

    kind: Literal["cho"] = "cho"
    embedding_width: int = Field(100, ge=0)
    cell: Cell = "gru_cho"
    maxout: int = Field(500, ge=1)  # units of the output, each the larger of two

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> nn.Module:
        encoder = self.stack(*self.recurrent())
        recurrences = self.recurrences(self.words + self.width)
        bridge = FromSummary(recurrences[0].state_width, self.width, self.depth)
        output = Maxout(self.width + self.words + self.width, self.maxout)
        decoder = self.stack(ChoDecoder(recurrences, output, self.dropout))
        return self.connect(vocab, outputs, task, encoder, bridge, decoder, self.maxout)


class BahdanauConfig(Seq2SeqConfig):
    """RNNsearch: annotations from both directions, searched from the last state before each step.

    DISCREPANCY: the appendix prints s_{i-1} in the deep output, the text s_i; here it is s_i.
    """

    kind: Literal["bahdanau"] = "bahdanau"
    embedding_width: int = Field(620, ge=0)
    cell: Cell = "gru_cho"
    score: AnyScore = AdditiveConfig()
    score_mods: tuple[AnyScoreMod, ...] = ()
    maxout: int = Field(500, ge=1)  # units of the output, each the larger of two

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> nn.Module:
        seen = 2 * self.width
        inputs = [seen if layer else self.words for layer in range(self.depth)]
        encoder = self.stack(*(Recurrent(seen, self.recurrence(each), self.recurrence(each)) for each in inputs))
        recurrences = self.recurrences(self.words + seen)
        bridge = FromFirstWord(recurrences[0].state_width, self.depth)
        output = Maxout(self.width + self.words + seen, self.maxout)
        look = glimpse(self.score, self.score_mods, self.width, seen)
        decoder = self.stack(BahdanauDecoder(recurrences, look, output, self.dropout))
        return self.connect(vocab, outputs, task, encoder, bridge, decoder, self.maxout)


class LuongConfig(Seq2SeqConfig):
    """Stacked layers whose top looks at the source: globally, or through the term "local".

    Without `input_feeding` of what was made of the last look nothing waits for it, and whole targets are read at once.
    """

    kind: Literal["luong"] = "luong"
    depth: int = Field(4, ge=1)
    dropout: float = Field(0.2, ge=0, lt=1)
    reverse: bool = True
    attention: bool = True
    score: AnyScore = GeneralConfig()  # Luong's concat is "additive"
    score_mods: tuple[AnyScoreMod, ...] = ()
    input_feeding: bool = True

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> nn.Module:
        encoder, decoder = self.stack(*self.recurrent()), self.stack(*self._writing())
        return self.connect(vocab, outputs, task, encoder, SameStates(), decoder, self.width)

    def _writing(self) -> list[nn.Module]:
        """The decoder's parts."""
        if not self.attention:
            return self.recurrent(begin="memory")
        attend = LuongDecoder(self.width, self.width, glimpse(self.score, self.score_mods, self.width, self.width))
        if not self.input_feeding:
            return [*self.recurrent(begin="memory"), attend]
        return [InputFeedingDecoder(self.recurrences(self.words + self.width), attend, self.dropout)]


def glimpse(score: Any, score_mods: tuple[Any, ...], width: int, memory_width: int) -> SourceAttention:
    """A look from states of `width` at annotations of `memory_width`."""
    site = BuildContext(width, heads=1, hidden=width, causal=True, memory_width=memory_width)
    return SourceAttention(score.build(width, memory_width, 1), [mod.build(site, width) for mod in score_mods])


def sizes(small: dict[str, Any], tiny: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The published size, one for a dictionary on a laptop, and one for tests."""
    return {
        "base": {},
        "small": {"width": 256, "dropout": 0.1, **small},
        "tiny": {"width": 32, "dropout": 0.1, **tiny},
    }


STACKED = sizes(small={"depth": 2}, tiny={"depth": 2})  # sutskever and luong
DEEP_OUTPUT = sizes(
    small={"embedding_width": 128, "maxout": 128}, tiny={"embedding_width": 24, "maxout": 16}
)  # cho and bahdanau

SUTSKEVER_ENTRY = Entry(
    name="sutskever",
    paper="Sutskever et al., Sequence to Sequence Learning with Neural Networks",
    year=2014,
    family="seq2seq",
    config=SutskeverConfig,
    sizes=STACKED,
    vocab=160_000,
    outputs=80_000,
    published={"base": "384M"},
    checks=(Check("its equations, unrolled in float64", "tests/parity/test_seq2seq_unrolled.py::test_sutskever"),),
)

CHO_ENTRY = Entry(
    name="cho",
    paper="Cho et al., Learning Phrase Representations using RNN Encoder-Decoder",
    year=2014,
    family="seq2seq",
    config=ChoConfig,
    sizes=DEEP_OUTPUT,
    vocab=15_000,
    checks=(Check("its equations, unrolled in float64", "tests/parity/test_seq2seq_unrolled.py::test_cho"),),
)

BAHDANAU_ENTRY = Entry(
    name="bahdanau",
    paper="Bahdanau et al., Neural Machine Translation by Jointly Learning to Align and Translate",
    year=2015,
    family="seq2seq",
    config=BahdanauConfig,
    sizes=DEEP_OUTPUT,
    vocab=30_000,
    checks=(Check("its equations, unrolled in float64", "tests/parity/test_seq2seq_unrolled.py::test_bahdanau"),),
)

LUONG_ENTRY = Entry(
    name="luong",
    paper="Luong et al., Effective Approaches to Attention-based Neural Machine Translation",
    year=2015,
    family="seq2seq",
    config=LuongConfig,
    sizes=STACKED,
    vocab=50_000,
    checks=(Check("its equations, unrolled in float64", "tests/parity/test_seq2seq_unrolled.py::test_luong"),),
)
