"""ByteNet (Kalchbrenner et al. 2016, "Neural Machine Translation in Linear Time"): dilated convolutions over
characters, the decoder stacked on the encoder position by position, without attention and without recurrence.

    blocks/dilated_convolution.py   residual blocks, dynamic unfolding

Encoder and decoder have 30 blocks each, with dilations 1, 2, 4, 8, 16 six times; the language model is the decoder
alone, with multiplicative units.

DISCREPANCY: no code was released. Where the paper is not explicit, we choose: the decoder reads the sum of the target's
embedding and the encoder's output; a multiplicative block has one unit; the last layer's outputs have a norm and a ReLU
before the output layer; matrices are initialised Xavier-uniform, embeddings N(0, 1), output embeddings N(0, 1 / width).
The published 800 units are d here, so that layers have 1600 channels; github.com/dhpollack/bytenet.pytorch, which also
has six sets of dilations up to 16 and kernels of three, reads them as 2d. The paper's vocabularies, 323 and 296
characters, could not be checked against a second source.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator
from torch import nn

from headwise.blocks.dilated_convolution import (
    DilatedConvolution,
    MultiplicativeUnit,
    UnfoldingEncoder,
    UnfoldingStack,
)
from headwise.blocks.heads import OutputLayer
from headwise.blocks.norm import LayerNorm
from headwise.blocks.positions.base import NoPositions
from headwise.blocks.residual import PreNorm, ResidualAdd
from headwise.blocks.stack import Embedding, Stack
from headwise.blocks.token_embeddings import TokenTable
from headwise.config.base import PositiveInt
from headwise.models.assemble import ModelParts, VocabularyFields, assemble
from headwise.models.config import ModelConfig, Tie
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_xavier

BLOCKS = {"relu": DilatedConvolution, "multiplicative": MultiplicativeUnit}


class ByteNetConfig(VocabularyFields, ModelConfig):
    """Settings of ByteNet. The target's length is expected to be at most `length_ratio` * |source| + `extra_length`;
    a longer one is read and generated, too."""

    tasks = ("transduce", "language-model")
    kind: Literal["bytenet"] = "bytenet"
    width: int = Field(1600, ge=1)  # 2d
    hidden: int = Field(0, ge=0)  # d, channels inside a block; 0: half of the width
    depth: int = Field(30, ge=1)  # blocks of the encoder, and as many of the decoder
    kernel: int = Field(3, ge=1)  # tokens; odd in an encoder
    dilations: tuple[PositiveInt, ...] = (1, 2, 4, 8, 16)  # repeated over the blocks
    block: Literal["relu", "multiplicative"] = "relu"
    length_ratio: float = Field(1.2, ge=1, le=100)  # a
    extra_length: int = Field(0, ge=0, le=10_000)  # b
    dropout: float = Field(0.0, ge=0, lt=1)  # of embeddings and of the outputs of blocks
    tie: Tie = "none"
    output_bias: bool = True
    embeddings: str = ""  # a run or a word2vec text file to initialise the embedding table from

    @field_validator("dilations")
    @classmethod
    def _check_dilations(cls, dilations: tuple[int, ...]) -> tuple[int, ...]:
        if not dilations:
            raise ValueError("is empty; give it at least one distance of tokens, such as [1, 2, 4]")
        return dilations

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = ModelParts(
            self.width,
            self._embed,
            encoder=lambda embedding: UnfoldingEncoder(
                embedding, Stack(self._build_layers(causal=False)), self.length_ratio, self.extra_length
            ),
            decoder=self._build_decoder,
            tie=self.tie,
            token_embedding=self.token_embedding,
            output_layer=self.output_layer,
            output_bias=self.output_bias,
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_bytenet(model, self.width)
        return model

    def _embed(self, table: TokenTable) -> Embedding:
        return Embedding(table, NoPositions(), dropout=self.dropout)

    def _build_layers(self, causal: bool) -> list[nn.Module]:
        """The residual blocks of one side."""
        block, hidden = BLOCKS[self.block], self.hidden or max(1, self.width // 2)
        dilations = [self.dilations[index % len(self.dilations)] for index in range(self.depth)]
        return [
            PreNorm(
                [block(self.width, hidden, self.kernel, dilation, causal)],
                lambda: LayerNorm(self.width),
                lambda: ResidualAdd(self.dropout),
            )
            for dilation in dilations
        ]

    def _build_decoder(self, memory: bool) -> Stack:
        layers, final = self._build_layers(causal=True), nn.Sequential(LayerNorm(self.width), nn.ReLU())
        return UnfoldingStack(layers, final) if memory else Stack(layers, final)


def init_bytenet(model: nn.Module, width: int) -> None:
    """Matrices Xavier-uniform, biases zero, embeddings N(0, 1), output embeddings N(0, 1 / width)."""
    init_xavier(model)
    for module in model.modules():
        if isinstance(module, Embedding) and isinstance(module.table, nn.Embedding):
            nn.init.normal_(module.table.weight)
    for module in model.modules():
        if isinstance(module, OutputLayer) and isinstance(module.table, nn.Embedding):
            nn.init.normal_(module.table.weight, std=width**-0.5)


SIZES: dict[str, dict[str, Any]] = {
    "base": {},  # translation of characters
    "decoder": {"width": 1024, "block": "multiplicative", "dropout": 0.1},  # the language model, d = 512
    "small": {"width": 256, "depth": 10, "dropout": 0.1},
    "tiny": {"width": 32, "depth": 4, "dilations": (1, 2), "dropout": 0.1},
}

ENTRY = Entry(
    name="bytenet",
    paper="Kalchbrenner et al., Neural Machine Translation in Linear Time",
    year=2016,
    family="encoder-decoder",
    config=ByteNetConfig,
    sizes=SIZES,
    vocab=323,
    outputs=296,
    checks=(
        Check(
            "its blocks of torch.nn.Conv1d",
            "tests/parity/test_bytenet.py::test_logits_are_those_of_the_blocks_in_torch",
            "torch",
        ),
        Check(
            "its equations, unrolled in float64",
            "tests/parity/test_bytenet.py::test_logits_are_those_of_the_equations_token_by_token",
        ),
    ),
)
