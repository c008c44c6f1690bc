"""Attention among those who meet: tokens are sorted into chunks once for each round of hashing, a chunk sees itself and
the one before it, and all rounds together make one softmax (E1; Kitaev et al. 2020, sections 2-3).

Scores are made for some chunks at a time, again in the backward pass, and never kept: memory is linear in the length,
and what is computed between two products stays in the processor's caches.

Letters: R rounds, Z = B * H rows of one head each, T length, D head_width, M tokens in a chunk; L lanes of X = Z * N
chunks. A lane is one round or, with shortcuts, all of them one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

NOWHERE = torch.iinfo(torch.int64).max  # the bucket of padding, sorted behind all others
UNSEEN = -9  # a code that no token sees
AT_ONCE = {"cpu": 2**18}  # scores, so that they stay in a core's own cache; other devices have more to keep busy
MANY = 2**26
FAR = 1e30  # what is hidden is so far below all scores; finite, as -inf makes exponentials slow on CPUs
LOWEST = -1e20  # below all scores
BITS = 1 / math.log(2)  # scores are in bits: powers of two are the faster exponentials


@dataclass(frozen=True, slots=True)
class Meeting:
    """Who meets whom. Tokens are numbered over all rows; each row ends with one that is nobody, for empty seats."""

    who: Tensor  # (L, X, M) the tokens of each chunk
    seen: Tensor  # (L, X, 2M) those of the chunk before it and its own
    seat: Tensor  # (R, Z*T) the place of each token among the L*X*M of all chunks
    code: Tensor  # (L, Z*(T+1)): in a lane i meets j if code_i - code_j is 0 or 1
    ahead: Tensor  # (2M,) by how much a code is larger than that of those it sees: by 1 in the chunk before
    order: Tensor | None  # (M, 2M) -FAR for itself and, in a decoder, the later ones of its chunk; None: see `causal`
    causal: bool

    @classmethod
    def of(cls, buckets: Tensor, chunk: int, causal: bool, shortcuts: bool, most: int = 0) -> Meeting:
        """The meetings of tokens in buckets (B, H, R, T), of which there are at most `most` (0: nobody knows).

        In the causal form chunks begin anew with each bucket: a token's chunk is told by the tokens before it alone,
        and so is what it sees, to the last bit. With shortcuts all of two chunks see each other, whatever their
        buckets, and the first chunk of a round sees the last of the round before.
        """
        buckets = buckets.flatten(0, 1).transpose(0, 1)  # (B, H, R, T) -> (R, Z, T)
        rounds, rows, length = buckets.shape
        ordered, order = buckets.sort(dim=-1, stable=True)
        fresh = F.pad(ordered[..., 1:] != ordered[..., :-1], (1, 0), value=True)  # where a bucket begins
        seats, count = seated(fresh, chunk, most) if causal and not shortcuts else in_a_row(fresh, chunk)
        code = torch.where(ordered == NOWHERE, UNSEEN, 0) if shortcuts else seats // chunk + 2 * fresh.cumsum(-1)

        who = buckets.new_full((rounds, rows, count, chunk), length).flatten(2).scatter_(-1, seats, order)
        seat = torch.empty_like(order).scatter_(-1, order, seats)
        codes = buckets.new_full((rounds, rows, length + 1), UNSEEN).scatter_(-1, order, code)
        numbers = torch.arange(rounds * rows, device=order.device)
        if shortcuts:  # one lane
            numbers = numbers.view(rows, rounds).t()
            who, codes = who.transpose(0, 1).flatten(1).unsqueeze(0), codes[:1]  # (R, Z, N*M) -> (1, Z, R*N*M)
        seat = seat + count * chunk * numbers.view(rounds, rows, 1)
        who = who.unflatten(-1, (-1, chunk))  # (L, Z, N*M) -> (L, Z, N, M)
        before = who.roll(1, dims=2)
        if not shortcuts:
            before[:, :, 0] = length
        base = (length + 1) * torch.arange(rows, device=order.device)[:, None, None]
        seen = torch.cat((before, who), dim=-1) + base
        ahead = torch.arange(2 * chunk, device=order.device) < (0 if shortcuts else chunk)
        return cls(
            (who + base).flatten(1, 2).int(),
            seen.flatten(1, 2).int(),
            seat.flatten(1),
            codes.flatten(1).float(),
            ahead.float(),
            None if shortcuts else in_order(chunk, causal, order.device),
            causal,
        )

    def seats(self, lane: int) -> Tensor:
        """The places of each token among the X*M of a lane, as often as it is there: (R / L, Z*T)."""
        lanes, chunks, size = self.who.shape
        return self.seat.unflatten(0, (lanes, -1))[lane] - lane * chunks * size

    def seen_at(self, lane: int, rows: int) -> Tensor:
        """The same among all that are seen, X*2M: in its own chunk and, as one before, in the next. After a row's last
        chunk comes its first, which sees it or has nobody before it and so leaves zeros there."""
        seat, size = self.seats(lane), self.who.shape[-1]
        around = self.who[lane].numel() // rows  # the seats of a row
        chunk, own = seat // size, seat % size
        following = seat - seat % around + (seat + size) % around
        return torch.cat(((2 * chunk + 1) * size + own, following // size * 2 * size + own))  # (2R / L, Z*T)

    def parts(self, device: torch.device) -> Iterator[tuple[int, slice]]:
        """Lanes and some of their chunks at a time."""
        return product(range(len(self.who)), self.spans(device))

    def spans(self, device: torch.device) -> Iterator[slice]:
        """Some chunks of a lane at a time."""
        _, chunks, size = self.who.shape
        some = max(1, AT_ONCE.get(device.type, MANY) // (2 * size * size))
        return (slice(start, start + some) for start in range(0, chunks, some))

    def scores(self, q: Tensor, k: Tensor, lane: int, part: slice) -> Tensor:
        """q k of some chunks, far below all others where nothing is seen: (x, M, 2M).

        A pair that meets in several rounds counts in the first of them. That is the paper's correction: there each of
        N meetings has 1/N of the weight (-log N in the exponent, appendix A).
        """
        who, seen = self.who[lane, part], self.seen[lane, part]
        scores = torch.bmm(rows(q, who), rows(k, seen).mT)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.order is None:  # of other rounds, a token itself may be in the chunk before
            i, j = who.unsqueeze(2), seen.unsqueeze(1)
            scores.sub_((j >= i if self.causal else j == i).to(scores.dtype), alpha=FAR)
        else:
            scores.add_(self.order)
        scores.sub_(self.gaps(lane, who, seen, self.ahead), alpha=FAR)
        if lane:
            nearest = self.gaps(0, who, seen, 0.5)  # 0.5 where a pair has met, more where not
            for earlier in range(1, lane):
                torch.minimum(nearest, self.gaps(earlier, who, seen, 0.5), out=nearest)
            scores.add_(nearest.sub_(1).clamp_(max=0), alpha=FAR)
        return scores

    def gaps(self, lane: int, who: Tensor, seen: Tensor, ahead: Tensor | float) -> Tensor:
        """How far codes are from being `ahead` of those they see: (x, M), (x, 2M) -> (x, M, 2M)."""
        code = self.code[lane]
        return (rows(code, who).unsqueeze(2) - (rows(code, seen) + ahead).unsqueeze(1)).abs_()


def in_order(chunk: int, causal: bool, device: torch.device) -> Tensor:
    """-FAR where a token of a chunk must not see its own chunk: (M, 2M)."""
    hidden = torch.full((chunk, chunk), -FAR, device=device).triu()
    return F.pad(hidden if causal else hidden.tril(), (chunk, 0))  # itself, too: it would outshine all others


def in_a_row(fresh: Tensor, chunk: int) -> tuple[Tensor, int]:
    """Seats of tokens in the order of their buckets, (R, Z, T), and how many chunks that takes."""
    length = fresh.shape[-1]
    return torch.arange(length, device=fresh.device).expand(fresh.shape), -(-length // chunk)


def seated(fresh: Tensor, chunk: int, most: int) -> tuple[Tensor, int]:
    """The same where each bucket begins a chunk; the count is what is needed or, where a look would make a device wait,
    what may be needed."""
    length = fresh.shape[-1]
    places = torch.arange(length, device=fresh.device)
    rank = places - torch.where(fresh, places, 0).cummax(-1).values
    number = (rank % chunk == 0).cumsum(-1) - 1
    looks = fresh.device.type == "cpu" or not most
    count = int(number.max()) + 1 if looks else min(length, length // chunk + most)
    return number * chunk + rank % chunk, count


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
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, meeting: Meeting) -> tuple[Tensor, Tensor]:
        asked, keys, values = with_nobody(q).mul_(BITS), with_nobody(k), with_nobody(v)
        lanes, chunks, size = meeting.who.shape
        exact = torch.promote_types(q.dtype, torch.float32)
        mixed = v.new_empty(lanes, chunks, size, v.shape[-1])
        sums = v.new_empty(lanes, chunks, size, 1, dtype=exact)
        for lane, part in meeting.parts(q.device):
            scores = meeting.scores(asked, keys, lane, part)
            top = scores.amax(-1, keepdim=True).clamp_(min=LOWEST)
            weights = scores.sub_(top).exp2_()
            total = weights.sum(-1, keepdim=True)
            into = mixed[lane, part]
            torch.bmm(weights.to(v.dtype), rows(values, meeting.seen[lane, part]), out=into)
            into.div_(total.clamp(min=1))
            torch.add(total.log2_(), top, out=sums[lane, part])
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
        lanes, chunks, size = meeting.who.shape
        dq, dk, dv = (torch.zeros_like(q, memory_format=torch.contiguous_format) for _ in range(3))
        of_q, of_k, of_v = (q.new_empty(chunks, n * size, q.shape[-1]) for n in (1, 2, 2))  # of one lane
        for lane in range(lanes):
            for part in meeting.spans(q.device):
                who, seen = meeting.who[lane, part], meeting.seen[lane, part]
                weights = meeting.scores(asked, keys, lane, part).sub_(rows(level, who)).exp2_()
                given = rows(wanted, who)
                torch.bmm(weights.to(v.dtype).mT, given, out=of_v[part])
                steep = torch.bmm(given, rows(values, seen).mT).to(weights.dtype).sub_(rows(slope, who))
                steep = steep.mul_(weights).to(q.dtype)
                torch.bmm(steep, rows(keys, seen), out=of_q[part])
                torch.bmm(steep.mT, rows(asked, who), out=of_k[part])
            seen_at = meeting.seen_at(lane, len(q))
            for total, found, where in ((dq, of_q, meeting.seats(lane)), (dk, of_k, seen_at), (dv, of_v, seen_at)):
                collect(total, found, where)
        return dq, dk.div_(BITS), dv.add_(torch.where(alone, grad, 0)), None


def collect(total: Tensor, found: Tensor, where: Tensor) -> None:
    """Add what each token got in several places: (X, n, D) and (P, Z*T) to (Z, T, D)."""
    for places in where:
        total.add_(found.flatten(0, 1).index_select(0, places).view_as(total))


def weights(q: Tensor, k: Tensor, z: Tensor, meeting: Meeting) -> Tensor:
    """The whole map, for who wants to look at it: (Z, T, D), (Z, T, D), (Z, T, 1) -> (Z, T, T)."""
    count, length, _ = q.shape
    alone = z == -torch.inf
    asked, keys = with_nobody(q).mul_(BITS), with_nobody(k)
    level = with_nobody(z.masked_fill(alone, 0)).mul_(BITS)
    found = z.new_zeros(count * (length + 1), length + 1)
    for lane, part in meeting.parts(q.device):
        who, seen = meeting.who[lane, part].long(), meeting.seen[lane, part].long() % (length + 1)
        share = meeting.scores(asked, keys, lane, part).sub_(rows(level, who)).exp2_()
        found.index_put_((who.unsqueeze(2), seen.unsqueeze(1)), share, accumulate=True)
    found = found.view(count, length + 1, length + 1)[:, :length, :length]
    return torch.where(alone & torch.eye(length, dtype=torch.bool, device=q.device), 1, found)
