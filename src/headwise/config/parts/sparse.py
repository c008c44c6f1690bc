"""Attention that sees some keys: blocks, windows, strides, and BigBird's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from headwise.config.parts.mixers import QKVMixerConfig
from headwise.config.parts.site import PARTS, BuildContext

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class LocalMixerConfig(QKVMixerConfig):
    """A block of tokens sees itself, `before` blocks before it and `after` after it (in an encoder)."""

    kind: Literal["local"] = "local"
    block: int = Field(256, ge=1)
    before: int = Field(0, ge=0)
    after: int = Field(0, ge=0)

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.patterns import Local
        from headwise.blocks.mixers.sparse import BlockSparseAttention

        return BlockSparseAttention(Local(self.block, self.before, self.after, site.causal), **self.frame(site))


@PARTS.add
class WindowMixerConfig(QKVMixerConfig):
    """A token sees itself, `left` tokens before it and `right` after it (in an encoder)."""

    kind: Literal["window"] = "window"
    left: int = Field(128, ge=0)
    right: int = Field(128, ge=0)

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.patterns import Sliding
        from headwise.blocks.mixers.sparse import BlockSparseAttention

        return BlockSparseAttention(Sliding(self.left, self.right, site.causal), **self.frame(site))


@PARTS.add
class StridedConfig(QKVMixerConfig):
    """A token sees those nearer than `stride`, and every `stride`-th beyond."""

    kind: Literal["strided"] = "strided"
    stride: int = Field(64, ge=1)

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.patterns import Strided
        from headwise.blocks.mixers.sparse import StridedSparse

        return StridedSparse(Strided(self.stride, site.causal), **self.frame(site))


@PARTS.add
class BigBirdMixerConfig(QKVMixerConfig):
    """Blocks see their neighbours, some random blocks, and those at the ends, which see everything.

    `variant` decides what the paper leaves open: with "transformers" the last block is that of the padded batch, texts
    of few blocks are seen whole, and in evaluation the first block is seen again in the place of each random one.
    """

    kind: Literal["bigbird"] = "bigbird"
    block: int = Field(64, ge=1)
    window: int = Field(3, ge=1)  # blocks, the own one in the middle
    random: int = Field(3, ge=0)  # blocks, other ones for each layer and head
    first: int = Field(1, ge=0)  # blocks that see all and are seen by all
    last: int = Field(1, ge=0)
    extra: int = Field(0, ge=0)  # tokens before the text that see all and are seen by all
    seed: int = Field(0, ge=0)
    variant: Literal["paper", "transformers"] = "paper"

    @field_validator("window")
    @classmethod
    def _odd(cls, window: int) -> int:
        if window % 2 == 0:
            raise ValueError("a window has the block itself and as many on either side, so it must be odd")
        return window

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.patterns import Graph
        from headwise.blocks.mixers.sparse import BigBirdAttention

        site.must_look_ahead("bigbird")
        reach = self.window // 2
        graph = Graph(self.block, reach, self.random, self.first, self.last, self.seed, self.variant == "transformers")
        return BigBirdAttention(graph, self.extra, **self.frame(site))
