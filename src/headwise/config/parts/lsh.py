"""Attention by hashing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from headwise.config.parts.mixers import QKVMixerConfig
from headwise.config.parts.site import PARTS, BuildContext

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class LshConfig(QKVMixerConfig):
    """Attention among tokens of one bucket (Kitaev et al. 2020). Without `buckets` their number goes with the length,
    which a decoder cannot know while it writes: steps then differ from all tokens at once."""

    kind: Literal["lsh"] = "lsh"
    chunk: int = Field(64, ge=1)  # tokens of a bucket that see each other, and as many before them
    rounds: int = Field(4, ge=1)
    buckets: int = Field(0, ge=0, le=16_384)  # a power of two; 0: about 2 * length / chunk
    shortcuts: bool = False  # as the released codes: neighbours of other buckets seen, pairs counted in every round
    seed: int = Field(0, ge=0)  # of the rotations in evaluation

    @field_validator("buckets")
    @classmethod
    def _power(cls, buckets: int) -> int:
        if buckets & (buckets - 1) or buckets == 1:
            raise ValueError("the ends of random directions are 2, 4, 8, 16, ... buckets; choose one of these, or 0")
        return buckets

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.lsh import LSHAttention

        if self.shortcuts:
            site.must_look_ahead("lsh with shortcuts")
        return LSHAttention(
            **self.frame(site),
            chunk=self.chunk,
            rounds=self.rounds,
            buckets=self.buckets,
            shortcuts=self.shortcuts,
            seed=self.seed,
        )
