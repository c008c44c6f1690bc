"""Deep-Att (Zhou et al. 2016, "Deep Recurrent Models with Fast-Forward Connections for Neural Machine Translation"): an
attention model of deep LSTMs with linear connections between the inputs of their gates.

    blocks/mixers/fast_forward.py   its layers, their equations

Its PosUnk, which replaces unknown words by the aligned source word or its translation, is `decode.replace_unknown`.

DISCREPANCY: no code was released for it. The decoder starts from zeros; outputs of its highest layer have dropout, too;
weights are initialised as in all recurrent parts here. Deep-ED, the form without attention, is not built. The paper's
widths and depths were checked, its vocabularies could not be: the catalogue counts parameters with 80,000 words.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from headwise.blocks.attention.scores import AdditiveConfig
from headwise.blocks.bridge import ZeroStates
from headwise.blocks.mixers.fast_forward import (
    FastForwardColumn,
    FastForwardDecoder,
    InterleavedEncoder,
    build_fast_forward,
)
from headwise.blocks.residual import NoResidual
from headwise.blocks.stack import Stack
from headwise.blocks.tables import AnyScore, AnyScoreMod
from headwise.models.entry import Check, Entry
from headwise.models.seq2seq import Seq2SeqConfig, build_source_attention, make_sizes


class DeepAttConfig(Seq2SeqConfig):
    """Two columns of `depth` layers read the source, one of `decoder_depth` layers writes the target."""

    kind: Literal["deep-att"] = "deep-att"
    width: int = Field(512, ge=1)
    embedding_width: int = Field(256, ge=0)
    depth: int = Field(9, ge=1)  # layers of each column of the encoder
    decoder_depth: int = Field(7, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)  # of embeddings and of the outputs of LSTMs
    cell: Literal["lstm"] = "lstm"
    score: AnyScore = AdditiveConfig()
    score_mods: tuple[AnyScoreMod, ...] = ()

    @property
    def annotation_width(self) -> int:
        """A quarter of the channels of [h; h'; f; f']."""
        return max(1, 10 * self.width // 4)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> nn.Module:
        columns = [
            FastForwardColumn(build_fast_forward(self.table_width, self.width, self.depth), reverse, self.dropout)
            for reverse in (False, True)
        ]
        attention = build_source_attention(self.score, self.score_mods, self.width, self.annotation_width)
        layers = build_fast_forward(self.table_width + self.annotation_width, self.width, self.decoder_depth)
        # without dropout of their own: the parts have that of their layers
        encoder = Stack([NoResidual([InterleavedEncoder(columns, self.annotation_width)])])
        decoder = Stack([NoResidual([FastForwardDecoder(layers, attention, self.dropout)])])
        return self.connect(vocab, outputs, task, encoder, ZeroStates(self.decoder_depth), decoder, self.width)


ENTRY = Entry(
    name="deep-att",
    paper="Zhou et al., Deep Recurrent Models with Fast-Forward Connections for Neural Machine Translation",
    year=2016,
    family="seq2seq",
    config=DeepAttConfig,
    sizes=make_sizes(
        small={"depth": 3, "decoder_depth": 2, "width": 128, "embedding_width": 128},
        tiny={"depth": 3, "decoder_depth": 2, "embedding_width": 24},
    ),
    vocab=80_000,
    checks=(Check("its equations, unrolled in float64", "tests/parity/test_deep_att_unrolled.py::test_deep_att"),),
)
