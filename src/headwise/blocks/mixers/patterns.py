"""Sparse attention patterns: which keys a query attends to, and the partition of a row into blocks.

A pattern is a rule over the indices of a query and a key in their row. It also bounds the window of keys that a block
of queries attends to; inside that window the rule is the mask.

Letters: B rows, T tokens, H heads, D head_width, N blocks, S tokens of a block, W keys of a block's window, R key
blocks of a block.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.blocks.attention.score_mods import AttentionLayout, ScoreMod
from headwise.blocks.stream import LayerPath


class Pattern(ScoreMod):
    """A sparse attention pattern that is the same for every block: the mask of queries and keys by their indices from
    the start of the row, which `query_pos` and `key_pos` of the layout must hold."""

    needs_positions = True
    uniform = False  # whether all queries of a block attend to the same keys
    relative = False  # whether it depends on the distance of query and key alone

    def __init__(self, block: int, left: int, right: int, causal: bool):
        super().__init__()
        self.block, self.left, self.right, self.causal = block, left, 0 if causal else right, causal

    def partition(self, length: int) -> BlockPartition:
        """The blocks of a row of tokens, with the windows of this pattern."""
        return BlockPartition(length, self.block, self.left, self.right)

    def key(self) -> Any:
        return type(self).__name__, self.block, self.left, self.right, self.causal

    def is_visible(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether the query at one index attends to the key at another; broadcasts."""
        visible = self.is_connected(query, key)
        return visible & (key <= query) if self.causal else visible

    @abstractmethod
    def is_connected(self, query: Tensor, key: Tensor) -> Tensor:
        """`is_visible` without the causal mask."""

    @abstractmethod
    def find_window_start(self, query: int) -> int:
        """The first key of the window of this query and those after it."""

    def select_keys(self, query: int, queries: int) -> tuple[slice, ...]:
        """The keys that `queries` new tokens from index `query` on attend to; may include a few more."""
        return (slice(self.find_window_start(query), None),)

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        assert layout.query_pos is not None and layout.key_pos is not None
        return ~self.is_visible(layout.query_pos.unsqueeze(1), layout.key_pos)


class Local(Pattern):
    """Local attention: tokens of a block attend to their block, to `before` blocks before it and to `after` blocks
    after it (Liu et al. 2018, section 4.2.4; Kitaev et al. 2020)."""

    def __init__(self, block: int, before: int = 0, after: int = 0, causal: bool = False):
        super().__init__(block, before * block, after * block, causal)
        self.uniform = not causal

    def is_connected(self, query: Tensor, key: Tensor) -> Tensor:
        start = query - query % self.block
        return (key >= start - self.left) & (key < start + self.block + self.right)

    def find_window_start(self, query: int) -> int:
        return max(0, query - query % self.block - self.left)


class Sliding(Pattern):
    """Sliding window: a token attends to `left` tokens before it and `right` after it (Beltagy et al. 2020)."""

    relative = True

    def __init__(self, left: int, right: int = 0, causal: bool = False):
        # About as long as the window: longer blocks compute more masked scores, shorter ones leave kernels little work.
        block = min(max(left, 0 if causal else right, 32), 256)
        super().__init__(block, left, right, causal)

    def is_connected(self, query: Tensor, key: Tensor) -> Tensor:
        return (key >= query - self.left) & (key <= query + self.right)

    def find_window_start(self, query: int) -> int:
        return max(0, query - self.left)


class Strided(Pattern):
    """Strided attention: a token attends to tokens nearer than `stride` and to every `stride`-th one beyond (Child et
    al. 2019, section 4.3: both parts in one head)."""

    relative = True

    def __init__(self, stride: int, causal: bool = False):
        super().__init__(stride, stride, stride, causal)

    def is_connected(self, query: Tensor, key: Tensor) -> Tensor:
        distance = query - key
        return (distance.abs() < self.block) | (distance % self.block == 0)

    def find_window_start(self, query: int) -> int:
        return max(0, query - self.block + 1)

    def select_keys(self, query: int, queries: int) -> tuple[slice, ...]:
        if queries > 1:
            return (slice(0, None),)
        near = self.find_window_start(query)
        return slice(query % self.block, near, self.block), slice(near, None)


@dataclass(frozen=True)
class BlockPartition:
    """A row of `length` tokens cut into blocks of queries, each with a window of keys around it."""

    length: int
    block: int
    left: int = 0
    right: int = 0

    @property
    def width(self) -> int:
        """Keys of the window of a block."""
        return self.left + self.block + self.right

    @property
    def count(self) -> int:
        return -(-self.length // self.block)

    @property
    def padding(self) -> int:
        """Tokens that the last block lacks."""
        return self.count * self.block - self.length

    def split(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, H, N, S, D)."""
        return (F.pad(x, (0, 0, 0, self.padding)) if self.padding else x).unflatten(2, (self.count, self.block))

    def unfold(self, x: Tensor) -> Tensor:
        """The windows of all blocks, (B, H, T, D) -> (B, H, N, W, D): overlapping views of one padded copy."""
        return F.pad(x, (0, 0, self.left, self.padding + self.right)).unfold(2, self.width, self.block).mT

    def split_labels(self, labels: Tensor, fill: int = -1) -> Tensor:
        """Labels of tokens (B, T), such as segments -> of each block (B, N, S); `fill` beyond the row."""
        return F.pad(labels, (0, self.padding), value=fill).unflatten(1, (self.count, self.block))

    def unfold_labels(self, labels: Tensor, fill: int = -1) -> Tensor:
        """Labels of tokens (B, T) -> of the window of each block (B, N, W); `fill` beyond the row."""
        return F.pad(labels, (self.left, self.padding + self.right), value=fill).unfold(1, self.width, self.block)

    def merge(self, x: Tensor) -> Tensor:
        """(B, H, N, S, D) -> (B, H, T, D)."""
        return x.flatten(2, 3)[:, :, : self.length]


@dataclass(frozen=True)
class BigBirdGraph:
    """BigBird's graph of blocks: each block attends to a window of `neighbours` blocks on either side, to `random`
    random blocks and to the global blocks, which attend to everything (Zaheer et al. 2020, section 2): the `first`
    blocks and the `last` blocks of a text. Random blocks depend on seed, layer, head and block alone, so they are fixed
    for a layer, and padding does not change them.

    DISCREPANCY: the released codes draw random blocks anew for each length, and take the last block of the padded batch
    for that of every text; `transformers` uses full attention for texts of few blocks, and in evaluation replaces each
    random block by the first block, which then counts several times. `like_transformers` does the same, but for the
    random draws.
    """

    block: int = 64
    neighbours: int = 1
    random: int = 3
    first: int = 1
    last: int = 1
    seed: int = 0
    like_transformers: bool = False

    @property
    def width(self) -> int:
        """The largest number of key blocks of a block."""
        return 2 * self.neighbours + 1 + self.first + self.last + self.random

    def is_full(self, length: int) -> bool:
        """Whether `transformers` uses full attention for a text of this length."""
        return self.like_transformers and length <= (self.width + self.random) * self.block

    def find_last_block(self, length: int, keep: Tensor | None, device: torch.device) -> Tensor:
        """The last block of each text: (B,) or, if it is the same for all, (1,)."""
        if keep is None or self.like_transformers:
            last = torch.full((1,), length - 1, device=device)
        else:
            last = (torch.arange(length, device=device) * keep).amax(1)
        # First and last global blocks stay different blocks, even if a text is shorter.
        return (last // self.block).clamp(min=self.first + self.last - 1)

    def list_global_blocks(self, last_block: Tensor) -> Tensor:
        """The indices of the global blocks, (B, R)."""
        first = torch.arange(self.first, device=last_block.device).expand(len(last_block), -1)
        return torch.cat((first, last_block.unsqueeze(1) - torch.arange(self.last, device=last_block.device)), 1)

    def is_global(self, block: Tensor, last_block: Tensor) -> Tensor:
        """Whether a block is a global block; broadcasts."""
        return (block < self.first) | ((block > last_block - self.last) & (block <= last_block))

    def choose_key_blocks(self, last_block: Tensor, count: int, heads: int, path: LayerPath, training: bool) -> Tensor:
        """The key blocks of each of `count` blocks, (B, H, N, R): window, global and random blocks; -1: none."""
        query = torch.arange(count, device=last_block.device).unsqueeze(1)
        window = query + torch.arange(-self.neighbours, self.neighbours + 1, device=last_block.device)
        window = window.expand(len(last_block), heads, -1, -1)
        window = window.masked_fill(self.is_global(window, last_block.view(-1, 1, 1, 1)), -1)
        global_blocks = self.list_global_blocks(last_block)[:, None, None].expand(-1, heads, count, -1)
        random = self.draw_random_blocks(last_block, count, heads, path, training)
        blocks = torch.cat((window, global_blocks, random), 3)
        return blocks.masked_fill((blocks < 0) | (blocks >= count), -1)

    def draw_random_blocks(self, last_block: Tensor, count: int, heads: int, path: LayerPath, training: bool) -> Tensor:
        """Random key blocks, neither in the window nor global: (B, H, N, R)."""
        device = last_block.device
        if self.like_transformers and not training:
            return last_block.new_zeros(len(last_block), heads, count, self.random)
        query, key = torch.arange(count, device=device).unsqueeze(1), torch.arange(count, device=device)
        limit = last_block.view(-1, 1, 1, 1) - self.last
        allowed = ((query - key).abs() > self.neighbours) & (key >= self.first) & (key <= limit)  # (B, 1, N, N)
        layer = [step for step in path if isinstance(step, int)]
        draws = hash_integers(self.seed, *layer, torch.arange(heads, device=device).view(-1, 1, 1), query, key)
        draws, blocks = torch.where(allowed, draws, -1).topk(min(self.random, count))
        return blocks.masked_fill(draws < 0, -1)

    def count_edges(self, key_blocks: Tensor, last_block: Tensor) -> Tensor:
        """How often each block attends to each, (B, H, N, N)."""
        blocks = torch.arange(key_blocks.shape[2], device=last_block.device)
        counts = (key_blocks.unsqueeze(4) == blocks).sum(3)  # (B, H, N, R) -> (B, H, N, N)
        return torch.where(self.is_global(blocks.unsqueeze(1), last_block.view(-1, 1, 1, 1)), 1, counts)


def hash_integers(*numbers: Tensor | int) -> Any:
    """A pseudo-random integer in [0, 2^31) of all the given ones: a hash that is the same on every device."""
    mixed: Any = 0
    for number in numbers:
        mixed = (mixed * 0x27D4EB2F + number + 0x165667B1) & 0x7FFFFFFF
        for shift in (16, 13):
            mixed = ((mixed ^ (mixed >> shift)) * 0x45D9F3B) & 0x7FFFFFFF
    return mixed


class EdgeCountBias(ScoreMod):
    """Adds log(how often a query attends to a key) to its score, block by block: -inf where it does not. `extra` global
    tokens before the text attend to all and are attended to by all."""

    def __init__(self, counts: Tensor, block: int, extra: int = 0):
        super().__init__()
        self.counts, self.block, self.extra = counts, block, extra

    def bias(self, layout: AttentionLayout) -> Tensor:
        length = layout.keys - self.extra
        table = self.counts.log()
        for dim in (2, 3):  # (B, H, N, N) -> (B, H, T, T)
            table = table.repeat_interleave(self.block, dim).narrow(dim, 0, length)
        return F.pad(table, (self.extra, 0, self.extra, 0))
