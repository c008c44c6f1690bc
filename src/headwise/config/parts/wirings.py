"""Norms, and the wirings that put them between parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headwise.config.base import Config
from headwise.config.parts.site import NORMS, WIRINGS

if TYPE_CHECKING:
    from torch import nn


@NORMS.add
class LayerNormConfig(Config):
    kind: Literal["layer"] = "layer"
    eps: float = 1e-5

    def build(self, width: int) -> nn.Module:
        from headwise.blocks.norm import LayerNorm

        return LayerNorm(width, self.eps)


@NORMS.add
class RMSNormConfig(Config):
    kind: Literal["rms"] = "rms"
    eps: float = 1e-6

    def build(self, width: int) -> nn.Module:
        from headwise.blocks.norm import RMSNorm

        return RMSNorm(width, self.eps)


class WiringConfig(Config):
    """How parts make a layer: `build() -> class`. A stack of such layers gives `widens` times the channels it takes."""

    @property
    def widens(self) -> int:
        return 1


@WIRINGS.add
class PostNormConfig(WiringConfig):
    """norm(x + f(x))"""

    kind: Literal["post"] = "post"

    def build(self) -> type[nn.Module]:
        from headwise.blocks.residual import PostNorm

        return PostNorm


@WIRINGS.add
class PreNormConfig(WiringConfig):
    """x + f(norm(x))"""

    kind: Literal["pre"] = "pre"

    def build(self) -> type[nn.Module]:
        from headwise.blocks.residual import PreNorm

        return PreNorm


@WIRINGS.add
class ResPostNormConfig(WiringConfig):
    """x + norm(f(x))"""

    kind: Literal["respost"] = "respost"

    def build(self) -> type[nn.Module]:
        from headwise.blocks.residual import ResPostNorm

        return ResPostNorm


@WIRINGS.add
class AdminConfig(WiringConfig):
    """norm(ω x + f(x)), ω set by one pass before training"""

    kind: Literal["admin"] = "admin"

    def build(self) -> type[nn.Module]:
        from headwise.blocks.admin import Admin

        return Admin


@WIRINGS.add
class NoResidualConfig(WiringConfig):
    """f(x): no residual, no norm"""

    kind: Literal["chain"] = "chain"

    def build(self) -> type[nn.Module]:
        from headwise.blocks.residual import NoResidual

        return NoResidual


@WIRINGS.add
class ReversibleConfig(WiringConfig):
    """(a, b) -> (b, a + f(norm(b))): activations are computed back from outputs instead of being kept. In the end both
    halves are put side by side, or their mean is taken."""

    kind: Literal["reversible"] = "reversible"
    join: Literal["concat", "mean"] = "concat"

    @property
    def widens(self) -> int:
        return 2 if self.join == "concat" else 1

    def build(self) -> type[nn.Module]:
        from headwise.blocks.reversible import Reversible, ReversibleMean

        return Reversible if self.join == "concat" else ReversibleMean
