"""MLP-Mixer (Tolstikhin et al. 2021): pre-norm layers of two networks, one along the tokens and one along the channels,
no attention and no positions; a final norm and the mean of all tokens.

For texts, a table of words stands where the paper has a linear stem of patches. The sizes are the paper's S, B, L of
196 patches (14 x 14) and H of 256, so their stacks and heads have the published numbers of parameters.

DISCREPANCY: dropout is the other models', after each network; the paper drops whole networks (stochastic depth).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.config.parts import (
    Activation,
    AnyNorm,
    AnyPart,
    AnyPosition,
    AnyWiring,
    LayerNormConfig,
    NoPositionConfig,
    PreConfig,
    TokensConfig,
)
from headwise.models.layered import OneStackConfig


class MixerConfig(OneStackConfig):
    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["mixer"] = "mixer"
    depth: int = Field(8, ge=1)
    activation: Activation = "gelu"
    mixer: AnyPart = TokensConfig(limit=196)
    positions: AnyPosition = NoPositionConfig()
    wiring: AnyWiring = PreConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-6)


SIZES: dict[str, dict[str, Any]] = {
    "small": {},
    "base": {"width": 768, "depth": 12},
    "large": {"width": 1024, "depth": 24},
    "huge": {"width": 1280, "depth": 32, "mixer": {"kind": "tokens", "limit": 256}},
    "tiny": {"width": 32, "depth": 2, "mixer": {"kind": "tokens", "limit": 64}},
}
