"""Parallel branches in the place of one part: sum_i f_i(x), as self-attention and cross-attention side by side in the
Evolved Transformer (So et al. 2019). All branches read the same normalised inputs, and the layer adds one residual.

Letters: B rows, T length, C width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import reduce
from operator import add
from typing import Literal, cast

from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.decode_step import Step
from headwise.blocks.feedforward import MlpConfig
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import Context, Part, Properties, Stream, build_decode_step
from headwise.blocks.tables import AnyPart


class SumParts(Part):
    """The sum of parallel branches: y = f_1(x) + f_2(x) + ..."""

    def __init__(self, parts: Sequence[Part]):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        declared = [part.properties for part in parts]
        self.declared = Properties(**{f.name: all(getattr(p, f.name) for p in declared) for f in fields(Properties)})

    @property
    def properties(self) -> Properties:
        return self.declared

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return reduce(add, [part(stream, ctx.at(number)) for number, part in enumerate(self.parts)])

    def build_decode_step(self, ctx: Context) -> Step:
        steps = [build_decode_step(part, ctx.at(number)) for number, part in enumerate(self.parts)]
        return lambda x, at: reduce(add, [step(x, at) for step in steps])


class SumPartsConfig(PartConfig):
    """The sum of the outputs of several parts, which read the same inputs; by default attention and a feed-forward
    network side by side."""

    kind: Literal["sum"] = "sum"
    parts: tuple[AnyPart, ...] = Field((AttentionConfig(), MlpConfig()), min_length=1)

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return SumParts([cast(Part, part.build(build_ctx)) for part in self.parts])
