"""GNMT, Google's Neural Machine Translation system (Wu et al. 2016), a deep residual LSTM with attention; and its form
with a mixture of experts between the layers (Shazeer et al. 2017, "Outrageously Large Neural Networks", appendix E).

Its length penalty and coverage penalty are settings of beam search, `decode.length_penalty` and
`decode.coverage_penalty`. Layers, width and dropout are those of the reference, github.com/tensorflow/nmt
(wmt16_gnmt_8_layer.json), whose attention is a normed form of the additive score. Refinement by reinforcement learning
(section 5) is not built.

DISCREPANCY: the paper connects encoder and decoder by attention alone, and here the decoder starts from zeros;
tensorflow/nmt copies the final states of the encoder (`initial_state = "memory"`), so that short sources are learnt
without alignments. It also has a context of zeros at the first step; here, by the paper's eq. 4, the initial state of
the lowest layer attends. Weights are initialised as in all recurrent parts here, not uniform in +-0.04.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from torch import nn

from headwise.blocks.attention.scores import AdditiveConfig
from headwise.blocks.bridge import CopyStates, ZeroStates
from headwise.blocks.experts import ExpertsConfig
from headwise.blocks.mixers.recurrent import Recurrent
from headwise.blocks.mixers.rnn_attention import ResidualLstmDecoder
from headwise.blocks.part import BuildContext
from headwise.blocks.residual import NoResidual, ResidualAdd, Wiring
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Part
from headwise.blocks.tables import AnyScore, AnyScoreMod
from headwise.models.entry import Check, Entry
from headwise.models.seq2seq import Seq2SeqConfig, build_source_attention, make_sizes


class GnmtConfig(Seq2SeqConfig):
    """A bidirectional layer and one-way layers above it in the encoder, one-way layers in the decoder; from the third
    layer on each has a residual connection.

    DISCREPANCY: the LSTMs of Shazeer et al. have 2048 channels, projected to 512, and all have residual connections;
    here layers have one width, and the two lowest of each side have none.
    """

    kind: Literal["gnmt"] = "gnmt"
    width: int = Field(1024, ge=1)
    depth: int = Field(8, ge=2)
    decoder_depth: int = Field(0, ge=0)  # 0: the depth
    initial_state: Literal["zeros", "memory"] = "zeros"  # of the decoder; memory: the final states of the encoder
    dropout: float = Field(0.2, ge=0, lt=1)
    score: AnyScore = AdditiveConfig()
    score_mods: tuple[AnyScoreMod, ...] = ()
    # a mixture of experts before the last layer of encoder and decoder
    experts: ExpertsConfig | Literal["none"] = "none"

    @model_validator(mode="after")
    def _check_depths(self) -> Self:
        if self.decoder_depth == 1:
            raise ValueError("decoder_depth = 1 is too few: a decoder has at least 2 layers")
        if self.initial_state == "memory" and self.decoder_depth > self.depth:
            raise ValueError(
                f"the encoder has final states for {self.depth} of {self.decoder_depth} decoder layers; raise depth, "
                'or use initial_state = "zeros"'
            )
        if self.experts != "none" and self.depth < 3:
            raise ValueError(f"experts stand before the third layer of the encoder or a later one, not in {self.depth}")
        return self

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> nn.Module:
        attention = build_source_attention(self.score, self.score_mods, self.width, self.width)
        layers = range(self.decoder_depth or self.depth)
        recurrences = [self.build_recurrence((self.width if n else self.table_width) + self.width) for n in layers]
        decoder = ResidualLstmDecoder(recurrences, attention, self.dropout, self._build_experts(causal=True))
        stack = Stack([NoResidual([decoder])])  # the part has the dropout of its layers
        bridge = CopyStates() if self.initial_state == "memory" else ZeroStates(len(recurrences))
        return self.connect(vocab, outputs, task, self._build_encoder(), bridge, stack, self.width)

    def _build_encoder(self) -> Stack:
        """One bidirectional layer, `depth - 1` layers of one direction."""
        lowest = Recurrent(
            2 * self.width, self.build_recurrence(self.table_width), self.build_recurrence(self.table_width)
        )
        second, *others = [
            Recurrent(self.width, self.build_recurrence(self.width * (1 if layer else 2)))
            for layer in range(self.depth - 1)
        ]
        experts = self._build_experts(causal=False)
        residual: list[nn.Module] = list(others)
        if experts is not None:
            residual.insert(len(residual) - 1, experts)
        return Stack([*self.chain_parts(lowest, second).layers, *map(self._wrap_residual, residual)])

    def _wrap_residual(self, part: nn.Module) -> Wiring:
        """A layer x + dropout(part(x)) without a norm."""
        return Wiring([part], nn.Identity, lambda: ResidualAdd(self.dropout))

    def _build_experts(self, causal: bool) -> Part | None:
        if self.experts == "none":
            return None
        part = self.experts.build(BuildContext(self.width, heads=1, hidden=4 * self.width, causal=causal))
        assert isinstance(part, Part)
        return part


MOE = {"depth": 3, "decoder_depth": 2}  # mixture of experts between the layers, Shazeer et al.

GNMT_ENTRY = Entry(
    name="gnmt",
    paper="Wu et al., Google's Neural Machine Translation System",
    year=2016,
    family="seq2seq",
    config=GnmtConfig,
    sizes={
        **make_sizes(small={"depth": 3, "width": 160}, tiny={"depth": 3}),
        "moe": {
            **MOE,
            "width": 512,
            "experts": {"count": 2048, "top_k": 4, "hidden": 2048, "drop": False, "noisy": True},
        },
        "moe-small": {
            **MOE,
            "width": 160,
            "dropout": 0.1,
            "experts": {"count": 8, "top_k": 2, "hidden": 320, "drop": False, "noisy": True},
        },
    },
    vocab=32_000,
    published={"base": "278M", "moe": "8.7B"},
    checks=(Check("its equations, unrolled in float64", "tests/parity/test_gnmt_unrolled.py::test_gnmt"),),
)
