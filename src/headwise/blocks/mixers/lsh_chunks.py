"""Who sits where, and who is in sight, in attention by hashing: tokens sorted by buckets, in chunks, in blocks.

A chunk sees itself and the one before it. In an encoder a block is a chunk. In a decoder chunks begin anew with each
bucket, so most of them are not full and have none before them; there blocks are half chunks, and each looks only at
those that are there. That takes a look at how full buckets are, for which some devices would have to wait: they have
whole chunks with empty seats.

Letters: R rounds, Z rows, T length, M tokens in a block, N blocks in a row; L lanes (rounds, or all in one).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LOOKS = {"cpu"}  # devices that need not wait for a look


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks of a lane that see equally many: some before them and, last, their own."""

    lane: int
    blocks: Tensor  # (x,) among the Z*N of the lane
    seen: Tensor  # (x, w)
    certain: bool  # all of these tokens meet, but for the order of those in one block; else codes say who does

    @classmethod
    def reaching(cls, lane: int, blocks: Tensor, width: int) -> Group:
        """Blocks that see the `width` ones up to them."""
        return cls(lane, blocks, blocks[:, None] + torch.arange(1 - width, 1, device=blocks.device), certain=True)


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """The seats of tokens sorted by their buckets."""

    seats: Tensor  # (R, Z, T) among the N*M of a row
    chunks: Tensor  # (R, Z, T) the number of the chunk of each
    chunk: int  # tokens in a chunk
    size: int  # tokens in a block
    count: int  # blocks in a row
    rank: Tensor | None = None  # (R, Z, T) of each in its bucket, where that was looked at

    @classmethod
    def in_a_row(cls, fresh: Tensor, chunk: int) -> ChunkLayout:
        """Chunks one after the other, cut wherever a border falls; `fresh` says where a bucket begins."""
        places = torch.arange(fresh.shape[-1], device=fresh.device).expand(fresh.shape)
        return cls(places, places // chunk, chunk, chunk, -(-fresh.shape[-1] // chunk))

    @classmethod
    def by_bucket(cls, fresh: Tensor, chunk: int, most: int) -> ChunkLayout:
        """Each bucket begins a chunk; without a look there are as many chunks as `most` buckets may need."""
        length, looks = fresh.shape[-1], fresh.device.type in LOOKS or not most
        size = chunk // 2 if looks and chunk % 2 == 0 else chunk
        places = torch.arange(length, device=fresh.device)
        rank = places - torch.where(fresh, places, 0).cummax(-1).values
        number = (rank % size == 0).cumsum(-1) - 1
        count = int(number.max()) + 1 if looks else min(length, length // chunk + most)
        chunks = (rank % chunk == 0).cumsum(-1)
        return cls(number * size + rank % size, chunks, chunk, size, count, rank if looks else None)

    def groups(self, blocks: int, rows: int, lanes: int) -> tuple[Group, ...]:
        """Who sees whom among the `blocks` of all rows of each lane."""
        return tuple(self.there() if self.rank is not None else self.neighbours(blocks, rows, lanes))

    def there(self) -> list[Group]:
        """The blocks that have tokens, by how many they see: those up to them in their chunk and in the one before."""
        assert self.rank is not None
        groups = []
        for lane, (ranks, seats) in enumerate(zip(self.rank, self.seats, strict=True)):
            row, place = (ranks % self.size == 0).nonzero(as_tuple=True)
            blocks = row * self.count + seats[row, place] // self.size
            rank = ranks[row, place]  # of a block's first token
            before = (rank // self.chunk - 1).clamp(min=0) * self.chunk  # where the chunk before begins
            widths = (rank - before) // self.size + 1
            groups += [Group.reaching(lane, blocks[widths == width], width) for width in widths.unique().tolist()]
        return groups

    def neighbours(self, blocks: int, rows: int, lanes: int) -> list[Group]:
        """Each block and the one before it in its row, before the first the last."""
        own = torch.arange(blocks, device=self.seats.device)
        around = blocks // rows
        before = own - own % around + (own - 1) % around
        seen = torch.stack((before, own), dim=1)[:, -min(2, around) :]
        return [Group(lane, own, seen, certain=False) for lane in range(lanes)]
