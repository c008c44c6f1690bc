"""BigBird (Zaheer et al. 2020), "Big Bird: Transformers for Longer Sequences".

BERT for texts of 4,096 tokens: a block of 64 sees its neighbours, three random blocks, and the first and the last
block, which see everything (ITC). With `extra`, further tokens that belong to no text do so (ETC): vectors of the
model's own, which stand before the text inside the stack.

DISCREPANCY: the paper's ETC models have global tokens that the task fills, such as one for each candidate answer; ours
are learnt.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.activations import Activation
from headwise.blocks.embed import Embedding
from headwise.blocks.mixers.sparse import BigBirdMixerConfig, WithExtra
from headwise.blocks.positions.absolute import LearnedPositionsConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyPart, AnyPosition
from headwise.models.bert import BertConfig
from headwise.models.entry import Check, Entry
from headwise.models.transformer_base import Parts, StackConfig


class BigBirdConfig(BertConfig):
    kind: Literal["bigbird"] = "bigbird"  # type: ignore[assignment]
    activation: Activation = "gelu_tanh"
    mixer: AnyPart = BigBirdMixerConfig()
    positions: AnyPosition = LearnedPositionsConfig(max_length=4096)
    extra: int = Field(0, ge=0)  # tokens of the model's own that see all and are seen by all

    def layer(self, memory: bool) -> Parts:
        mixer, *others = super().layer(memory)
        return mixer.changed(extra=self.extra) if isinstance(mixer, BigBirdMixerConfig) else mixer, *others

    def _encoder(self, embedding: Embedding, stack: StackConfig) -> Encoder:
        encoder = super()._encoder(embedding, stack)
        if self.extra:
            encoder.stack = WithExtra(encoder.stack, nn.Embedding(self.extra, self.width))
        return encoder


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": {"width": 1024, "heads": 16, "depth": 24},
    "tiny": {
        "width": 32,
        "heads": 4,
        "depth": 2,
        "mixer": {"kind": "bigbird", "block": 4, "random": 1},
        "positions": {"kind": "learned", "max_length": 64},
    },
}

ENTRY = Entry(
    name="bigbird",
    paper="Zaheer et al., Big Bird: Transformers for Longer Sequences",
    year=2020,
    family="encoder",
    config=BigBirdConfig,
    sizes=SIZES,
    vocab=50_358,
    published={"base": "127M"},
    checks=(
        Check(
            "transformers.BigBirdModel",
            "tests/parity/test_bigbird.py::test_outputs_are_equal_both_ways",
            "transformers",
        ),
    ),
)
