"""Encoder-decoders of two recurrent networks, which differ in what the decoder gets from the encoder.

    sutskever  its last states (Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks")
    cho        one summary vector (Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder")
    bahdanau   attention before each step (Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to
               Align and Translate")
    luong      attention after each step (Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine
               Translation")

DISCREPANCY: weights are initialised as in all recurrent parts here, not uniform in +-0.08 or +-0.1.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import Field
from torch import nn

from headwise.blocks.attention.scores import AdditiveConfig, GeneralConfig
from headwise.blocks.bridge import BackwardStateBridge, CopyStates, RecurrentEncoder, SummaryBridge, ZeroStates
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
from headwise.blocks.stack import Embedding, Stack
from headwise.blocks.tables import PARTS, AnyScore, AnyScoreMod
from headwise.blocks.token_embeddings import TokenTable
from headwise.models.assemble import ModelParts, VocabularyFields, assemble
from headwise.models.config import ModelConfig, Tie
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.entry import Check, Entry
from headwise.models.recurrent import init_embeddings

Cell = Literal["lstm", "gru", "gru_cho"]


class Seq2SeqConfig(VocabularyFields, ModelConfig):
    """Settings of all four. As published, source, target and output have separate embedding tables."""

    width: int = Field(1000, ge=1)
    depth: int = Field(1, ge=1)  # layers of the encoder, and as many of the decoder
    embedding_width: int = Field(0, ge=0)  # 0: the width
    embedding_std: float = Field(0.0, ge=0)  # of the initial input embeddings; 0: 1 / sqrt(width)
    dropout: float = Field(0.0, ge=0, lt=1)  # on embeddings and on the output of each layer
    cell: Cell = "lstm"
    reverse: bool = False  # read the source in reverse
    tie: Tie = "none"
    output_bias: bool = True
    embeddings: str = ""  # a run or a word2vec text file to initialise the embedding table from

    @property
    def table_width(self) -> int:
        """Width of the embedding tables."""
        return self.embedding_width or self.width

    def connect(
        self, vocab: int, outputs: int, task: str, encoder: Stack, bridge: nn.Module, decoder: Stack, head: int
    ) -> EncoderDecoder:
        """Assemble the model; `head` is the width of the output layer's inputs."""

        def embed(table: TokenTable) -> Embedding:
            return Embedding(table, NoPositions(), dropout=self.dropout)

        parts = ModelParts(
            self.table_width,
            embed,
            encoder=lambda embedding: RecurrentEncoder(embedding, encoder, bridge, self.reverse),
            decoder=lambda memory: decoder,
            head_input_width=head,
            tie=self.tie,
            token_embedding=self.token_embedding,
            output_layer=self.output_layer,
            output_bias=self.output_bias,
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_embeddings(model, self.table_width, self.embedding_std)
        return cast("EncoderDecoder", model)

    def build_recurrence(self, inputs: int) -> Recurrence:
        """One recurrent layer of one direction."""
        return cast(RecurrentConfig, PARTS[self.cell]()).build_direction(inputs, self.width)

    def build_recurrences(self, inputs: int) -> list[Recurrence]:
        """Recurrent layers of one direction, the lowest with `inputs` channels."""
        return [self.build_recurrence(self.width if layer else inputs) for layer in range(self.depth)]

    def chain_parts(self, *parts: nn.Module) -> Stack:
        """A stack with one layer for each part, without residual connections."""
        return Stack([NoResidual([part], add=lambda: ResidualAdd(self.dropout)) for part in parts])

    def build_recurrent_parts(self, initial_state: str = "zeros") -> list[nn.Module]:
        """Recurrent parts of one direction over embeddings; `initial_state` as in their config."""
        return [
            Recurrent(self.width, recurrence, initial_state=initial_state)
            for recurrence in self.build_recurrences(self.table_width)
        ]


class SutskeverConfig(Seq2SeqConfig):
    """The last states of the encoder's layers are the initial states of the decoder's; the source is reversed."""

    kind: Literal["sutskever"] = "sutskever"
    depth: int = Field(4, ge=1)
    reverse: bool = True

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> nn.Module:
        encoder, decoder = (
            self.chain_parts(*self.build_recurrent_parts()),
            self.chain_parts(*self.build_recurrent_parts(initial_state="memory")),
        )
        return self.connect(vocab, outputs, task, encoder, CopyStates(), decoder, self.width)


class ChoConfig(Seq2SeqConfig):
    """A summary vector c of the source is an input of every decoder step and of every output.

    DISCREPANCY: in the paper's appendix the reset gate acts on the summary's part of the new state, too, and the output
    matrix is a product of two; here c is an input like the previous token, and the output layer follows the maxout
    units.
    """

    kind: Literal["cho"] = "cho"
    embedding_width: int = Field(100, ge=0)
    cell: Cell = "gru_cho"
    maxout: int = Field(500, ge=1)  # maxout units before the output layer, each the larger of two

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> nn.Module:
        encoder = self.chain_parts(*self.build_recurrent_parts())
        recurrences = self.build_recurrences(self.table_width + self.width)
        bridge = SummaryBridge(recurrences[0].state_width, self.width, self.depth)
        output = Maxout(self.width + self.table_width + self.width, self.maxout)
        decoder = self.chain_parts(ChoDecoder(recurrences, output, self.dropout))
        return self.connect(vocab, outputs, task, encoder, bridge, decoder, self.maxout)


class BahdanauConfig(Seq2SeqConfig):
    """RNNsearch: a bidirectional encoder; before each step the decoder's last state attends to its annotations.

    DISCREPANCY: the appendix prints s_{i-1} in the deep output, the text s_i; here it is s_i.
    """

    kind: Literal["bahdanau"] = "bahdanau"
    embedding_width: int = Field(620, ge=0)
    cell: Cell = "gru_cho"
    score: AnyScore = AdditiveConfig()
    score_mods: tuple[AnyScoreMod, ...] = ()
    maxout: int = Field(500, ge=1)  # maxout units before the output layer, each the larger of two

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> nn.Module:
        annotation_width = 2 * self.width
        inputs = [annotation_width if layer else self.table_width for layer in range(self.depth)]
        encoder = self.chain_parts(
            *(
                Recurrent(annotation_width, self.build_recurrence(count), self.build_recurrence(count))
                for count in inputs
            )
        )
        recurrences = self.build_recurrences(self.table_width + annotation_width)
        bridge = BackwardStateBridge(recurrences[0].state_width, self.depth)
        output = Maxout(self.width + self.table_width + annotation_width, self.maxout)
        attention = build_source_attention(self.score, self.score_mods, self.width, annotation_width)
        decoder = self.chain_parts(BahdanauDecoder(recurrences, attention, output, self.dropout))
        return self.connect(vocab, outputs, task, encoder, bridge, decoder, self.maxout)


class LuongConfig(Seq2SeqConfig):
    """Stacked layers whose top layer attends to the source: global attention, or local with the score mod "local".

    Without `input_feeding` of the last attentional state a step does not depend on the last attention, and the whole
    target is read in one pass.
    """

    kind: Literal["luong"] = "luong"
    depth: int = Field(4, ge=1)
    dropout: float = Field(0.2, ge=0, lt=1)
    reverse: bool = True
    attention: bool = True
    score: AnyScore = GeneralConfig()  # Luong's concat is "additive"
    score_mods: tuple[AnyScoreMod, ...] = ()
    input_feeding: bool = True
    initial_state: Literal["zeros", "memory"] = "memory"  # of the decoder; memory: the final states of the encoder

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> nn.Module:
        encoder, decoder = self.chain_parts(*self.build_recurrent_parts()), self.chain_parts(*self._decoder_parts())
        bridge = CopyStates() if self.initial_state == "memory" else ZeroStates(self.depth)
        return self.connect(vocab, outputs, task, encoder, bridge, decoder, self.width)

    def _decoder_parts(self) -> list[nn.Module]:
        """The decoder's parts."""
        if not self.attention:
            return self.build_recurrent_parts(initial_state="memory")
        attend = LuongDecoder(
            self.width, self.width, build_source_attention(self.score, self.score_mods, self.width, self.width)
        )
        if not self.input_feeding:
            return [*self.build_recurrent_parts(initial_state="memory"), attend]
        return [InputFeedingDecoder(self.build_recurrences(self.table_width + self.width), attend, self.dropout)]


def build_source_attention(score: Any, score_mods: tuple[Any, ...], width: int, memory_width: int) -> SourceAttention:
    """Attention from decoder states of `width` to annotations of `memory_width`."""
    build_ctx = BuildContext(width, heads=1, hidden=width, causal=True, memory_width=memory_width)
    return SourceAttention(score.build(width, memory_width, 1), [mod.build(build_ctx, width) for mod in score_mods])


def make_sizes(small: dict[str, Any], tiny: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The published size, a small one for training on a laptop, and a tiny one for tests."""
    return {
        "base": {},
        "small": {"width": 256, "dropout": 0.1, **small},
        "tiny": {"width": 32, "dropout": 0.1, **tiny},
    }


STACKED = make_sizes(small={"depth": 2}, tiny={"depth": 2})  # sutskever and luong
DEEP_OUTPUT = make_sizes(
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
