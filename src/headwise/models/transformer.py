"""The Transformer of 2017 (Vaswani et al., "Attention Is All You Need").

Post-norm encoder and decoder, sinusoidal positions, one embedding table tied three ways, ReLU feed-forward, dropout on
each sublayer's output and on embedding + position. As in the reference stacks of torch.nn and Marian, attention
projections have biases: 63,082,496 parameters for the base size with 37,000 tokens, where the paper says 65 million.

From token ids to logits:
    models/encoder_decoder.py   EncoderDecoder.forward: the encoder reads the source, the decoder predicts the target
    blocks/stack.py             Encoder, Decoder: Embedding (blocks/positions/absolute.py), then a Stack of layers
    blocks/residual.py          PostNorm: each sublayer with its residual add, dropout and layer normalisation
    blocks/attention/           multihead.py:Attention, with score_mods.py (scale, masks) and kernels.py (softmax)
    blocks/feedforward.py       FeedForward; blocks/heads.py:VocabularyHead turns vectors into logits
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.stack import Encoder
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_xavier
from headwise.models.layers import TwoStackFields, build_stack


class TransformerConfig(TwoStackFields, TextFields, ModelConfig):
    tasks = ("transduce", "language-model", "masked", "tag", "classify", "answer")
    kind: Literal["transformer"] = "transformer"
    encoder_prefix_id: int = Field(0, ge=0)  # id that is put before every source, such as a language's; 0: none

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(
                embedding, build_stack(self, self.encoder), prefix_id=self.encoder_prefix_id or None
            ),
            decoder=lambda memory: build_stack(self, self.decoder, causal=True, memory=memory),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_xavier(model, self.width, self.output_width)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "big": {"width": 1024, "heads": 16, "dropout": 0.3},
    "small": {"width": 256, "heads": 4, "depth": 3},
    "tiny": {"width": 32, "heads": 4, "depth": 2},
}

ENTRY = Entry(
    name="transformer",
    paper="Vaswani et al., Attention Is All You Need",
    year=2017,
    family="encoder-decoder",
    config=TransformerConfig,
    sizes=SIZES,
    vocab=37_000,
    published={"base": "65M", "big": "213M"},
    checks=(
        Check("torch.nn.Transformer", "tests/parity/test_torch.py::test_transformer", "torch"),
        Check(
            "transformers.MarianMTModel",
            "tests/parity/test_marian.py::test_logits_are_equal_both_ways",
            "transformers",
        ),
    ),
)
