"""What a language model carries from one segment of a text to the next (Dai et al. 2019, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headwise.blocks.stream import Cache, LayerPath, Stream

KEEP = "keep"  # (B, M) True = a token of the text that the row is in


class SegmentMemory(Cache):
    """The hidden states of the segments before, by place in the stack: the last `limit` tokens of each row.

    They are made of other weights than today's, and no gradient flows into them. `left` is what the call before left;
    what this one leaves is `leaves`. Rows that are `fresh` see nothing of it.
    """

    def __init__(self, limit: int, left: Mapping[str, Tensor] | None = None, fresh: Tensor | None = None):
        self.limit = limit
        self.left = dict(left or {})
        if fresh is not None and KEEP in self.left:
            self.left[KEEP] = self.left[KEEP] & ~fresh.unsqueeze(1)
        self.leaves: dict[str, Tensor] = {}
        self.places: tuple[Tensor, Tensor] | None = None  # positions and keep, the same for all layers of a call

    def carry(self, path: LayerPath, stream: Stream) -> Stream:
        x = self._after(".".join(map(str, path)), stream.x)  # (B, M + T, C)
        if self.places is None:
            self.places = self._places(stream, x.shape[1] - stream.x.shape[1])
        return Stream(x, *self.places)

    def _places(self, stream: Stream, before: int) -> tuple[Tensor, Tensor]:
        earlier = stream.pos[..., :1] - torch.arange(before, 0, -1, device=stream.pos.device)
        keep = stream.keep if stream.keep is not None else torch.ones_like(stream.x[..., 0], dtype=torch.bool)
        return torch.cat((earlier, stream.pos), -1), self._after(KEEP, keep)

    def _after(self, name: str, new: Tensor) -> Tensor:
        whole = torch.cat((self.left[name], new), 1) if name in self.left else new
        self.leaves[name] = whole[:, -self.limit :].detach()
        return whole
