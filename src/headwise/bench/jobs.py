"""What is measured: shapes of models, and jobs as values that travel to the process of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.tables import AnyPart
from headwise.config.base import Config
from headwise.errors import UserError, nearest


class Shape(Config):
    """An encoder-decoder of the 2017 form with one shared vocabulary."""

    width: int
    depth: int  # of either side
    heads: int
    vocab: int

    @property
    def settings(self) -> dict[str, Any]:
        """The keys of our `[model]` table. As in Marian: sines first, a bias on the logits."""
        stack = {"depth": self.depth}
        positions = {"kind": "sinusoid", "halves": True}
        widths = {"width": self.width, "heads": self.heads}
        return widths | {"encoder": stack, "decoder": stack, "positions": positions, "output_bias": True}

    def __str__(self) -> str:
        depth = f"{self.depth}+{self.depth} layers"
        return f"width {self.width}, {depth}, {self.heads} heads, {self.vocab:,} words"


SHAPES = {
    "base": Shape(width=512, depth=6, heads=8, vocab=32_000),  # 60 million parameters
    "small": Shape(width=256, depth=3, heads=4, vocab=8_000),
    "tiny": Shape(width=32, depth=1, heads=2, vocab=100),
}


class OneStack(Config):
    """A model of one stack, such as GPT-2 or BERT."""

    width: int
    depth: int
    heads: int
    vocab: int
    limit: int  # of its learned positions

    @property
    def settings(self) -> dict[str, Any]:
        """The keys of our `[model]` table."""
        positions = {"kind": "learned", "max_length": self.limit}
        return {"width": self.width, "depth": self.depth, "heads": self.heads, "positions": positions}

    def __str__(self) -> str:
        return f"width {self.width}, {self.depth} layers, {self.heads} heads, {self.vocab:,} words"


STACKS = {
    "gpt2": OneStack(width=768, depth=12, heads=12, vocab=50_257, limit=1024),  # 124 million parameters
    "bert": OneStack(width=768, depth=12, heads=12, vocab=30_522, limit=512),
    "characters": OneStack(width=384, depth=6, heads=6, vocab=65, limit=256),  # 10.8 million, as in nanoGPT
    "tiny": OneStack(width=32, depth=1, heads=2, vocab=100, limit=64),
}
Named = TypeVar("Named")


def shape_named(name: str, shapes: Mapping[str, Named]) -> Named:
    if name not in shapes:
        raise UserError(f"--shape: there is no '{name}'; {nearest(name, shapes)}")
    return shapes[name]


class Work(Config):
    """One engine's work; everything but the engine is the same for all engines of a contest."""

    engine: str
    threads: int = Field(1, ge=1)


class Job(Work):
    """The work of a whole model on `rows` texts."""

    shape: Shape | OneStack
    rows: int = Field(1, ge=1)


class DecodeJob(Job):
    """Outputs of exactly `length` tokens for `rows` random sources at once."""

    what: Literal["decode"] = "decode"
    shape: Shape
    beams: int = Field(1, ge=1)
    source: int = Field(20, ge=1)
    length: int = Field(32, ge=1)


class TrainJob(Job):
    """Forward, backward and fused AdamW on `rows` pairs of `length` + `length` tokens."""

    what: Literal["train"] = "train"
    shape: Shape
    length: int = Field(32, ge=2)
    dropout: float = Field(0.0, ge=0, lt=1)


class StackJob(Job):
    shape: OneStack
    length: int = Field(64, ge=2)


class GptJob(StackJob):
    """Forward, backward and fused AdamW on `rows` texts of `length` tokens."""

    what: Literal["gpt"] = "gpt"
    dropout: float = Field(0.0, ge=0, lt=1)


class GenerateJob(StackJob):
    """Exactly `length` further tokens for each of `rows` random prompts."""

    what: Literal["generate"] = "generate"
    prompt: int = Field(16, ge=1)


class EncodeJob(StackJob):
    """A vector for each token of `rows` texts of `length` tokens."""

    what: Literal["encode"] = "encode"


class ImageJob(Work):
    """Labels of `rows` images; with `train`, forward, backward and fused AdamW."""

    model: str = "vit-s16"  # a name of the catalogue
    image: int = Field(224, ge=1)
    rows: int = Field(8, ge=1)
    train: bool = False

    @property
    def shape(self) -> str:
        return f"{self.model}, {self.image} x {self.image} pixels"


class MixerJob(Work):
    """One layer that mixes the tokens of a text; with `tokens`, as many texts as make up that number. Queries, keys and
    values have the standard deviation `spread`."""

    mixer: AnyPart = AttentionConfig()
    heads: int = Field(8, ge=1)
    head_width: int = Field(64, ge=1)
    causal: bool = False
    tokens: int = Field(0, ge=0)
    spread: float = Field(1.0, gt=0)

    @property
    def width(self) -> int:
        return self.heads * self.head_width


JOBS: dict[str, type[Work]] = {
    "decode": DecodeJob,
    "train": TrainJob,
    "gpt": GptJob,
    "generate": GenerateJob,
    "encode": EncodeJob,
    "images": ImageJob,
    "attention": MixerJob,
}
