"""Attention among those who meet: tokens are sorted into chunks once for each round of hashing, a chunk sees itself and
the one before it, and all rounds together make one softmax (Kitaev et al. 2020, sections 2-3).

Scores are made for some blocks of tokens at a time, again in the backward pass, and never kept: memory is linear in the
length, and what is computed between two products stays in the processor's caches. Blocks are chunks or, in a decoder,
halves of them (`blocks/mixers/lsh_chunks.py`).

Letters: R rounds, Z = B * H rows of one head each, T length, D head_width, M tokens in a block; L lanes of X = Z * N
blocks. A lane is one round or, with shortcuts, all of them one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from headwise.blocks.mixers.lsh_chunks import ChunkLayout, Group

NOWHERE = torch.iinfo(torch.int64).max  # the bucket of padding, sorted behind all others
UNSEEN = -9  # a code that no token sees
AT_ONCE = {"cpu": 2**18}  # scores, so that they stay in a core's own cache; other devices have more to keep busy
MANY = 2**26
FAR = 1e30  # what is hidden is so far below all scores; finite, as -inf makes exponentials slow on CPUs
LOWEST = -1e20  # below all scores
BITS = 1 / math.log(2)  # scores are in bits: powers of two are the faster exponentials


@dataclass(frozen=True, slots=True)
class Part:
    """Some blocks of a group, with their tokens."""

    group: Group
    blocks: Tensor  # (x,)
    seen_blocks: Tensor  # (x, w)
    who: Tensor  # (x, M) those that look
    seen: Tensor  # (x, w*M) those that may be seen


@dataclass(frozen=True, slots=True)
class ChunkedAttention:
    """Who meets whom. Tokens are numbered over all rows; each row ends with one that is nobody, for empty seats."""

    who: Tensor  # (L, X, M) the tokens of each block
    seat: Tensor  # (R, Z*T) the place of each token among the L*X*M of all blocks
    code: Tensor  # (L, Z*(T+1)): in a lane i meets j if code_i - code_j is 0 or 1
    groups: tuple[Group, ...]
    order: Tensor | None  # (M, M) -FAR for itself and, in a decoder, the later ones of its block; None: see `causal`
    causal: bool

    @classmethod
    def of(cls, buckets: Tensor, chunk: int, causal: bool, shortcuts: bool, most: int = 0) -> ChunkedAttention:
        """The meetings of tokens in buckets (B, H, R, T), of which there are at most `most` (0: nobody knows).

        In the causal form chunks begin anew with each bucket: a token's chunk is told by the tokens before it alone,
        and so is what it sees, to the last bit. With shortcuts all of two chunks see each other, whatever their
        buckets, and the first chunk of a round sees the last of the round before.
        """
        buckets = buckets.flatten(0, 1).transpose(0, 1)  # (B, H, R, T) -> (R, Z, T)
        rounds, rows, length = buckets.shape
        ordered, order = buckets.sort(dim=-1, stable=True)
        fresh = F.pad(ordered[..., 1:] != ordered[..., :-1], (1, 0), value=True)  # where a bucket begins
        seating = (
            ChunkLayout.by_bucket(fresh, chunk, most)
            if causal and not shortcuts
            else ChunkLayout.in_a_row(fresh, chunk)
        )
        code = torch.where(ordered == NOWHERE, UNSEEN, 0) if shortcuts else seating.chunks + 2 * fresh.cumsum(-1)

        size, count, seats = seating.size, seating.count, seating.seats
        who = buckets.new_full((rounds, rows, count * size), length).scatter_(-1, seats, order)
        seat = torch.empty_like(order).scatter_(-1, order, seats)
        codes = buckets.new_full((rounds, rows, length + 1), UNSEEN).scatter_(-1, order, code)
        numbers = torch.arange(rounds * rows, device=order.device)
        if shortcuts:  # one lane
            numbers = numbers.view(rows, rounds).t()
            who, codes = who.transpose(0, 1).flatten(1).unsqueeze(0), codes[:1]  # (R, Z, N*M) -> (1, Z, R*N*M)
        seat = seat + count * size * numbers.view(rounds, rows, 1)
        base = (length + 1) * torch.arange(rows, device=order.device)[:, None]
        who = (who + base).unflatten(-1, (-1, size)).flatten(1, 2)  # (L, Z, N*M) -> (L, X, M)
        return cls(
            who.int(),
            seat.flatten(1),
            codes.flatten(1).float(),
            seating.groups(who.shape[1], rows, len(who)),
            None if shortcuts else in_order(size, causal, order.device),
            causal,
        )

    def seats(self, lane: int) -> Tensor:
        """The places of each token among the X*M of a lane, as often as it is there: (R / L, Z*T)."""
        lanes, blocks, size = self.who.shape
        return self.seat.unflatten(0, (lanes, -1))[lane] - lane * blocks * size

    def parts(self, lane: int | None = None) -> Iterator[Part]:
        """Some blocks of a lane, or of all, at a time."""
        size = self.who.shape[-1]
        for group in self.groups:
            if lane is not None and group.lane != lane:
                continue
            some = max(1, AT_ONCE.get(self.who.device.type, MANY) // (group.seen.shape[1] * size * size))
            for blocks, seen in zip(group.blocks.split(some), group.seen.split(some), strict=True):
                who = self.who[group.lane]
                yield Part(group, blocks, seen, rows(who, blocks), rows(who, seen).flatten(1))

    def scores(self, q: Tensor, k: Tensor, part: Part) -> Tensor:
        """q k of some blocks, far below all others where nothing is seen: (x, M, w*M).

        A pair that meets in several rounds counts in the first of them. That is the paper's correction: there each of
        N meetings has 1/N of the weight (-log N in the exponent, appendix A).
        """
        lane, who, seen = part.group.lane, part.who, part.seen
        size = who.shape[1]
        scores = torch.bmm(rows(q, who), rows(k, seen).mT)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.order is None:  # of other rounds, a token itself may be in the chunk before
            i, j = who.unsqueeze(2), seen.unsqueeze(1)
            scores.sub_((j >= i if self.causal else j == i).to(scores.dtype), alpha=FAR)
            scores.sub_(self.gaps(lane, who, seen, 0.0), alpha=FAR)
        else:
            scores[..., -size:].add_(self.order)
            if not part.group.certain:  # the code of the chunk before is 1 less
                before = torch.arange(seen.shape[1], device=seen.device) < seen.shape[1] - size
                scores.sub_(self.gaps(lane, who, seen, before.float()), alpha=FAR)
        if lane:
            nearest = self.gaps(0, who, seen, 0.5)  # 0.5 where a pair has met, more where not
            for earlier in range(1, lane):
                torch.minimum(nearest, self.gaps(earlier, who, seen, 0.5), out=nearest)
            scores.add_(nearest.sub_(1).clamp_(max=0), alpha=FAR)
        return scores

    def gaps(self, lane: int, who: Tensor, seen: Tensor, ahead: Tensor | float) -> Tensor:
        """How far codes are from being `ahead` of those they see: (x, M), (x, w*M) -> (x, M, w*M)."""
        code = self.code[lane]
        return (rows(code, who).unsqueeze(2) - (rows(code, seen) + ahead).unsqueeze(1)).abs_()


def in_order(size: int, causal: bool, device: torch.device) -> Tensor:
    """-FAR where a token must not see another of its block: (M, M)."""
    hidden = torch.full((size, size), -FAR, device=device).triu()
    return hidden if causal else hidden.tril()  # itself, too: it would outshine all others


def rows(table: Tensor, numbers: Tensor) -> Tensor:
    """Rows of a table: (n, ...), (x, m) -> (x, m, ...)."""
    return table.index_select(0, numbers.flatten()).unflatten(0, numbers.shape)


def with_nobody(x: Tensor) -> Tensor:
    """One more token for each row, zeros: (Z, T, ...) -> (Z*(T+1), ...)."""
    ends = (0, 0) * (x.dim() - 2) + (0, 1)
    return F.pad(x, ends).flatten(0, 1)


class Mix(torch.autograd.Function):
    """o_i = sum_j exp(q_i k_j - z_i) v_j over all j that i meets, (Z, T, D) each, with z the log of the weights' sum;
    a token that meets nobody has its own value (section 2, "causal masking").

    The weights of the backward pass are those of the whole, so nothing of single rounds is needed there.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, meeting: ChunkedAttention) -> tuple[Tensor, Tensor]:
        asked, keys, values = with_nobody(q).mul_(BITS), with_nobody(k), with_nobody(v)
        exact = torch.promote_types(q.dtype, torch.float32)
        mixed = v.new_empty(*meeting.who.shape, v.shape[-1])  # (L, X, M, D)
        sums = v.new_empty(*meeting.who.shape, 1, dtype=exact)
        for part in meeting.parts():
            scores = meeting.scores(asked, keys, part)
            top = scores.amax(-1, keepdim=True).clamp_(min=LOWEST)
            weights = scores.sub_(top).exp2_()
            total = weights.sum(-1, keepdim=True)
            found = torch.bmm(weights.to(v.dtype), rows(values, part.seen)).div_(total.clamp(min=1))
            mixed[part.group.lane].index_copy_(0, part.blocks, found)
            sums[part.group.lane].index_copy_(0, part.blocks, total.log2_().add_(top))
        seats = meeting.seat.flatten()
        each = sums.flatten(0, 2).index_select(0, seats).view(len(meeting.seat), *q.shape[:2], 1)  # (R, Z, T, 1)
        z = each.div_(BITS).logsumexp(0)
        alone = z == -torch.inf
        shares = (each - z.masked_fill(alone, 0)).exp().to(v.dtype)
        out = v.masked_fill(~alone, 0)
        for share, places in zip(shares, meeting.seat, strict=True):
            out.addcmul_(share, mixed.flatten(0, 2).index_select(0, places).view(v.shape))
        ctx.save_for_backward(q, k, v, out, z)
        ctx.meeting = meeting
        ctx.mark_non_differentiable(z)
        return out, z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        q, k, v, out, z = ctx.saved_tensors
        meeting, alone = ctx.meeting, z == -torch.inf
        asked, keys, values, wanted = with_nobody(q).mul_(BITS), with_nobody(k), with_nobody(v), with_nobody(grad)
        level = with_nobody(z.masked_fill(alone, 0)).mul_(BITS)  # (Z*(T+1), 1)
        slope = with_nobody((grad * out).sum(-1, keepdim=True).to(z.dtype))
        dq, dk, dv = (torch.zeros_like(q, memory_format=torch.contiguous_format) for _ in range(3))
        of_q, of_k, of_v = (q.new_empty(*meeting.who.shape[1:], q.shape[-1]) for _ in range(3))  # of one lane
        for lane in range(len(meeting.who)):
            of_k.zero_()
            of_v.zero_()
            for part in meeting.parts(lane):
                who, seen = part.who, part.seen
                weights = meeting.scores(asked, keys, part).sub_(rows(level, who)).exp2_()
                given = rows(wanted, who)
                give(of_v, part.seen_blocks, torch.bmm(weights.to(v.dtype).mT, given))
                steep = torch.bmm(given, rows(values, seen).mT).to(weights.dtype).sub_(rows(slope, who))
                steep = steep.mul_(weights).to(q.dtype)
                of_q.index_copy_(0, part.blocks, torch.bmm(steep, rows(keys, seen)))
                give(of_k, part.seen_blocks, torch.bmm(steep.mT, rows(asked, who)))
            for total, found in ((dq, of_q), (dk, of_k), (dv, of_v)):
                for seats in meeting.seats(lane):
                    total.add_(found.flatten(0, 1).index_select(0, seats).view_as(total))
        return dq, dk.div_(BITS), dv.add_(torch.where(alone, grad, 0)), None


def give(total: Tensor, blocks: Tensor, found: Tensor) -> None:
    """Add what some blocks got, (x, w*M, D), to all, (X, M, D); a column of `blocks` has none of them twice, so that
    the order of sums is always the same."""
    size = total.shape[1]
    for column, rows_found in zip(blocks.unbind(1), found.split(size, dim=1), strict=True):
        total.index_put_((column,), rows_found, accumulate=True)  # faster than index_add_ on CPUs


def weights(q: Tensor, k: Tensor, z: Tensor, meeting: ChunkedAttention) -> Tensor:
    """The whole map, for who wants to look at it: (Z, T, D), (Z, T, D), (Z, T, 1) -> (Z, T, T)."""
    count, length, _ = q.shape
    alone = z == -torch.inf
    asked, keys = with_nobody(q).mul_(BITS), with_nobody(k)
    level = with_nobody(z.masked_fill(alone, 0)).mul_(BITS)
    found = z.new_zeros(count * (length + 1), length + 1)
    for part in meeting.parts():
        who, seen = part.who.long(), part.seen.long() % (length + 1)
        share = meeting.scores(asked, keys, part).sub_(rows(level, who)).exp2_()
        found.index_put_((who.unsqueeze(2), seen.unsqueeze(1)), share, accumulate=True)
    found = found.view(count, length + 1, length + 1)[:, :length, :length]
    return torch.where(alone & torch.eye(length, dtype=torch.bool, device=q.device), 1, found)
