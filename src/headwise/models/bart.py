"""BART (Lewis et al. 2020), "Denoising Sequence-to-Sequence Pre-training".

The Transformer of 2017 with GELU, learned positions and LayerNorm on the embeddings. As in BERT, the encoder's input
has a start token before and an end token after the text. As in the released models, the decoder's input starts with EOS
and BOS (`start_id = 2`: with EOS alone, for folders that do not force BOS), and the first two rows of the position
tables are unused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from headwise.blocks.feedforward import Activation
from headwise.blocks.positions.absolute import LearnedPositionsConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyPosition
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import TextInitFields, init_normal
from headwise.models.layers import TwoStackFields, build_stack
from headwise.text import BOS, EOS


class BartConfig(TwoStackFields, TextFields, TextInitFields, ModelConfig):
    tasks = ("transduce", "language-model", "masked", "tag", "classify", "answer")
    kind: Literal["bart"] = "bart"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    activation: Activation = "gelu"
    positions: AnyPosition = LearnedPositionsConfig(max_length=1024, offset=2)
    scale_embeddings: bool = False
    embedding_norm: bool = True
    labels_from: Literal["encoder", "decoder"] = "encoder"  # side whose outputs the heads of classes and answers read

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.encoder), prefix_id=BOS),
            decoder=lambda memory: build_stack(self, self.decoder, causal=True, memory=memory),
        )
        prefix_id = EOS if self.start_id == BOS else None
        parts = replace(parts, decoder_prefix_id=prefix_id, labels_from=self.labels_from)
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_normal(model, self.init)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": {"width": 1024, "heads": 16, "depth": 12},
    "tiny": {
        "width": 32,
        "heads": 4,
        "depth": 2,
        "positions": {"kind": "learned", "max_length": 64, "offset": 2},
    },
}

ENTRY = Entry(
    name="bart",
    paper="Lewis et al., BART: Denoising Sequence-to-Sequence Pre-training",
    year=2019,
    family="encoder-decoder",
    config=BartConfig,
    sizes=SIZES,
    vocab=50_265,
    published={"base": "139M", "large": "406M"},
    checks=(
        Check(
            "transformers.BartForConditionalGeneration",
            "tests/parity/test_t5_bart.py::test_outputs_are_equal_both_ways",
            "transformers",
        ),
    ),
)
