"""Linformer's attention to a summary of the text."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from headwise.config.parts.mixers import QKVMixerConfig
from headwise.config.parts.site import PARTS, BuildContext

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class LowRankConfig(QKVMixerConfig):
    """`rank` mixtures of up to `max_length` keys and values. Who has matrices of its own (Wang et al. 2020, section 4):

    none       keys and values of every head
    headwise   keys and values of every layer
    key-value  every layer
    layerwise  nobody: all layers of a stack share one
    """

    kind: Literal["linformer"] = "linformer"
    rank: int = Field(256, ge=1)
    max_length: int = Field(512, ge=1)
    sharing: Literal["none", "headwise", "key-value", "layerwise"] = "headwise"

    @model_validator(mode="after")
    def _shorter(self) -> LowRankConfig:
        if self.rank > self.max_length:
            raise ValueError(f"a rank of {self.rank} is more than `max_length` = {self.max_length} places; lower it")
        return self

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.lowrank import LowRankAttention, Summary

        site.must_look_ahead(self.kind)
        frame = self.frame(site)
        make = partial(Summary, self.rank, self.max_length, frame["heads"] if self.sharing == "none" else 1)
        keys = site.once((self.kind, self.rank, self.max_length), make) if self.sharing == "layerwise" else make()
        values = make() if self.sharing in ("none", "headwise") else keys
        return LowRankAttention(keys=keys, values=values, **frame)
