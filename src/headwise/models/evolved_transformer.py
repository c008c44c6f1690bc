"""The Evolved Transformer (So et al. 2019, "The Evolved Transformer", figure 3), found by an evolutionary architecture
search on translation.

Each of its blocks stands for two layers of a Transformer; tensor2tensor's models have 3 in the encoder and 4 in the
decoder. Every part has its residual and a norm before it:

    encoder    gated linear unit; convolution branches; self-attention; feed-forward network
    decoder    self-attention with 16 heads + cross-attention; convolution branches; self-attention; cross-attention;
               feed-forward network with swish and a norm of its hidden channels

The reference implementation is tensor2tensor's, by the first author. As there, the first self-attention of the decoder
has max(16, heads) heads, and attentions have no biases. Narang et al. (2021) have twice the model's heads there, and no
norm of hidden channels.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.feedforward import GatedLinearUnitConfig, MlpConfig
from headwise.blocks.mixers.convolution_branches import ConvolutionBranchesConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.sum_parts import SumPartsConfig
from headwise.blocks.tables import AnyPart, AnyWiring
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_xavier
from headwise.models.layers import Parts, StackConfig, TwoStackFields, build_stack


class EvolvedTransformerConfig(TwoStackFields, TextFields, ModelConfig):
    tasks = ("transduce", "language-model", "masked", "tag", "classify", "answer")
    kind: Literal["evolved-transformer"] = "evolved-transformer"
    encoder: StackConfig = StackConfig(depth=3)
    decoder: StackConfig = StackConfig(depth=4)
    decoder_feedforward: AnyPart = MlpConfig(activation="swish", hidden_norm=True)
    wide_heads: int = Field(0, ge=0)  # heads of the decoder's first self-attention; 0: those of the model, at least 16
    wiring: AnyWiring = PreNormConfig()
    hidden_dropout: float = Field(0.1, ge=0, lt=1)
    attention_bias: bool = False

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        if memory:
            return self.decoder_pattern(memory)
        return ((GatedLinearUnitConfig(), ConvolutionBranchesConfig(), self.mixer, self.feedforward),)

    def decoder_pattern(self, memory: bool) -> tuple[Parts, ...]:
        """The parts of a decoder block; without `memory`, those of a language model."""
        wide = self.mixer
        if isinstance(wide, AttentionConfig):
            wide = wide.replace(heads=self.wide_heads or max(16, self.heads))
        cross = (self.cross_attention,) if memory else ()
        first = SumPartsConfig(parts=(wide, *cross)) if memory else wide
        return ((first, ConvolutionBranchesConfig(), self.mixer, *cross, self.decoder_feedforward),)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        def build_decoder(memory: bool) -> Any:
            layers = self.decoder.layers or self.decoder_pattern(memory)
            return build_stack(self, self.decoder.replace(layers=layers), causal=True, memory=memory)

        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.encoder)),
            decoder=build_decoder,
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_xavier(model, self.width, self.output_width)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "big": {"width": 1024, "heads": 16, "dropout": 0.3},
    "small": {"width": 256, "heads": 4, "encoder": {"depth": 2}, "decoder": {"depth": 2}},
    "tiny": {"width": 32, "heads": 4, "encoder": {"depth": 1}, "decoder": {"depth": 1}},
}

ENTRY = Entry(
    name="evolved-transformer",
    paper="So et al., The Evolved Transformer",
    year=2019,
    family="encoder-decoder",
    config=EvolvedTransformerConfig,
    sizes=SIZES,
    vocab=37_000,
    checks=(
        Check(
            "its blocks of torch.nn.Conv1d and MultiheadAttention",
            "tests/parity/test_evolved_transformer.py::test_logits_are_those_of_the_blocks_in_torch",
            "torch",
        ),
    ),
)
