"""The token-mixing network of MLP-Mixer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.site import PARTS, BuildContext, PartConfig

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class TokensConfig(PartConfig):
    """A network along the tokens, `max_length` of them at most; `hidden` channels, 0: half the width, as in the
    paper."""

    kind: Literal["tokens"] = "tokens"
    max_length: int = Field(512, ge=1)
    hidden: int = Field(0, ge=0)
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "elu", "selu", "sigmoid", "softplus", "tanh"] = "gelu"

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.token_mixing import TokenMixing

        site.must_look_ahead(self.kind)
        hidden = self.hidden or max(1, site.width // 2)
        return TokenMixing(self.max_length, hidden, self.activation, site.mlp_bias, site.hidden_dropout)
