"""Which keys a query sees: patterns as rules, and a row of tokens cut into blocks so that nothing else is computed.

A rule says for a query and a key, by their places in the row, whether one sees the other. It also says how far a block
of queries can see; inside that stretch the rule is the mask.

Letters: B rows, T tokens, H heads, D head_width, N blocks, S tokens of a block, W keys that a block looks at, R blocks
that a block sees.
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
    """A rule. Places count from the start of the row: `query_pos` and `key_pos` of the layout are to hold them. It is
    the same for every block."""

    needs_positions = True
    alike = False  # whether all queries of a block see the same keys

    def __init__(self, block: int, left: int, right: int, causal: bool):
        super().__init__()
        self.block, self.left, self.right, self.causal = block, left, 0 if causal else right, causal

    def blocks(self, length: int) -> Blocks:
        """A row of tokens as this pattern cuts it."""
        return Blocks(length, self.block, self.left, self.right)

    def key(self) -> Any:
        return type(self).__name__, self.block, self.left, self.right, self.causal

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether the query at one place sees the key at another; broadcasts."""
        seen = self.rule(query, key)
        return seen & (key <= query) if self.causal else seen

    @abstractmethod
    def rule(self, query: Tensor, key: Tensor) -> Tensor:
        """`sees`, as if all were past."""

    @abstractmethod
    def oldest(self, query: int) -> int:
        """The first key of the stretch that queries from this one on see."""

    def shown(self, query: int, queries: int) -> tuple[slice, ...]:
        """The keys that some of the newest tokens see, the first of them at `query`; perhaps a few more."""
        return (slice(self.oldest(query), None),)

    def mask(self, layout: AttentionLayout) -> Tensor | None:
        assert layout.query_pos is not None and layout.key_pos is not None
        return ~self.sees(layout.query_pos.unsqueeze(1), layout.key_pos)


class Local(Pattern):
    """Tokens of a block see those of the same block, of `before` blocks before and of `after` after it (Liu et al.
    2018, section 4.2.4; Kitaev et al. 2020)."""

    def __init__(self, block: int, before: int = 0, after: int = 0, causal: bool = False):
        super().__init__(block, before * block, after * block, causal)
        self.alike = not causal

    def rule(self, query: Tensor, key: Tensor) -> Tensor:
        start = query - query % self.block
        return (key >= start - self.left) & (key < start + self.block + self.right)

    def oldest(self, query: int) -> int:
        return max(0, query - query % self.block - self.left)


class Sliding(Pattern):
    """A token sees `left` tokens before it and `right` after it (Beltagy et al. 2020)."""

    def __init__(self, left: int, right: int = 0, causal: bool = False):
        # About as long as the window: longer ones compute more than is seen, shorter ones leave kernels little to do.
        block = min(max(left, 0 if causal else right, 32), 256)
        super().__init__(block, left, right, causal)

    def rule(self, query: Tensor, key: Tensor) -> Tensor:
        return (key >= query - self.left) & (key <= query + self.right)

    def oldest(self, query: int) -> int:
        return max(0, query - self.left)


class Strided(Pattern):
    """A token sees those nearer than `stride`, and every `stride`-th beyond (Child et al. 2019, section 4.3: both parts
    in one head)."""

    def __init__(self, stride: int, causal: bool = False):
        super().__init__(stride, stride, stride, causal)

    def rule(self, query: Tensor, key: Tensor) -> Tensor:
        distance = query - key
        return (distance.abs() < self.block) | (distance % self.block == 0)

    def oldest(self, query: int) -> int:
        return max(0, query - self.block + 1)

    def shown(self, query: int, queries: int) -> tuple[slice, ...]:
        if queries > 1:
            return (slice(0, None),)
        near = self.oldest(query)
        return slice(query % self.block, near, self.block), slice(near, None)


@dataclass(frozen=True)
class Blocks:
    """A row of `length` tokens cut into blocks, and what stands around each."""

    length: int
    block: int
    left: int = 0
    right: int = 0

    @property
    def width(self) -> int:
        """How many keys a block of queries looks at."""
        return self.left + self.block + self.right

    @property
    def count(self) -> int:
        return -(-self.length // self.block)

    @property
    def missing(self) -> int:
        """How many tokens the last block lacks."""
        return self.count * self.block - self.length

    def own(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, H, N, S, D)."""
        return (F.pad(x, (0, 0, 0, self.missing)) if self.missing else x).unflatten(2, (self.count, self.block))

    def around(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, H, N, W, D): overlapping views of one padded copy."""
        return F.pad(x, (0, 0, self.left, self.missing + self.right)).unfold(2, self.width, self.block).mT

    def marks(self, x: Tensor, fill: int = -1) -> Tensor:
        """Marks of tokens (B, T) -> of the keys around each block (B, N, W); `fill` beyond the row."""
        return F.pad(x, (self.left, self.missing + self.right), value=fill).unfold(1, self.width, self.block)

    def own_marks(self, x: Tensor, fill: int = -1) -> Tensor:
        """Marks of tokens (B, T) -> of those of each block (B, N, S)."""
        return F.pad(x, (0, self.missing), value=fill).unflatten(1, (self.count, self.block))

    def whole(self, x: Tensor) -> Tensor:
        """(B, H, N, S, D) -> (B, H, T, D)."""
        return x.flatten(2, 3)[:, :, : self.length]


@dataclass(frozen=True)
class Graph:
    """BigBird's: blocks see `reach` neighbours on either side, `random` others, and the blocks at the ends, which see
    everything (Zaheer et al. 2020, section 2). Which others they are depends on seed, place, head and block alone, so a
    layer keeps its blocks, and padding does not change them.

    DISCREPANCY: the released codes draw blocks anew for each length, and take the end of the padded batch for that of
    every text; `transformers` sees texts of few blocks whole, and in evaluation puts the first block in the place of
    each random one, where it counts again. `released` does as `transformers`, but for the draws.
    """

    block: int = 64
    reach: int = 1
    random: int = 3
    first: int = 1
    last: int = 1
    seed: int = 0
    released: bool = False

    @property
    def width(self) -> int:
        """How many blocks a block sees at most."""
        return 2 * self.reach + 1 + self.first + self.last + self.random

    def sees_all(self, length: int) -> bool:
        """Whether a text is seen whole, though it has more blocks than one sees."""
        return self.released and length <= (self.width + self.random) * self.block

    def final(self, length: int, keep: Tensor | None, device: torch.device) -> Tensor:
        """The last block of each text: (B,) or, where they are alike, (1,)."""
        if keep is None or self.released:
            last = torch.full((1,), length - 1, device=device)
        else:
            last = (torch.arange(length, device=device) * keep).amax(1)
        # The blocks at the ends are apart even where a text is shorter than they are.
        return (last // self.block).clamp(min=self.first + self.last - 1)

    def ends(self, final: Tensor) -> Tensor:
        """The numbers of the blocks that see everything, (B, R)."""
        first = torch.arange(self.first, device=final.device).expand(len(final), -1)
        return torch.cat((first, final.unsqueeze(1) - torch.arange(self.last, device=final.device)), 1)

    def at_an_end(self, block: Tensor, final: Tensor) -> Tensor:
        """Whether a block is one of those; broadcasts."""
        return (block < self.first) | ((block > final - self.last) & (block <= final))

    def seen(self, final: Tensor, count: int, heads: int, path: LayerPath, training: bool) -> Tensor:
        """The blocks that each of `count` blocks sees, (B, H, N, R): neighbours, ends, random ones. -1: not so many."""
        own = torch.arange(count, device=final.device).unsqueeze(1)
        near = own + torch.arange(-self.reach, self.reach + 1, device=final.device)
        near = near.expand(len(final), heads, -1, -1)
        near = near.masked_fill(self.at_an_end(near, final.view(-1, 1, 1, 1)), -1)
        ends = self.ends(final)[:, None, None].expand(-1, heads, count, -1)
        blocks = torch.cat((near, ends, self.drawn(final, count, heads, path, training)), 3)
        return blocks.masked_fill((blocks < 0) | (blocks >= count), -1)

    def drawn(self, final: Tensor, count: int, heads: int, path: LayerPath, training: bool) -> Tensor:
        """Random blocks, neither neighbours nor ends: (B, H, N, R)."""
        if self.released and not training:
            return final.new_zeros(len(final), heads, count, self.random)
        own, other = torch.arange(count, device=final.device).unsqueeze(1), torch.arange(count, device=final.device)
        limit = final.view(-1, 1, 1, 1) - self.last
        free = ((own - other).abs() > self.reach) & (other >= self.first) & (other <= limit)  # (B, 1, N, N)
        numbers = [number for number in path if isinstance(number, int)]
        lots = scattered(self.seed, *numbers, torch.arange(heads, device=final.device).view(-1, 1, 1), own, other)
        lots, blocks = torch.where(free, lots, -1).topk(min(self.random, count))
        return blocks.masked_fill(lots < 0, -1)

    def counts(self, seen: Tensor, final: Tensor) -> Tensor:
        """How often each block sees each, (B, H, N, N)."""
        blocks = torch.arange(seen.shape[2], device=final.device)
        counts = (seen.unsqueeze(4) == blocks).sum(3)  # (B, H, N, R) -> (B, H, N, N)
        return torch.where(self.at_an_end(blocks.unsqueeze(1), final.view(-1, 1, 1, 1)), 1, counts)


def scattered(*numbers: Tensor | int) -> Any:
    """An integer in [0, 2^31) that depends on all of the given ones and looks random: a hash, alike on every device."""
    mixed: Any = 0
    for number in numbers:
        mixed = (mixed * 0x27D4EB2F + number + 0x165667B1) & 0x7FFFFFFF
        for shift in (16, 13):
            mixed = ((mixed ^ (mixed >> shift)) * 0x45D9F3B) & 0x7FFFFFFF
    return mixed


class Counted(ScoreMod):
    """log(how often a query sees a key) added to its score, block by block; `extra` tokens before the text see all and
    are seen by all."""

    def __init__(self, counts: Tensor, block: int, extra: int = 0):
        super().__init__()
        self.counts, self.block, self.extra = counts, block, extra

    def bias(self, layout: AttentionLayout) -> Tensor:
        length = layout.keys - self.extra
        table = self.counts.log()
        for dim in (2, 3):  # (B, H, N, N) -> (B, H, T, T)
            table = table.repeat_interleave(self.block, dim).narrow(dim, 0, length)
        return F.pad(table, (self.extra, 0, self.extra, 0))
