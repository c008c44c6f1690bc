"""What a user writes to add a mixer: a gated moving average in the manner of Mega (Ma et al. 2023).

y_t = a * y_{t-1} + (1 - a) * W_in x_t,      out_t = W_out (sigmoid(W_gate x_t) * y_t)
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.blocks.tables import PARTS


class MovingAverage(Part):
    """Carries one vector a row from step to step instead of keys and values."""

    def __init__(self, width: int, bias: bool = True):
        super().__init__()
        self.inner = nn.Linear(width, 2 * width, bias)
        self.outer = nn.Linear(width, width, bias)
        self.decay = nn.Parameter(torch.linspace(-2, 2, width))

    @property
    def properties(self) -> Properties:
        # each row has its own mean, of one size, which forgets
        return Properties(causal=True, steppable=True, joins=True, unbounded=True)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        gate, new = self.inner(stream.x).chunk(2, dim=-1)
        decay = self.decay.sigmoid()
        mean = ctx.cache.get_state(ctx.path, lambda: torch.zeros_like(new[:, 0]))  # (B, C)
        means = []
        for token in new.unbind(1):
            mean = decay * mean + (1 - decay) * token
            means.append(mean)
        ctx.cache.put_state(ctx.path, mean)
        return self.outer(gate.sigmoid() * torch.stack(means, dim=1))


@PARTS.add
class MovingAverageConfig(PartConfig):
    kind: Literal["moving-average"] = "moving-average"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return MovingAverage(build_ctx.width, build_ctx.mlp_bias)
