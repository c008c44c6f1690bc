"""DeBERTa (He et al. 2021), "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", version 1.

BERT's layers, but what a token is and where it stands are kept apart: no position is added to the embeddings, scores
have a part for each way that content and distance can meet (blocks/positions/relative.py), and absolute positions come
in only where hidden words are guessed (blocks/mask_decoder.py). Keys have no bias, texts no types.

DISCREPANCY: `transformers` has no mask decoder and guesses from the last layer's outputs; `mask_decoder = 0` is that.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.activations import Activation
from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.mask_decoder import MaskDecoder
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.absolute import LearnedPositions
from headwise.blocks.positions.relative import DisentangledAttentionConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition
from headwise.errors import UserError
from headwise.models.assemble import TextFields, assemble, text_parts
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_normal
from headwise.models.layers import OneStackFields, build_stack
from headwise.text import BOS


class DebertaConfig(OneStackFields, TextFields, ModelConfig):
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
    mask_decoder: int = Field(2, ge=0)  # how often the last layer is asked for hidden words; 0: as any other layer
    max_length: int = Field(512, ge=1)  # absolute positions that the mask decoder knows

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        task = self.resolve_task(task)
        decodes = self.mask_decoder and task == "masked"
        if decodes and self.wiring.kind == "reversible":
            raise UserError(
                "wiring: the mask decoder asks a layer whose outputs are halves; use post, or mask_decoder = 0"
            )
        if decodes and self.positions.kind == "tree":
            raise UserError("positions: the mask decoder asks for some words of a tree alone; use mask_decoder = 0")
        parts = text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack), opening=BOS),
        )
        model = assemble(task, parts, vocab, outputs)
        init_normal(model)
        if decodes:
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
