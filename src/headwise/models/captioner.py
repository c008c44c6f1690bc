"""An image to a sentence: a Vision Transformer reads, a Transformer's decoder writes (Xu et al. 2015 with the encoder
and decoder of Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.heads import VocabularyHead
from headwise.blocks.positions.absolute import SinusoidalPositionsConfig
from headwise.blocks.positions.grid import LearnedGridPositionsConfig
from headwise.blocks.stack import Decoder
from headwise.blocks.tables import AnyPosition
from headwise.errors import UserError
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.entry import Check, Entry
from headwise.models.transformer_base import StackConfig
from headwise.models.vit import PatchModelConfig


class CaptionerConfig(PatchModelConfig):
    """`depth` layers read, `decoder` writes, with as many layers unless it says how many; both are as wide."""

    tasks = ("caption",)
    kind: Literal["captioner"] = "captioner"
    class_tokens: int = Field(0, ge=0)
    # with the 0.02 of classifiers it learns what there is, but not where
    positions: AnyPosition = LearnedGridPositionsConfig(std=3.0)
    decoder: StackConfig = StackConfig(depth=6)
    word_positions: AnyPosition = SinusoidalPositionsConfig()

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        if self.wiring.kind == "reversible":
            raise UserError("wiring: the words of a caption are no halves of the layers' outputs; use pre or post")
        table = nn.Embedding(outputs, self.width)
        words = self.word_positions.embed(table, self.width, scale=self.width**0.5, dropout=self.dropout)
        stack = self._stack(self.decoder, causal=True, memory=True)
        decoder = Decoder(words, stack, VocabularyHead(self.width, outputs, table))
        model = EncoderDecoder(self.encoder(), decoder)
        self.init_weights(model)
        nn.init.normal_(table.weight, std=self.width**-0.5)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"image": 64, "patch": 8, "width": 128, "heads": 4, "depth": 4, "decoder": {"depth": 2}},
    "tiny": {
        "image": 16,
        "channels": 1,
        "patch": 4,
        "width": 32,
        "heads": 4,
        "depth": 2,
        "decoder": {"depth": 2},
    },
}

ENTRY = Entry(
    name="captioner",
    paper="Xu et al., Show, Attend and Tell, with the encoder and decoder of a Transformer",
    year=2015,
    family="vision",
    config=CaptionerConfig,
    sizes=SIZES,
    vocab=0,
    outputs=10_000,
    checks=(Check("torch.nn.Transformer", "tests/parity/test_torch.py::test_captioner", "torch"),),
)
