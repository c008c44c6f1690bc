"""Shapes of models, and jobs as values that are sent to the process of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.tables import AnyPart
from headwise.config.base import Config
from headwise.errors import UserError, nearest


class Shape(Config):
    """The shape of an encoder-decoder (Vaswani et al. 2017) with a shared vocabulary."""

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


class StackShape(Config):
    """The shape of a model with one stack, such as GPT-2 or BERT."""

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
    "gpt2": StackShape(width=768, depth=12, heads=12, vocab=50_257, limit=1024),  # 124 million parameters
    "bert": StackShape(width=768, depth=12, heads=12, vocab=30_522, limit=512),
    "characters": StackShape(width=384, depth=6, heads=6, vocab=65, limit=256),  # 10.8 million, as in nanoGPT
    "small": StackShape(width=256, depth=4, heads=4, vocab=8_000, limit=512),
    "tiny": StackShape(width=32, depth=1, heads=2, vocab=100, limit=64),
}
ShapeT = TypeVar("ShapeT")


def get_shape(name: str, shapes: Mapping[str, ShapeT]) -> ShapeT:
    if name not in shapes:
        raise UserError(f"--shape: there is no '{name}'; {nearest(name, shapes)}")
    return shapes[name]


class EngineJob(Config):
    """The job of one engine; all other fields are the same for all engines of a contest."""

    engine: str
    threads: int = Field(1, ge=1)


class ModelJob(EngineJob):
    """A job of a whole model on `rows` texts."""

    shape: Shape | StackShape
    rows: int = Field(1, ge=1)


class DecodeJob(ModelJob):
    """Outputs of exactly `length` tokens for `rows` random sources at once."""

    what: Literal["decode"] = "decode"
    shape: Shape
    beams: int = Field(1, ge=1)
    source: int = Field(20, ge=1)
    length: int = Field(32, ge=1)


class TrainJob(ModelJob):
    """Forward, backward and fused AdamW on `rows` pairs of `length` + `length` tokens."""

    what: Literal["train"] = "train"
    shape: Shape
    length: int = Field(32, ge=2)
    dropout: float = Field(0.0, ge=0, lt=1)


class StackJob(ModelJob):
    shape: StackShape
    length: int = Field(64, ge=2)


class GptJob(StackJob):
    """Forward, backward and fused AdamW on `rows` texts of `length` tokens."""

    what: Literal["gpt"] = "gpt"
    dropout: float = Field(0.0, ge=0, lt=1)


class GenerateJob(StackJob):
    """Exactly `length` further tokens for each of `rows` random prompts."""

    what: Literal["generate"] = "generate"
    prompt: int = Field(16, ge=1)


class ServeEngineJob(EngineJob):
    """Outputs for `clients` that send `rounds` requests each, one after the other: `prompt` and `length` tokens, or as
    many in the mean if they are `mixed`."""

    what: Literal["serve-engine"] = "serve-engine"
    shape: Shape | StackShape
    clients: int = Field(16, ge=1)
    rounds: int = Field(2, ge=1)
    prompt: int = Field(16, ge=1)
    length: int = Field(64, ge=1)
    beams: int = Field(1, ge=1)
    mixed: bool = False


class EncodeJob(StackJob):
    """A vector for each token of `rows` texts of `length` tokens."""

    what: Literal["encode"] = "encode"


class ImageJob(EngineJob):
    """Labels of `rows` images; with `train`, forward, backward and fused AdamW."""

    model: str = "vit-s16"  # a name of the catalogue
    image: int = Field(224, ge=1)
    rows: int = Field(8, ge=1)
    train: bool = False

    @property
    def shape(self) -> str:
        return f"{self.model}, {self.image} x {self.image} pixels"


class MixerJob(EngineJob):
    """One token-mixing layer; with `tokens`, the batch has as many texts as make up that number. Queries, keys and
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


JOBS: dict[str, type[EngineJob]] = {
    "decode": DecodeJob,
    "train": TrainJob,
    "gpt": GptJob,
    "generate": GenerateJob,
    "serve-engine": ServeEngineJob,
    "encode": EncodeJob,
    "images": ImageJob,
    "attention": MixerJob,
}
