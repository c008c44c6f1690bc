"""Contrastive losses on the features of frames: CURL (Laskin et al. 2020) and M-CURL (Zhu et al. 2020).

Both are InfoNCE (van den Oord et al. 2018): each query is to be told apart from those of the other frames by its own
key. Keys are made by a momentum encoder, to which no gradient flows.

DISCREPANCY: the released code of M-CURL has attention without an output projection; ours is that of every other model.
It adds sequences of frames without regard to where episodes end; here a window ends with its episode.

Letters: B frames or windows, L frames of a window, N frames of all windows, C width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.stack import Positions, Stack
from headwise.blocks.stream import Context, Stream

Encode = Callable[[Tensor], Tensor]
NO_QUERY = -1  # label of a row without loss
BLANK, RANDOM = 0.8, 0.1  # shares of the masked frames that are blank, or another frame; the others stay


def compute_info_nce(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean InfoNCE of logits (B, keys): cross-entropy with each query's own key; rows whose label is `NO_QUERY` are
    left out. Equal logits give ln(keys).

    >>> bool(compute_info_nce(torch.zeros(4, 4), torch.arange(4)).isclose(torch.tensor(4.0).log()))
    True
    """
    return F.cross_entropy(logits.float(), labels, ignore_index=NO_QUERY)


@dataclass(frozen=True)
class Views:
    """What a contrastive loss may use: the features of one crop of the batch that the agent learns from, and frames to
    crop again."""

    features: Tensor  # (B, C)
    frames: Tensor  # (B, channels, H, W) bytes, before the crop
    windows: Tensor  # (B, L, channels, H, W) bytes, of consecutive frames
    keep: Tensor  # (B, L) True = of the same episode as the first
    crop: Encode  # a random crop of bytes (..., channels, H, W), as numbers


class Contrast(nn.Module):
    """Base of contrastive losses: `forward(views, encode, encode_keys)` is a mean over queries. This one has none."""

    windows: int = 0  # of consecutive frames in a batch
    window: int = 1  # frames of each

    def forward(self, views: Views, encode: Encode, encode_keys: Encode) -> Tensor:
        return views.features.new_zeros(())


class BilinearContrast(Contrast):
    """CURL: logits q W kᵀ of two random crops of the same frames."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width, width))

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(B, C) and (B, C) -> logits (B, B). The maximum of a row is subtracted, which changes no loss."""
        logits = queries @ self.weight @ keys.T
        return logits - logits.detach().max(1, keepdim=True).values

    def forward(self, views: Views, encode: Encode, encode_keys: Encode) -> Tensor:
        keys = encode_keys(views.crop(views.frames))
        return compute_info_nce(self.compare(views.features, keys), torch.arange(len(keys), device=keys.device))


class MaskedContrast(Contrast):
    """M-CURL: in windows of consecutive frames some are masked, a Transformer reads the features of all frames of a
    window, and its output at a masked frame is to find that frame's key among the keys of all windows.

    The Transformer is auxiliary: the policy does not use it.
    """

    def __init__(self, stack: Stack, positions: Positions, windows: int, window: int, mask_rate: float):
        super().__init__()
        self.stack, self.positions = stack, positions
        self.windows, self.window, self.mask_rate = windows, window, mask_rate

    def mask(self, frames: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """Mask frames (B, L, channels, H, W): each of `keep` (B, L) with a chance of `mask_rate`; of those 80 % are
        blank, 10 % another frame, and 10 % stay. Returns the frames, and where they are masked."""
        draw = torch.rand(keep.shape, device=frames.device)
        masked = (draw < self.mask_rate) & keep
        masked[0, 0] |= ~masked.any()  # one frame at least, so that there is a loss
        share = (draw / self.mask_rate)[..., None, None, None]
        other = torch.randint(len(keep) * keep.shape[1], keep.shape, device=frames.device)
        others = frames.flatten(0, 1)[other]  # (N, ...)[(B, L)] -> (B, L, ...)
        changed = torch.where(share < BLANK, torch.zeros_like(frames), others)
        is_changed = masked[..., None, None, None] & (share < BLANK + RANDOM)
        return torch.where(is_changed, changed, frames), masked

    def contextualise(self, features: Tensor, keep: Tensor) -> Tensor:
        """Features of frames that have seen the other frames of their window: (B, L, C) -> (B, L, C)."""
        pos = torch.arange(features.shape[1], device=features.device)
        return self.stack(Stream(self.positions(features, pos, 0), pos, keep), Context()).x

    def forward(self, views: Views, encode: Encode, encode_keys: Encode) -> Tensor:
        frames, masked = self.mask(views.windows, views.keep)
        features = encode(views.crop(frames).flatten(0, 1)).unflatten(0, masked.shape)  # (N, ...) -> (B, L, C)
        keys = encode_keys(views.crop(views.windows).flatten(0, 1))  # (N, C)
        queries = self.contextualise(features, views.keep).flatten(0, 1)  # (B, L, C) -> (N, C)
        logits = queries @ keys.T  # (N, N)
        known = logits.masked_fill(~views.keep.flatten(), -torch.inf)  # frames of padding are no keys
        labels = torch.arange(len(keys), device=keys.device).masked_fill(~masked.flatten(), NO_QUERY)
        return compute_info_nce(known, labels)
