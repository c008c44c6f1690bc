"""FAVOR+: softmax attention estimated by positive orthogonal random features (Choromanski et al. 2021, "Rethinking
Attention with Performers").

    exp(q.k / sqrt D) = E_w[phi(q) . phi(k)],    phi(x) = M^-1/2 exp(w x' - |x'|^2 / 2),    x' = x / D^1/4

with M random vectors w from N(0, I), orthogonal to each other in blocks of D, and redrawn at intervals in training.

DISCREPANCY: the released codes use the Q of a QR decomposition as it is, whose signs depend on the vectors. Here the
signs are corrected, so that each w is a Gaussian vector and the estimate unbiased.

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
    ENCODER_CHUNK,
    Factors,
    FeatureMap,
    LinearAttention,
    append_ones,
    expand_heads,
    init_state,
    multiply,
    split_chunks,
)
from headwise.blocks.mixers.qkv_mixer import QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.errors import UserError, nearest


@dataclass(frozen=True)
class RandomFeatures(FeatureMap):
    """Random features: functions of w x', with the random vectors w as the rows of `matrix` (M, D)."""

    matrix: Tensor

    @property
    def count(self) -> int:
        return self.matrix.shape[-2]

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x' (B, H, c, D), and w x' (B, H, c, M)."""
        x = (x * x.shape[-1] ** -0.25).contiguous()
        return x, x @ self.matrix.mT


@dataclass(frozen=True)
class PositiveFeatures(RandomFeatures):
    """phi(x) = M^-1/2 (exp(w x' - |x'|^2 / 2 - max) + epsilon), with the maximum of w x' over a query's features, and
    over all features of all keys.

    Without epsilon, which keeps denominators from 0, the maxima would cancel. No exponent is larger than |w|^2 / 2,
    about D / 2, so the sum over keys needs no maximum, which is applied to the sum afterwards. DISCREPANCY: the
    released codes leave out the gradient of the maxima.
    DISCREPANCY: in a decoder the maximum over all keys would leak later ones through epsilon. There it is 0.
    """

    epsilon: float = 1e-6

    @property
    def floor(self) -> float:
        return self.epsilon * self.count**-0.5

    def map_queries(self, q: Tensor) -> Tensor:
        q, projected = self.project(q)
        if torch.is_grad_enabled():  # not amax, whose gradient would search for the maximum again
            highest = (q * self.matrix[projected.detach().max(-1).indices]).sum(-1, keepdim=True)
        else:
            highest = projected.amax(-1, keepdim=True)
        return self._exponentiate(q, projected, -highest) + self.floor

    def map_keys(self, k: Tensor) -> Tensor:
        return self._exponentiate(*self.project(k)) + self.floor

    def sum_keys(self, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
        total, highest = init_state(self, k, v), k.new_full((*k.shape[:2], 1, 1), -torch.inf)
        value_sum = total[:, :, :1]
        for chunk in split_chunks(k, v, keep, size=ENCODER_CHUNK):
            chunk_sum, chunk_highest = multiply(self._chunk_factors_and_maximum, *chunk)
            if chunk[-1] is not None:
                padding = ~expand_heads(chunk[-1].any(1, keepdim=True))
                chunk_highest = chunk_highest.masked_fill(padding, -torch.inf)
            total, highest = total + chunk_sum, torch.maximum(highest, chunk_highest)
            value_sum = value_sum + append_ones(*chunk[1:]).sum(2, keepdim=True)
        # exp(-max) * total + epsilon * value_sum; both times exp(max) if max < 0, so that neither factor exceeds 1
        return total * (-highest).clamp(max=0).exp() + value_sum * (self.floor * highest.clamp(max=0).exp())

    def _chunk_factors_and_maximum(self, k: Tensor, v: Tensor, keep: Tensor | None) -> Factors:
        """The factors of a chunk's share of S without epsilon, and those of the maximum of w k' over its real keys: the
        key that attains it (B, H, 1, D) and the random vector (B, H, D, 1)."""
        k, projected = self.project(k)
        by_key = projected.detach().amax(-1, keepdim=True)  # (B, H, c, 1)
        if keep is not None:
            by_key = by_key.masked_fill(~expand_heads(keep), -torch.inf)
        key = by_key.argmax(2, keepdim=True)  # (B, H, 1, 1)
        feature = projected.detach().take_along_dim(key, 2).argmax(-1)  # (B, H, 1, M) -> (B, H, 1)
        maximum = k.take_along_dim(key, 2), self.matrix[feature].mT
        return (self._exponentiate(k, projected).mT, append_ones(v, keep)), maximum

    def _exponentiate(self, x: Tensor, projected: Tensor, shift: Tensor | float = 0.0) -> Tensor:
        """M^-1/2 exp(w x' - |x'|^2 / 2 + shift), in place."""
        return projected.add_(shift - x.square().sum(-1, keepdim=True) / 2 - 0.5 * math.log(self.count)).exp_()


@dataclass(frozen=True)
class ReluFeatures(RandomFeatures):
    """phi(x) = relu(w x') + epsilon: another kernel than the softmax's, which often trains better."""

    epsilon: float = 1e-3

    def map_queries(self, q: Tensor) -> Tensor:
        return self.project(q)[1].relu_() + self.epsilon

    def map_keys(self, k: Tensor) -> Tensor:
        return self.map_queries(k)


@dataclass(frozen=True)
class TrigonometricFeatures(RandomFeatures):
    """phi(x) = M^-1/2 exp(|x'|^2 / 2) [sin w x'; cos w x'], for comparison: also unbiased, but its variance is large
    where weights are small, and estimates may be negative (eq. 5 and lemma 2)."""

    def map_queries(self, q: Tensor) -> Tensor:
        _, angles = self.project(q)
        return torch.cat((angles.sin(), angles.cos()), dim=-1)  # (B, H, c, M) -> (B, H, c, 2M)

    def map_keys(self, k: Tensor) -> Tensor:
        k, angles = self.project(k)
        scale = (k.square().sum(-1, keepdim=True) / 2 - 0.5 * math.log(self.count)).exp()
        return torch.cat((angles.sin(), angles.cos()), dim=-1) * scale


KERNELS: dict[str, Callable[[Tensor], FeatureMap]] = {
    "softmax": PositiveFeatures,
    "relu": ReluFeatures,
    "trig": TrigonometricFeatures,
}


class RandomProjection(nn.Module):
    """Orthogonal random vectors (M, D), redrawn after every `redraw` forward passes of training (0: never); in
    evaluation they are fixed. Checkpoints store the seed of the draw and the number of passes, so that a resumed run
    continues bit by bit; averaged checkpoints keep the last seed, as vectors of different draws have no useful mean.

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
        self.count = 0  # `passes` as an int: reading the tensor would synchronise an accelerator
        self.register_load_state_dict_post_hook(lambda module, _: module.restore())
        self.draw()

    def forward(self) -> Tensor:
        # a recomputation within the backward pass must use the same vectors
        if self.training and self.redraw and torch._C._current_graph_task_id() == -1:
            if self.count and self.count % self.redraw == 0:
                self.draw()
            self.count += 1
            self.passes.fill_(self.count)
        return self.matrix

    def draw(self) -> None:
        """Draw new random vectors, with a seed from torch's generator."""
        self.seed.random_()
        self.generate()

    def restore(self) -> None:
        """Restore vectors and count from the seed and passes of a checkpoint."""
        if not self.seed.is_meta:
            self.count = int(self.passes)
            self.generate()

    @torch.no_grad()
    def generate(self) -> None:
        """Generate the vectors of the seed, in a new tensor: autograd may have saved the old one."""
        if self.seed.is_meta:
            return
        features, width = self.matrix.shape
        generator = torch.Generator().manual_seed(int(self.seed))
        vectors = torch.randn(features, width, generator=generator)
        lengths = vectors.norm(dim=1, keepdim=True) if self.norms == "chi" else width**0.5
        if self.orthogonal:
            q, r = torch.linalg.qr(torch.randn(-(-features // width), width, width, generator=generator))
            q = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
            vectors = q.mT.flatten(0, 1)[:features]  # (blocks, D, D) -> (blocks * D, D) -> (M, D)
        self.matrix = (vectors / vectors.norm(dim=1, keepdim=True) * lengths).to(self.matrix)


class Performer(LinearAttention):
    """Performer attention (FAVOR+): linear attention whose random features estimate the kernel of softmax attention, or
    "relu" ones. `features` = 0 stands for D log D, as in the paper's bound.

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
        **settings: Any,
    ):
        super().__init__(width, heads, **settings)
        if kernel not in KERNELS:
            raise UserError(f"kernel: there is no '{kernel}'; {nearest(kernel, KERNELS)}")
        if features < 0:
            raise UserError(f"features: {features} is negative; use 1 or more, or 0 for D log D")
        count = features or max(1, int(self.head_width * math.log(self.head_width)))
        self.kernel = KERNELS[kernel]
        self.projection = RandomProjection(self.head_width, count, orthogonal, norms, redraw)

    def build_feature_map(self) -> FeatureMap:
        return self.kernel(self.projection())


class PerformerConfig(QKVMixerConfig):
    """Performer attention by random features, FAVOR+ (Choromanski et al. 2021)."""

    kind: Literal["performer"] = "performer"
    features: int = Field(256, ge=0)  # 0: head_width * log(head_width)
    kernel: Literal["softmax", "relu", "trig"] = "softmax"
    orthogonal: bool = True  # within blocks of head_width features
    norms: Literal["chi", "sqrt"] = "chi"  # of the random vectors: those of Gaussian vectors, or all sqrt(head_width)
    redraw: int = Field(1000, ge=0)  # forward passes of training between two draws; 0: never

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return Performer(
            **self.resolve_arguments(build_ctx),
            features=self.features,
            kernel=self.kernel,
            orthogonal=self.orthogonal,
            norms=self.norms,
            redraw=self.redraw,
        )
