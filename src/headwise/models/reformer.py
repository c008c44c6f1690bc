"""Reformer (Kitaev et al. 2020): layers of local and of LSH attention alternate; reversible layers store no activations
for the backward pass.

A final norm over both halves of the reversible layers, axial position embedding, attention without biases, and an
untied output layer, as outputs are twice as wide as embeddings.

Sizes: `base` is a small model for 4,096 tokens, `crime` and `enwik8` were released (by trax, and as folders for
`transformers`): one was trained on sequences of half a million characters of a novel, the other on 65,536 of Wikipedia.

DISCREPANCY: the released models have dropout after the final norm; ours do not. Both let tokens of different buckets
attend to each other, which leaks the future into a decoder: see `blocks/mixers/lsh.py`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.mixers.lsh import LshConfig
from headwise.blocks.mixers.sparse import LocalMixerConfig
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.absolute import AxialPositionsConfig
from headwise.blocks.reversible import ReversibleConfig
from headwise.blocks.stack import Embedding, Encoder, PaddedEncoder
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import TextInitFields, init_normal
from headwise.models.layers import OneStackFields, Parts, build_stack


class ReformerConfig(OneStackFields, TextFields, TextInitFields, ModelConfig):
    """`layer_pattern`, of `local` and `mixer`, repeats over the depth. The default number of buckets is for texts of
    the maximum length."""

    tasks = ("language-model", "masked", "tag", "classify", "answer", "encode")
    kind: Literal["reformer"] = "reformer"
    width: int = Field(256, ge=1)
    heads: int = Field(2, ge=1)
    head_width: int = Field(64, ge=0)
    hidden: int = Field(512, ge=0)
    depth: int = Field(6, ge=1)
    local: AnyPart = LocalMixerConfig(block=64, before=1)
    mixer: AnyPart = LshConfig(buckets=128)
    layer_pattern: tuple[Literal["local", "mixer"], ...] = Field(("local", "mixer"), min_length=1)
    positions: AnyPosition = AxialPositionsConfig()
    wiring: AnyWiring = ReversibleConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-12)
    dropout: float = Field(0.05, ge=0, lt=1)
    attention_bias: bool = False
    scale_embeddings: bool = False
    output_bias: bool = True
    pad_to_chunks: bool = False  # as transformers: an encoder pads texts to a multiple of the chunks of all layers

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        mixers = {"local": self.local, "mixer": self.mixer}
        return tuple((mixers[name], self.feedforward) for name in self.layer_pattern)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=self._build_encoder,
            decoder=lambda memory: build_stack(self, self.stack, causal=True),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_normal(model, self.init)
        return model

    def _build_encoder(self, embedding: Embedding) -> Encoder:
        stack = build_stack(self, self.stack)
        if not self.pad_to_chunks:
            return Encoder(embedding, stack)
        mixers = [parts[0] for parts in (self.layers or self.pattern())]
        chunks = {mixer.block for mixer in mixers if isinstance(mixer, LocalMixerConfig)}
        chunks |= {mixer.chunk for mixer in mixers if isinstance(mixer, LshConfig)}
        return PaddedEncoder(embedding, stack, sorted(chunks) or [1])


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "crime": {
        "mixer": {"kind": "lsh", "rounds": 1, "buckets": 8192},
        "positions": {"kind": "axial", "shape": (512, 1024)},
    },
    "enwik8": {
        "width": 1024,
        "heads": 8,
        "head_width": 128,
        "hidden": 4096,
        "depth": 12,
        "local": {"kind": "local", "block": 128, "before": 1},
        "mixer": {"kind": "lsh", "chunk": 256, "buckets": 512},
        "layer_pattern": ("local", "local", "mixer", "local"),
        "positions": {"kind": "axial", "shape": (128, 512)},
        "dropout": 0.2,
    },
    "tiny": {
        "width": 32,
        "heads": 4,
        "head_width": 8,
        "hidden": 64,
        "depth": 2,
        "local": {"kind": "local", "block": 8, "before": 1},
        "mixer": {"kind": "lsh", "chunk": 4, "rounds": 2, "buckets": 4},
        "positions": {"kind": "axial", "shape": (8, 8)},
    },
}
VOCABULARIES = {"enwik8": 258}

ENTRY = Entry(
    name="reformer",
    paper="Kitaev et al., Reformer: The Efficient Transformer",
    year=2020,
    family="decoder",
    config=ReformerConfig,
    sizes=SIZES,
    vocab=320,
    vocabularies=VOCABULARIES,
    published={"crime": "3M", "enwik8": "149M"},
    checks=(
        Check(
            "transformers.ReformerModel",
            "tests/parity/test_reformer.py::test_a_whole_encoder_gives_their_hidden_states",
            "transformers",
        ),
        Check(
            "reformer-pytorch",
            "tests/parity/test_reformer.py::test_reformer_pytorch_mixes_alike",
            "reformer_pytorch",
        ),
    ),
)
