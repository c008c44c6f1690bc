"""Recurrent networks: Elman (1990), LSTM (Hochreiter and Schmidhuber 1997), GRU (Cho et al. 2014).

Stacked layers without residual connections, as language models (Mikolov et al. 2010), for token classification and for
sequence classification. Encoder-decoders of two recurrent networks are in `models/seq2seq.py`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.heads import OutputLayer
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.base import NoPositions
from headwise.blocks.residual import NoResidualConfig, ResidualAdd
from headwise.blocks.stack import Embedding, Encoder, Stack
from headwise.blocks.tables import PARTS, AnyNorm, AnyWiring
from headwise.blocks.token_embeddings import TokenTable
from headwise.errors import UserError
from headwise.models.assemble import ModelParts, VocabularyFields, assemble
from headwise.models.config import ModelConfig, PoolKind, Tie
from headwise.models.entry import Check, Entry


class RecurrentModelConfig(VocabularyFields, ModelConfig):
    """`depth` recurrent layers. If bidirectional, each direction has half of the `hidden` channels."""

    tasks = ("language-model", "tag", "classify")
    width: int = Field(256, ge=1)
    hidden: int = Field(0, ge=0)  # width of a layer's state; 0: the width
    depth: int = Field(2, ge=1)
    bidirectional: bool = False
    dropout: float = Field(0.2, ge=0, lt=1)
    wiring: AnyWiring = NoResidualConfig()
    norm: AnyNorm = LayerNormConfig()  # of wirings that have a norm
    tie: Tie = "auto"
    output_bias: bool = True
    pool: PoolKind = "mean"  # of a classifier
    embeddings: str = ""  # a run or a word2vec text file to initialise the embedding table from

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        def embed(table: TokenTable) -> Embedding:
            return Embedding(table, NoPositions(), dropout=self.dropout)

        parts = ModelParts(
            self.width,
            embed,
            encoder=lambda embedding: Encoder(embedding, self._stack(causal=False)),
            decoder=lambda memory: self._stack(causal=True),
            tie=self.tie,
            token_embedding=self.token_embedding,
            output_layer=self.output_layer,
            output_bias=self.output_bias,
            pool=self.pool,
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_embeddings(model, self.width)
        return model

    def _stack(self, causal: bool) -> Stack:
        if self.wiring.kind == "reversible":
            raise UserError("wiring: recurrent layers cannot be reversible; use none, pre or post")
        hidden = self.hidden or self.width
        if self.bidirectional:
            if causal:
                raise UserError("bidirectional: a language model must not see the future; use bidirectional = false")
            hidden //= 2
        part: Any = PARTS[self.cell].model_validate({"hidden": hidden, "bidirectional": self.bidirectional})
        build_ctx = BuildContext(self.width, heads=1, hidden=hidden, causal=causal)
        wiring = self.wiring.build()
        layers = [
            wiring([part.build(build_ctx)], lambda: self.norm.build(self.width), lambda: ResidualAdd(self.dropout))
            for _ in range(self.depth)
        ]
        return Stack(layers, wiring.build_final_norm(lambda: self.norm.build(self.width)))

    @property
    def cell(self) -> str:
        """Kind of its recurrent part."""
        return self.kind


class RnnModelConfig(RecurrentModelConfig):
    kind: Literal["rnn"] = "rnn"


class LstmModelConfig(RecurrentModelConfig):
    kind: Literal["lstm"] = "lstm"


class GruModelConfig(RecurrentModelConfig):
    kind: Literal["gru"] = "gru"
    cho: bool = False  # the equations as published, instead of torch's

    @property
    def cell(self) -> str:
        return "gru_cho" if self.cho else "gru"


def init_embeddings(model: nn.Module, width: int, input_std: float = 0.0) -> None:
    """Embeddings N(0, 1/width), so that logits are small at first; those of inputs N(0, input_std^2) if it is not 0 and
    they are not tied to the output layer. Recurrent parts initialise themselves."""
    outputs = {id(module.table) for module in model.modules() if isinstance(module, OutputLayer)}
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            std = input_std if input_std and id(module) not in outputs else width**-0.5
            nn.init.normal_(module.weight, std=std)


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": {"width": 650, "dropout": 0.5},
    "tiny": {"width": 16, "dropout": 0.1},
}

RNN_ENTRY = Entry(
    name="rnn",
    paper="Elman, Finding Structure in Time; Mikolov et al. 2010 (language model)",
    year=1990,
    family="recurrent",
    config=RnnModelConfig,
    sizes=SIZES,
    vocab=10_000,
    checks=(Check("torch.nn.RNN", "tests/parity/test_recurrent_torch.py::test_both_directions", "torch"),),
)

LSTM_ENTRY = Entry(
    name="lstm",
    paper="Hochreiter and Schmidhuber, Long Short-Term Memory; Zaremba et al. 2014 (large)",
    year=1997,
    family="recurrent",
    config=LstmModelConfig,
    sizes=SIZES,
    vocab=10_000,
    checks=(Check("torch.nn.LSTM", "tests/parity/test_recurrent_torch.py::test_both_directions", "torch"),),
)

GRU_ENTRY = Entry(
    name="gru",
    paper="Cho et al., Learning Phrase Representations using RNN Encoder-Decoder",
    year=2014,
    family="recurrent",
    config=GruModelConfig,
    sizes=SIZES,
    vocab=10_000,
    checks=(Check("torch.nn.GRU", "tests/parity/test_recurrent_torch.py::test_both_directions", "torch"),),
)
