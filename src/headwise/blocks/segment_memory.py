"""Segment-level recurrence of Transformer-XL: hidden states of earlier segments (Dai et al. 2019, section 3.2).

Letters: B rows, M tokens of earlier segments, T length, C width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headwise.blocks.stream import Cache, LayerPath, Stream

KEEP = "keep"  # (B, M) True = a token of the text that the row is in


class SegmentMemory(Cache):
    """The hidden states of earlier segments by path in the stack, the last `limit` tokens of each row.

    They were computed with earlier weights, and no gradient flows into them. `states` are those of the earlier
    segments, `next_states` those for the next one. Rows that are `fresh` begin a text and see no earlier segment.
    """

    def __init__(self, limit: int, states: Mapping[str, Tensor] | None = None, fresh: Tensor | None = None):
        self.limit = limit
        self.states = dict(states or {})
        if fresh is not None and KEEP in self.states:
            self.states[KEEP] = self.states[KEEP] & ~fresh.unsqueeze(1)
        self.next_states: dict[str, Tensor] = {}
        self.pos_and_keep: tuple[Tensor, Tensor] | None = None  # the same for all layers of a call

    def prepend_memory(self, path: LayerPath, stream: Stream) -> Stream:
        x = self._append(".".join(map(str, path)), stream.x)  # (B, M + T, C)
        if self.pos_and_keep is None:
            self.pos_and_keep = self._extend_pos_and_keep(stream, x.shape[1] - stream.x.shape[1])
        return Stream(x, *self.pos_and_keep)

    def _extend_pos_and_keep(self, stream: Stream, earlier: int) -> tuple[Tensor, Tensor]:
        """Positions (M + T,) and padding mask (B, M + T) with those of `earlier` tokens before the stream."""
        pos = stream.pos[..., :1] - torch.arange(earlier, 0, -1, device=stream.pos.device)
        keep = stream.keep if stream.keep is not None else torch.ones_like(stream.x[..., 0], dtype=torch.bool)
        return torch.cat((pos, stream.pos), -1), self._append(KEEP, keep)

    def _append(self, name: str, new: Tensor) -> Tensor:
        """The stored tokens and `new` after them; the last `limit` are stored for the next segment."""
        tokens = torch.cat((self.states[name], new), 1) if name in self.states else new
        self.next_states[name] = tokens[:, -self.limit :].detach()
        return tokens
