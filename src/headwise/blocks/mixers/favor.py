"""FAVOR+: softmax attention estimated from random features (Choromanski et al. 2021, "Rethinking Attention with
Performers").

    exp(q.k / sqrt D) = E_w[phi(q) . phi(k)],    phi(x) = M^-1/2 exp(w x' - |x'|^2 / 2),    x' = x / D^1/4

with M directions w from N(0, I), orthogonal to one another in blocks of D, and drawn anew every so often in training.

DISCREPANCY: the released codes take the first factor of a QR decomposition as it comes, in which a direction's sign
depends on the direction. Here the signs are set right, so that each w is a Gaussian vector and the estimate unbiased.

Letters: B rows, T length, c tokens of a chunk, H heads, D head_width, E = D + 1, M features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.mixers.linear import (
    WIDE,
    Factors,
    FeatureMap,
    LinearAttention,
    chunks,
    expand_heads,
    nothing,
    products,
    values,
)
from headwise.blocks.mixers.qkv_mixer import QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.errors import UserError, nearest


@dataclass(frozen=True)
class RandomFeatures(FeatureMap):
    """Random features: a map along random directions w, the rows of `matrix` (M, D)."""

    matrix: Tensor

    @property
    def count(self) -> int:
        return self.matrix.shape[-2]

    def along(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x' (B, H, c, D), and w x' (B, H, c, M)."""
        x = (x * x.shape[-1] ** -0.25).contiguous()
        return x, x @ self.matrix.mT


@dataclass(frozen=True)
class Positive(RandomFeatures):
    """phi(x) = M^-1/2 (exp(w x' - |x'|^2 / 2 - max) + epsilon), with the maximum of w x' over a query's features, and
    over all features of all keys.

    Without epsilon, which keeps denominators from 0, the maxima would cancel. No exponent is larger than |w|^2 / 2,
    about D / 2, so that keys need no maximum to be summed, and it is brought in afterwards. DISCREPANCY: the released
    codes leave out the gradient of the maxima.
    DISCREPANCY: in a decoder the maximum over all keys would tell of later ones through epsilon. There it is 0.
    """

    epsilon: float = 1e-6

    @property
    def floor(self) -> float:
        return self.epsilon * self.count**-0.5

    def queries(self, q: Tensor) -> Tensor:
        q, rise = self.along(q)
        if torch.is_grad_enabled():  # not amax, whose gradient would look for the maximum once more
            most = (q * self.matrix[rise.detach().max(-1).indices]).sum(-1, keepdim=True)
        else:
            most = rise.amax(-1, keepdim=True)
        return self._power(q, rise, -most) + self.floor

    def keys(self, k: Tensor) -> Tensor:
        return self._power(*self.along(k)) + self.floor

    def total(self, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
        summed, most = nothing(self, k, v), k.new_full((*k.shape[:2], 1, 1), -torch.inf)
        plain = summed[:, :, :1]
        for part in chunks(k, v, keep, size=WIDE):
            more, high = products(self._measured, *part)
            if part[-1] is not None:
                high = high.masked_fill(~expand_heads(part[-1].any(1, keepdim=True)), -torch.inf)
            summed, most = summed + more, torch.maximum(most, high)
            plain = plain + values(*part[1:]).sum(2, keepdim=True)
        # exp(-max) of the one and epsilon of the other; both times exp(max) where that keeps them below 1
        return summed * (-most).clamp(max=0).exp() + plain * (self.floor * most.clamp(max=0).exp())

    def _measured(self, k: Tensor, v: Tensor, keep: Tensor | None) -> Factors:
        """Of a chunk's share in S without epsilon, and of the maximum of w k' over its real keys: the key that has it
        (B, H, 1, D) times the direction (B, H, D, 1)."""
        k, rise = self.along(k)
        peaks = rise.detach().amax(-1, keepdim=True)  # (B, H, c, 1)
        if keep is not None:
            peaks = peaks.masked_fill(~expand_heads(keep), -torch.inf)
        row = peaks.argmax(2, keepdim=True)  # (B, H, 1, 1)
        feature = rise.detach().take_along_dim(row, 2).argmax(-1)  # (B, H, 1, M) -> (B, H, 1)
        highest = k.take_along_dim(row, 2), self.matrix[feature].mT
        return (self._power(k, rise).mT, values(v, keep)), highest

    def _power(self, x: Tensor, rise: Tensor, shift: Tensor | float = 0.0) -> Tensor:
        """M^-1/2 exp(w x' - |x'|^2 / 2 + shift)."""
        return rise.add_(shift - x.square().sum(-1, keepdim=True) / 2 - 0.5 * math.log(self.count)).exp_()


@dataclass(frozen=True)
class Relu(RandomFeatures):
    """phi(x) = relu(w x') + epsilon: another kernel than softmax's, and often a better one to train with."""

    epsilon: float = 1e-3

    def queries(self, q: Tensor) -> Tensor:
        return self.along(q)[1].relu_() + self.epsilon

    def keys(self, k: Tensor) -> Tensor:
        return self.queries(k)


@dataclass(frozen=True)
class Trigonometric(RandomFeatures):
    """phi(x) = M^-1/2 exp(|x'|^2 / 2) [sin w x'; cos w x'], for comparison: unbiased, too, but where a weight is small
    its estimate is not, and may be negative (eq. 5 and lemma 2)."""

    def queries(self, q: Tensor) -> Tensor:
        _, turned = self.along(q)
        return torch.cat((turned.sin(), turned.cos()), dim=-1)  # (B, H, c, M) -> (B, H, c, 2M)

    def keys(self, k: Tensor) -> Tensor:
        k, turned = self.along(k)
        scale = (k.square().sum(-1, keepdim=True) / 2 - 0.5 * math.log(self.count)).exp()
        return torch.cat((turned.sin(), turned.cos()), dim=-1) * scale


KERNELS: dict[str, Callable[[Tensor], FeatureMap]] = {
    "softmax": Positive,
    "relu": Relu,
    "trig": Trigonometric,
}


class RandomProjection(nn.Module):
    """M random directions (M, D), drawn anew after every `redraw` passes in training (0: never); in evaluation they
    stay. The seed of the draw and the count of passes belong to a checkpoint, so that a resumed run goes on with the
    same bits; directions of several checkpoints have no mean, but a last seed.

    `norms`: "chi", those of Gaussian vectors, or "sqrt", all sqrt(D).
    """

    def __init__(self, head_width: int, features: int, orthogonal: bool = True, norms: str = "chi", redraw: int = 1000):
        super().__init__()
        self.orthogonal, self.norms, self.redraw = orthogonal, norms, redraw
        self.register_buffer("matrix", torch.empty(features, head_width), persistent=False)
        self.register_buffer("seed", torch.zeros((), dtype=torch.long))
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))
        self.matrix: Tensor
        self.seed: Tensor
        self.passes: Tensor
        self.count = 0  # `passes` as a number: to read it each time would stall an accelerator
        self.register_load_state_dict_post_hook(lambda module, _: module.restore())
        self.draw()

    def forward(self) -> Tensor:
        # what is made again within a backward pass must be what it was
        if self.training and self.redraw and torch._C._current_graph_task_id() == -1:
            if self.count and self.count % self.redraw == 0:
                self.draw()
            self.count += 1
            self.passes.fill_(self.count)
        return self.matrix

    def draw(self) -> None:
        """New directions, by a seed from torch's generator."""
        self.seed.random_()
        self.make()

    def restore(self) -> None:
        """What a checkpoint's seed and count stand for."""
        if not self.seed.is_meta:
            self.count = int(self.passes)
            self.make()

    @torch.no_grad()
    def make(self) -> None:
        """The directions of the seed, in a new tensor: a gradient may still need the old one."""
        if self.seed.is_meta:
            return
        features, width = self.matrix.shape
        draws = torch.Generator().manual_seed(int(self.seed))
        drawn = torch.randn(features, width, generator=draws)
        lengths = drawn.norm(dim=1, keepdim=True) if self.norms == "chi" else width**0.5
        if self.orthogonal:
            q, r = torch.linalg.qr(torch.randn(-(-features // width), width, width, generator=draws))
            q = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
            drawn = q.mT.flatten(0, 1)[:features]  # (blocks, D, D) -> (blocks * D, D) -> (M, D)
        self.matrix = (drawn / drawn.norm(dim=1, keepdim=True) * lengths).to(self.matrix)


class Performer(LinearAttention):
    """Softmax attention by random features: `kernel` "softmax"; or attention with another kernel: "relu". `features`
    of 0 are D log D, which the paper's bound asks for.

    >>> Performer(64, heads=4)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        *,
        features: int = 256,
        kernel: str = "softmax",
        orthogonal: bool = True,
        norms: str = "chi",
        redraw: int = 1000,
        **frame: Any,
    ):
        super().__init__(width, heads, **frame)
        if kernel not in KERNELS:
            raise UserError(f"kernel: there is no '{kernel}'; {nearest(kernel, KERNELS)}")
        if features < 0:
            raise UserError(f"features: {features} cannot be drawn; give 1 or more, or 0 for D log D")
        count = features or max(1, int(self.head_width * math.log(self.head_width)))
        self.kernel = KERNELS[kernel]
        self.projection = RandomProjection(self.head_width, count, orthogonal, norms, redraw)

    def phi(self) -> FeatureMap:
        return self.kernel(self.projection())


class PerformerConfig(QKVMixerConfig):
    """Softmax attention by random features (Choromanski et al. 2021)."""

    kind: Literal["performer"] = "performer"
    features: int = Field(256, ge=0)  # 0: head_width * log(head_width)
    kernel: Literal["softmax", "relu", "trig"] = "softmax"
    orthogonal: bool = True  # within blocks of head_width features
    norms: Literal["chi", "sqrt"] = "chi"  # lengths of the directions: Gaussian vectors', or all sqrt(head_width)
    redraw: int = Field(1000, ge=0)  # passes in training from one draw to the next; 0: never

    def build(self, site: BuildContext) -> nn.Module:
        return Performer(
            **self.frame(site),
            features=self.features,
            kernel=self.kernel,
            orthogonal=self.orthogonal,
            norms=self.norms,
            redraw=self.redraw,
        )
