"""ConvS2S (Gehring et al. 2017, "Convolutional Sequence to Sequence Learning"): an encoder-decoder of gated
convolutions with attention in every decoder layer, without recurrence.

    blocks/gated_convolution.py   its layers, their equations, the encoder's memory
    blocks/weight_norm.py         weight normalisation of all linear layers and convolutions

The sizes `en-ro`, `en-de` and `en-fr` are those of fairseq's `fconv`, by the authors, with the paper's 40,000 subwords;
`small` is fairseq's for IWSLT'14.

DISCREPANCY: comments in fairseq's first version give `en-de` 10 layers of 512 and 3 of 768 channels, its code 9 of 512
and 4 of 1024; likewise for `en-fr`. The code is followed here. Embeddings have 512 channels in the paper, 768 in the
code of these two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, field_validator
from torch import nn

from headwise.blocks.gated_convolution import (
    GatedConvolution,
    GatedConvolutionEncoder,
    GatedConvolutionLayer,
    GatedConvolutionStack,
    MultiStepAttention,
)
from headwise.blocks.heads import OutputLayer
from headwise.blocks.output_layers import WeightNormSoftmax, WeightNormSoftmaxConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.absolute import LearnedPositions, LearnedPositionsConfig
from headwise.blocks.residual import make_dropout
from headwise.blocks.stack import Embedding
from headwise.blocks.tables import AnyOutputLayer, AnyPosition
from headwise.blocks.token_embeddings import TokenTable
from headwise.blocks.weight_norm import WeightNormLinear, init_weight_norm
from headwise.config.base import Config
from headwise.errors import UserError
from headwise.models.assemble import ModelParts, VocabularyFields, assemble
from headwise.models.config import MAX_DEPTH, ModelConfig, Tie
from headwise.models.entry import Check, Entry

EMBEDDING_STD = 0.1  # of token and position embeddings


class ConvolutionLayers(Config):
    """`depth` layers of one width and kernel."""

    width: int = Field(512, ge=1)
    kernel: int = Field(3, ge=1)  # tokens; odd in an encoder
    depth: int = Field(1, ge=1, le=MAX_DEPTH)


def list_layers(*groups: tuple[int, int, int]) -> tuple[ConvolutionLayers, ...]:
    """Layers of (width, kernel, depth)."""
    return tuple(ConvolutionLayers(width=width, kernel=kernel, depth=depth) for width, kernel, depth in groups)


EN_DE = list_layers((512, 3, 9), (1024, 3, 4), (2048, 1, 2))
EN_FR = list_layers((512, 3, 6), (768, 3, 4), (1024, 3, 3), (2048, 1, 1), (4096, 1, 1))


class ConvS2SConfig(VocabularyFields, ModelConfig):
    """Settings of ConvS2S. As published, source, target and output have separate embedding tables."""

    kind: Literal["convs2s"] = "convs2s"
    encoder: tuple[ConvolutionLayers, ...] = EN_DE  # from the lowest layers to the highest
    decoder: tuple[ConvolutionLayers, ...] = EN_DE
    embedding_width: int = Field(768, ge=1)  # of both sides, and of the encoder's outputs
    output_width: int = Field(512, ge=1)  # of the output layer's inputs
    positions: AnyPosition = LearnedPositionsConfig(max_length=1024)
    dropout: float = Field(0.1, ge=0, lt=1)  # of embeddings, inputs of convolutions and inputs of the output layer
    tie: Tie = "none"
    output_layer: AnyOutputLayer = WeightNormSoftmaxConfig()
    output_bias: bool = True
    embeddings: str = ""  # a run or a word2vec text file to initialise the embedding table from

    @field_validator("encoder", "decoder")
    @classmethod
    def _check_layers(cls, groups: tuple[ConvolutionLayers, ...]) -> tuple[ConvolutionLayers, ...]:
        if not groups:
            raise ValueError("has no layers; give it at least one, such as [{width = 256, kernel = 3, depth = 4}]")
        return groups

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        if self.positions.make_score_mod_builder(BuildContext(self.embedding_width, 1, self.embedding_width))(1, 2):
            raise UserError(
                f"positions: '{self.positions.kind}' changes the scores of self-attention, which ConvS2S does not "
                "have; use learned, sinusoid or none"
            )
        parts = ModelParts(
            self.embedding_width,
            self._embed,
            encoder=lambda embedding: GatedConvolutionEncoder(
                embedding, self._build_stack(self.encoder, causal=False), sum(group.depth for group in self.decoder)
            ),
            decoder=lambda memory: self._build_stack(self.decoder, causal=True),
            head_input_width=self.output_width,
            tie=self.tie,
            token_embedding=self.token_embedding,
            output_layer=self.output_layer,
            output_bias=self.output_bias,
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_convs2s(model, self.dropout)
        return model

    def _embed(self, table: TokenTable) -> Embedding:
        return self.positions.build_embedding(table, self.embedding_width, dropout=self.dropout)

    def _build_stack(self, groups: Sequence[ConvolutionLayers], causal: bool) -> GatedConvolutionStack:
        """The layers of one side, with the projections before and after them; in a decoder (`causal`) each layer has
        attention, and dropout follows the last projection."""
        sizes = [(group.width, group.kernel) for group in groups for _ in range(group.depth)]
        layers, inputs = [], sizes[0][0]
        first = WeightNormLinear(self.embedding_width, inputs, variance=1 - self.dropout)
        for outputs, kernel in sizes:
            parts = [GatedConvolution(inputs, outputs, kernel, causal, self.dropout)]
            attention = [MultiStepAttention(outputs, self.embedding_width)] if causal else []
            layers.append(GatedConvolutionLayer(inputs, outputs, [*parts, *attention]))
            inputs = outputs
        final: nn.Module = WeightNormLinear(inputs, self.output_width if causal else self.embedding_width)
        if causal:
            final = nn.Sequential(final, make_dropout(self.dropout))
        return GatedConvolutionStack(first, layers, final)


def init_convs2s(model: nn.Module, dropout: float) -> None:
    """Initialisation of ConvS2S (section 3.5): token and position embeddings N(0, 0.1^2), output embeddings
    N(0, p / width) where p is the share of inputs that dropout keeps, biases zero. Linear layers and convolutions with
    weight normalisation initialise themselves."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=EMBEDDING_STD)
        elif isinstance(module, LearnedPositions) and isinstance(table := getattr(module, "table", None), nn.Parameter):
            nn.init.normal_(table, std=EMBEDDING_STD)
    for module in model.modules():
        if isinstance(module, OutputLayer) and isinstance(module.table, nn.Embedding):
            if isinstance(module, WeightNormSoftmax):
                init_weight_norm(module.table.weight, module.gain, 1 - dropout)
            else:
                nn.init.normal_(module.table.weight, std=((1 - dropout) / module.table.embedding_dim) ** 0.5)


SMALL = {"encoder": [{"width": 256, "depth": 4}], "decoder": [{"width": 256, "depth": 3}]}  # fairseq's for IWSLT
DEEP = {"encoder": [{"depth": 20}], "decoder": [{"depth": 20}]}
TINY = {"encoder": [{"width": 24, "depth": 1}, {"width": 32, "depth": 1}], "decoder": [{"width": 24, "depth": 2}]}

SIZES: dict[str, dict[str, Any]] = {
    "en-de": {},
    "en-fr": {"encoder": EN_FR, "decoder": EN_FR},
    "en-ro": {**DEEP, "embedding_width": 512},
    "small": {**SMALL, "embedding_width": 256, "output_width": 256, "dropout": 0.2},
    "tiny": {**TINY, "embedding_width": 16, "output_width": 20},
}

ENTRY = Entry(
    name="convs2s",
    paper="Gehring et al., Convolutional Sequence to Sequence Learning",
    year=2017,
    family="encoder-decoder",
    config=ConvS2SConfig,
    sizes=SIZES,
    vocab=40_000,
    checks=(
        Check(
            "its layers of torch.nn.Conv1d with torch's weight_norm",
            "tests/parity/test_convs2s.py::test_logits_are_those_of_the_layers_in_torch",
            "torch",
        ),
        Check(
            "its equations, unrolled in float64",
            "tests/parity/test_convs2s.py::test_logits_are_those_of_the_equations_token_by_token",
        ),
    ),
)
