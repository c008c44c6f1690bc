"""Chunks of LSH attention (Kitaev et al. 2020, section 2): tokens sorted by bucket and cut into chunks and blocks.

A chunk attends to itself and to the chunk before it. In an encoder a block is a chunk. In a decoder each bucket starts
a new chunk, so most chunks are not full and many have no chunk before them; there blocks are half chunks, and only
blocks that hold tokens are computed. That needs the sizes of the buckets on the host, which forces a synchronisation on
accelerators: those compute whole chunks with pad slots instead.

Letters: R hash rounds, Z rows, T length, M slots of a block, N blocks of a row, L sorted sequences (one for each hash
round; with `shortcuts`, all rounds in one).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

HOST_DEVICES = {"cpu"}  # devices on which reading a value needs no synchronisation


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks of a sorted sequence that attend to equally many key blocks: some before them and, last, themselves."""

    sequence: int
    blocks: Tensor  # (x,) indices into the Z*N blocks of the sequence
    key_blocks: Tensor  # (x, w)
    all_visible: bool  # every key is visible, up to the mask inside a block; else chunk ids decide

    @classmethod
    def looking_back(cls, sequence: int, blocks: Tensor, width: int) -> Group:
        """Blocks that attend to themselves and to the `width` - 1 blocks before them."""
        steps = torch.arange(1 - width, 1, device=blocks.device)
        return cls(sequence, blocks, blocks[:, None] + steps, all_visible=True)


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """Slots of the tokens after sorting by bucket."""

    slots: Tensor  # (R, Z, T) slot of each sorted token among the N*M of its row
    chunks: Tensor  # (R, Z, T) chunk index of each sorted token
    chunk: int  # tokens of a chunk
    size: int  # slots of a block
    count: int  # blocks of a row
    rank: Tensor | None = None  # (R, Z, T) rank of each sorted token in its bucket; None: not read from the device

    @classmethod
    def contiguous(cls, bucket_starts: Tensor, chunk: int) -> ChunkLayout:
        """Cut the sorted tokens every `chunk` tokens, across bucket borders."""
        slots = torch.arange(bucket_starts.shape[-1], device=bucket_starts.device).expand(bucket_starts.shape)
        return cls(slots, slots // chunk, chunk, chunk, -(-bucket_starts.shape[-1] // chunk))

    @classmethod
    def by_bucket(cls, bucket_starts: Tensor, chunk: int, max_buckets: int) -> ChunkLayout:
        """Start a new chunk with each bucket. Where bucket sizes are not read, allocate the chunks that `max_buckets`
        buckets can need."""
        length, on_host = bucket_starts.shape[-1], bucket_starts.device.type in HOST_DEVICES or not max_buckets
        size = chunk // 2 if on_host and chunk % 2 == 0 else chunk
        index = torch.arange(length, device=bucket_starts.device)
        rank = index - torch.where(bucket_starts, index, 0).cummax(-1).values
        block = (rank % size == 0).cumsum(-1) - 1
        count = int(block.max()) + 1 if on_host else min(length, length // chunk + max_buckets)
        chunks = (rank % chunk == 0).cumsum(-1)
        return cls(block * size + rank % size, chunks, chunk, size, count, rank if on_host else None)

    def build_groups(self, blocks: int, rows: int, sequences: int) -> tuple[Group, ...]:
        """The key blocks of each of the `blocks` blocks of all rows of each sorted sequence."""
        groups = self._group_filled_blocks() if self.rank is not None else self._pair_blocks(blocks, rows, sequences)
        return tuple(groups)

    def _group_filled_blocks(self) -> list[Group]:
        """Blocks that hold tokens, grouped by the number of blocks up to them in their chunk and the one before."""
        assert self.rank is not None
        groups = []
        for sequence, (ranks, slots) in enumerate(zip(self.rank, self.slots, strict=True)):
            row, index = (ranks % self.size == 0).nonzero(as_tuple=True)
            blocks = row * self.count + slots[row, index] // self.size
            rank = ranks[row, index]  # of a block's first token
            start = (rank // self.chunk - 1).clamp(min=0) * self.chunk  # of the chunk before
            widths = (rank - start) // self.size + 1
            groups += [
                Group.looking_back(sequence, blocks[widths == width], width) for width in widths.unique().tolist()
            ]
        return groups

    def _pair_blocks(self, blocks: int, rows: int, sequences: int) -> list[Group]:
        """Each block with the one before it in its row; the first with the last."""
        index = torch.arange(blocks, device=self.slots.device)
        per_row = blocks // rows
        before = index - index % per_row + (index - 1) % per_row
        key_blocks = torch.stack((before, index), dim=1)[:, -min(2, per_row) :]
        return [Group(sequence, index, key_blocks, all_visible=False) for sequence in range(sequences)]
