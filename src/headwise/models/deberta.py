"""DeBERTa (He et al. 2021), "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", version 1; with other
settings versions 2 and 3.

BERT's layers with disentangled attention: content and relative position have separate projections, and scores are the
sum of content-to-content, content-to-position and position-to-content terms (blocks/positions/relative.py). No position
is added to the embeddings; absolute positions enter only in the enhanced mask decoder (blocks/mask_decoder.py). Keys
have no bias, and there are no token types.

Version 2 puts distances into logarithmic buckets, adds a convolution beside the first layer
(blocks/input_convolution.py) and has biases of keys; version 3 projects distances as it projects tokens. These are
settings: `positions.buckets`, `convolution`, `mixer.key_bias`, `positions.shared`.

DISCREPANCY: `transformers` has no mask decoder and predicts from the last layer's outputs, as `mask_decoder = 0` does.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.feedforward import Activation
from headwise.blocks.input_convolution import InputConvolutionConfig
from headwise.blocks.mask_decoder import MaskDecoder
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.absolute import LearnedPositions
from headwise.blocks.positions.relative import DisentangledAttentionConfig
from headwise.blocks.stack import Embedding, Encoder
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition
from headwise.errors import UserError
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import TextInitFields, init_normal
from headwise.models.layers import OneStackFields, build_stack
from headwise.text import BOS


class DebertaConfig(OneStackFields, TextFields, TextInitFields, ModelConfig):
    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["deberta"] = "deberta"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    activation: Activation = "gelu"
    mixer: AnyPart = AttentionConfig(key_bias=False)
    positions: AnyPosition = DisentangledAttentionConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-7)
    scale_embeddings: bool = False
    embedding_norm: bool = True
    pool: PoolKind = "pooler_gelu"
    mask_decoder: int = Field(2, ge=0)  # enhanced mask decoder: how often its layer, the last one, is applied; 0: none
    convolution: InputConvolutionConfig = InputConvolutionConfig()  # beside the first layer
    max_length: int = Field(512, ge=1)  # absolute positions of the mask decoder

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        task = self.resolve_task(task)
        use_mask_decoder = self.mask_decoder and task == "masked"
        if use_mask_decoder and self.wiring.kind == "reversible":
            raise UserError("wiring: the mask decoder cannot apply reversible layers; use post, or mask_decoder = 0")
        if use_mask_decoder and self.positions.kind == "tree":
            raise UserError("positions: the mask decoder cannot select masked tokens of a tree; use mask_decoder = 0")
        if use_mask_decoder and self.convolution.kernel:
            raise UserError("convolution: the mask decoder runs layers of its own; use mask_decoder = 0")
        if self.width % self.convolution.groups:
            raise UserError(f"convolution.groups: must divide the width, {self.width}; choose a divisor")

        def encoder(embedding: Embedding) -> Encoder:
            stack, norm = build_stack(self, self.stack), self.norm.build(self.output_width)
            return Encoder(
                embedding, self.convolution.add_to(stack, self.output_width, norm, self.dropout), prefix_id=BOS
            )

        model = assemble(task, build_text_parts(self, encoder), vocab, outputs)
        init_normal(model, self.init)
        if use_mask_decoder:
            positions = LearnedPositions(self.width, self.max_length)
            model.encoder.stack = MaskDecoder(model.encoder.stack, positions, self.mask_decoder)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": {"width": 1024, "heads": 16, "depth": 24},
    "tiny": {
        "width": 32,
        "heads": 4,
        "depth": 2,
        "positions": {"kind": "deberta", "max_distance": 16},
        "max_length": 64,
    },
}

ENTRY = Entry(
    name="deberta",
    paper="He et al., DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
    year=2020,
    family="encoder",
    config=DebertaConfig,
    sizes=SIZES,
    vocab=50_265,
    published={"base": "139M", "large": "405M"},
    checks=(
        Check(
            "transformers.DebertaModel",
            "tests/parity/test_bert_kin.py::test_outputs_are_equal_both_ways",
            "transformers",
        ),
    ),
)
