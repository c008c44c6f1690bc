"""Nystrom attention (Xiong et al. 2021, "Nystromformer: A Nystrom-Based Algorithm for Approximating Self-Attention").

The softmax map is approximated through landmarks, the means of M segments of the queries and of the keys:

    softmax(Q K~^T) softmax(Q~ K~^T)^+ softmax(Q~ K^T) V + conv(V)    (eq. 13; scores divided by sqrt(D))

so time and memory are O(n M) instead of O(n^2). The pseudo-inverse is iterated (eq. 11), and a depthwise convolution of
the values along the tokens is added. Each landmark is a mean over tokens, so there is no causal form.

DISCREPANCY: released code needs texts of one length, a multiple of M, and padding is part of the landmarks and of the
convolution. Here the real tokens of each text make its landmarks, in segments that differ by at most one token, and
padding counts as zeros; without padding, at a multiple of M, there is no difference. A text of at most M tokens has
softmax attention, which the approximation becomes when each token is a landmark.

Letters: B rows, T length, H heads, D head_width, M landmarks.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from headwise.blocks.mixers.linear import disable_autocast
from headwise.blocks.mixers.qkv_mixer import QKVMixer, QKVMixerConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, Properties, Stream

InverseInit = Literal["matrix", "batch"]


class NystromAttention(QKVMixer):
    """Nystrom attention: softmax(Q K~^T) softmax(Q~ K~^T)^+ softmax(Q~ K^T) V + conv(V), with `landmarks` K~ and Q~.

    `landmarks` = 0 is softmax attention at every length, beside the convolution; `kernel` = 0 leaves out the
    convolution.

    >>> NystromAttention(64, heads=4, landmarks=8)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        *,
        landmarks: int = 64,
        iterations: int = 6,
        kernel: int = 65,
        inverse_init: InverseInit = "matrix",
        **settings: Any,
    ):
        super().__init__(width, heads, **settings)
        self.landmarks, self.iterations, self.inverse_init = landmarks, iterations, inverse_init
        self.conv: nn.Module | None = None
        if kernel:
            self.conv = nn.Conv2d(heads, heads, (kernel, 1), padding=(kernel // 2, 0), groups=heads, bias=False)

    @property
    def properties(self) -> Properties:
        # `inverse_init` of the batch starts each iteration from the largest norm among all rows
        return Properties(batch_independent=self.inverse_init == "matrix" or not self.landmarks)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, stream: Stream, ctx: Context) -> Tensor:
        with disable_autocast(q):  # products of 16 bits would not converge to an inverse
            q, k, values = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
            self.record_map(q, k, values, stream, ctx, lambda: self._compute_map(q, k, stream.keep))
            # on the meta device, where costs are counted, padding is unknown: count those of texts without
            keep = None if stream.keep is None or stream.keep.is_meta else stream.keep
            return self.attend(q, k, values, keep).to(v.dtype)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
        """Nystrom attention of long rows, softmax attention of the others, plus the convolution of the values:
        3 x (B, H, T, D) -> (B, H, T, D)."""
        if keep is not None:
            v = v.masked_fill(~keep[:, None, :, None], 0.0)
        q = q * self.head_width**-0.5
        out = self._attend_by_length(q, k, v, keep)
        return out if self.conv is None else out + self.conv(v)

    def _attend_by_length(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
        if not self.landmarks or q.shape[2] <= self.landmarks:
            return attend_exactly(q, k, v, keep)
        out = self.approximate(q, k, v, keep)
        if keep is None:
            return out
        # Both are computed of all rows, since which of them are short is known on the device alone.
        first = slice(self.landmarks)  # short texts end here
        exact = attend_exactly(q[:, :, first], k[:, :, first], v[:, :, first], keep[:, first])
        short = (keep.sum(1) <= self.landmarks)[:, None, None, None]
        return torch.where(short, F.pad(exact, (0, 0, 0, q.shape[2] - self.landmarks)), out)

    def approximate(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
        """The approximation of softmax(Q K^T) V; numbers without a meaning for rows with fewer real tokens than
        landmarks."""
        mean_q, mean_k = average_segments(q, self.landmarks, keep), average_segments(k, self.landmarks, keep)
        to_landmarks = (q @ mean_k.mT).softmax(-1)  # (B, H, T, M)
        between = (mean_q @ mean_k.mT).softmax(-1)  # (B, H, M, M)
        values = attend_exactly(mean_q, k, v, keep)  # (B, H, M, D)
        return to_landmarks @ (invert(between, self.iterations, self.inverse_init) @ values)

    def _compute_map(self, q: Tensor, k: Tensor, keep: Tensor | None) -> Tensor:
        """The attention map (B, H, T, T): the outputs for unit vectors as values."""
        length = q.shape[2]
        units = torch.eye(length, dtype=q.dtype, device=q.device).expand(*q.shape[:2], length, length)
        return self.attend(q, k, units, keep)


def attend_exactly(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    """Softmax attention with scaled queries: (B, H, Tq, D) and 2 x (B, H, T, D) -> (B, H, Tq, D)."""
    scores = q @ k.mT
    if keep is not None:  # a finite number: rows of padding alone give no NaN
        scores = scores.masked_fill(~keep[:, None, None], torch.finfo(scores.dtype).min)
    return scores.softmax(-1) @ v


def average_segments(x: Tensor, landmarks: int, keep: Tensor | None) -> Tensor:
    """Landmarks: means of segments of the real tokens, (B, H, T, D) -> (B, H, M, D). Token t of n is in segment
    floor(t M / n)."""
    length = x.shape[2]
    if keep is None and length % landmarks == 0:
        return x.unflatten(2, (landmarks, -1)).mean(3)  # (B, H, T, D) -> (B, H, M, T/M, D) -> (B, H, M, D)
    index = torch.arange(length, device=x.device)
    lengths = length if keep is None else keep.sum(1, keepdim=True).clamp(min=1)
    segment = (index * landmarks // lengths).view(-1, length)  # (B, T) or (1, T); that of padding is M or more
    members = (segment.unsqueeze(1) == torch.arange(landmarks, device=x.device).unsqueeze(-1)).to(x.dtype)
    means = members / members.sum(-1, keepdim=True)  # (B, M, T)
    return means.unsqueeze(1) @ x


def invert(matrix: Tensor, iterations: int = 6, init: InverseInit = "matrix") -> Tensor:
    """Iterative Moore-Penrose pseudo-inverse of softmax matrices A (Razavi et al. 2014), (..., M, M):

        Z <- Z (13 - A Z (15 - A Z (7 - A Z))) / 4,    Z_0 = A^T / (|A|_1 |A|_inf)

    Rows of A sum to one, so |A|_inf = 1. `init` "matrix" divides by the largest column sum |A|_1 of each matrix,
    "batch" by the largest of all matrices, as the first released code.
    """
    norms = matrix.sum(-2).amax(-1)[..., None, None]  # (..., 1, 1)
    inverse = matrix.mT / (norms if init == "matrix" else norms.amax())
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    seven, fifteen, thirteen = 7 * identity, 15 * identity, 13 * identity
    for _ in range(iterations):
        product = matrix @ inverse
        inverse = 0.25 * inverse @ (thirteen - product @ (fifteen - product @ (seven - product)))
    return inverse


class NystromConfig(QKVMixerConfig):
    """Nystrom attention with `landmarks` segment means (Xiong et al. 2021)."""

    kind: Literal["nystromformer"] = "nystromformer"
    landmarks: int = Field(64, ge=0)  # 0: softmax attention, beside the convolution
    iterations: int = Field(6, ge=1)  # of the pseudo-inverse
    kernel: int = Field(65, ge=0)  # tokens that the convolution of the values reads, an odd number; 0: no convolution
    # largest column sum that the pseudo-inverse starts from: of each matrix, or of the batch as in released weights
    inverse_init: InverseInit = "matrix"

    @model_validator(mode="after")
    def _check_kernel(self) -> Self:
        if self.kernel and self.kernel % 2 == 0:
            raise ValueError(f"a kernel of {self.kernel} tokens has no middle; use an odd number")
        return self

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal(self.kind)
        return NystromAttention(
            landmarks=self.landmarks,
            iterations=self.iterations,
            kernel=self.kernel,
            inverse_init=self.inverse_init,
            **self.resolve_arguments(build_ctx),
        )
