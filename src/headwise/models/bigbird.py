"""BigBird (Zaheer et al. 2020), "Big Bird: Transformers for Longer Sequences".

BERT for texts of 4,096 tokens: a block of 64 tokens attends to its neighbours, three random blocks, and the first and
the last block, which are global (ITC). With `extra`, additional global tokens are prepended inside the stack (ETC):
learned vectors that belong to no text.

DISCREPANCY: the paper's ETC models have global tokens with contents from the task, such as one for each candidate
answer; ours are learned.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.feedforward import Activation
from headwise.blocks.mixers.sparse import BigBirdMixerConfig, GlobalTokenStack
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.absolute import LearnedPositionsConfig
from headwise.blocks.stack import Embedding, Encoder
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import TextInitFields, init_normal
from headwise.models.layers import OneStackFields, Parts, build_stack
from headwise.text import BOS


class BigBirdConfig(OneStackFields, TextFields, TextInitFields, ModelConfig):
    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["bigbird"] = "bigbird"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    activation: Activation = "gelu_tanh"
    mixer: AnyPart = BigBirdMixerConfig()
    positions: AnyPosition = LearnedPositionsConfig(max_length=4096)
    norm: AnyNorm = LayerNormConfig(eps=1e-12)
    scale_embeddings: bool = False
    embedding_norm: bool = True
    token_types: int = Field(2, ge=0)
    pool: PoolKind = "pooler"
    extra: int = Field(0, ge=0)  # learned global tokens before the text (ETC)

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        mixer = self.mixer
        if isinstance(mixer, BigBirdMixerConfig):
            mixer = mixer.replace(extra=self.extra)
        return ((mixer, self.feedforward),)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        def encoder(embedding: Embedding) -> Encoder:
            stack = build_stack(self, self.stack)
            if self.extra:
                stack = GlobalTokenStack(stack, nn.Embedding(self.extra, self.width))
            return Encoder(embedding, stack, prefix_id=BOS)

        model = assemble(self.resolve_task(task), build_text_parts(self, encoder), vocab, outputs)
        init_normal(model, self.init)
        return model


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
