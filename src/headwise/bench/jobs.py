"""What is measured: shapes of models, and jobs as values that travel to the process of an engine."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

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


def shape_named(name: str) -> Shape:
    if name not in SHAPES:
        raise UserError(f"--shape: there is no '{name}'; {nearest(name, SHAPES)}")
    return SHAPES[name]


class Job(Config):
    """One engine's work; everything but the engine is the same for all engines of a contest."""

    engine: str
    shape: Shape
    threads: int = Field(1, ge=1)
    rows: int = Field(1, ge=1)


class DecodeJob(Job):
    """Outputs of exactly `length` tokens for `rows` random sources at once."""

    what: Literal["decode"] = "decode"
    beams: int = Field(1, ge=1)
    source: int = Field(20, ge=1)
    length: int = Field(32, ge=1)


class TrainJob(Job):
    """Forward, backward and fused AdamW on `rows` pairs of `length` + `length` tokens."""

    what: Literal["train"] = "train"
    length: int = Field(32, ge=2)
    dropout: float = Field(0.0, ge=0, lt=1)


JOBS: dict[str, type[Job]] = {"decode": DecodeJob, "train": TrainJob}
