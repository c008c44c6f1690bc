"""The kernel of LSH attention (Kitaev et al. 2020, sections 2-3): tokens are sorted into chunks once per hash round, a
chunk attends to itself and the chunk before it, and all rounds share one softmax.

Scores are computed for some blocks at a time, recomputed in the backward pass and never stored: memory is linear in the
length, and intermediate results stay in the processor's cache. Blocks are chunks or, in a decoder, half chunks
(`blocks/mixers/lsh_chunks.py`).

Letters: R hash rounds, Z = B * H rows of one head each, T length, D head_width, M slots of a block, L sorted sequences
of X = Z * N blocks: one for each hash round or, with shortcuts, one for all rounds.
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

PAD_BUCKET = torch.iinfo(torch.int64).max  # the bucket of padding, sorted behind all others
PAD_CHUNK = -9  # the chunk id of padding, to which no token attends
SCORES_AT_ONCE = {"cpu": 2**18}  # so that they fit a core's own cache
DEFAULT_SCORES_AT_ONCE = 2**26
MASKED = 1e30  # subtracted from masked scores; finite, as -inf makes exponentials slow on CPUs
LOWEST = -1e20  # below all scores
LOG2_E = 1 / math.log(2)  # scores are scaled by it, as exp2 is faster than exp


@dataclass(frozen=True, slots=True)
class BlockBatch:
    """Some blocks of a group, with the tokens in their slots."""

    group: Group
    blocks: Tensor  # (x,)
    key_blocks: Tensor  # (x, w)
    queries: Tensor  # (x, M) token indices
    keys: Tensor  # (x, w*M) token indices


@dataclass(frozen=True, slots=True)
class SortedChunks:
    """Sort indices and chunks of all hash rounds. Token indices run over all rows; each row ends with a pad token,
    which fills pad slots."""

    tokens: Tensor  # (L, X, M) token in each slot
    slots: Tensor  # (R, Z*T) slot of each token among the L*X*M of all sequences, which undoes the sorting
    chunk_ids: Tensor  # (L, Z*(T+1)): in a sequence i attends to j if chunk_ids_i - chunk_ids_j is 0 or 1
    groups: tuple[Group, ...]
    block_mask: Tensor | None  # (M, M) -MASKED for the token itself and, in a decoder, later ones; None: by index
    causal: bool

    @classmethod
    def from_buckets(
        cls, buckets: Tensor, chunk: int, causal: bool, shortcuts: bool, max_buckets: int = 0
    ) -> SortedChunks:
        """Sort tokens by their buckets (B, H, R, T), of which there are at most `max_buckets` (0: unknown).

        In a decoder each bucket starts a new chunk: the chunk of a token depends on earlier tokens alone, and so do
        its keys. With shortcuts all tokens of two chunks attend to each other, whatever their buckets, and the first
        chunk of a round attends to the last chunk of the round before.
        """
        buckets = buckets.flatten(0, 1).transpose(0, 1)  # (B, H, R, T) -> (R, Z, T)
        rounds, rows, length = buckets.shape
        sorted_buckets, order = buckets.sort(dim=-1, stable=True)
        bucket_starts = F.pad(sorted_buckets[..., 1:] != sorted_buckets[..., :-1], (1, 0), value=True)
        layout = (
            ChunkLayout.by_bucket(bucket_starts, chunk, max_buckets)
            if causal and not shortcuts
            else ChunkLayout.contiguous(bucket_starts, chunk)
        )
        # Two more with each bucket, so that chunks of different buckets are never 0 or 1 apart.
        ids = (
            torch.where(sorted_buckets == PAD_BUCKET, PAD_CHUNK, 0)
            if shortcuts
            else layout.chunks + 2 * bucket_starts.cumsum(-1)
        )

        size, count = layout.size, layout.count
        tokens = buckets.new_full((rounds, rows, count * size), length).scatter_(-1, layout.slots, order)
        slots = torch.empty_like(order).scatter_(-1, order, layout.slots)
        chunk_ids = buckets.new_full((rounds, rows, length + 1), PAD_CHUNK).scatter_(-1, order, ids)
        row_index = torch.arange(rounds * rows, device=order.device)
        if shortcuts:  # one sequence: (R, Z, N*M) -> (1, Z, R*N*M)
            row_index = row_index.view(rows, rounds).t()
            tokens, chunk_ids = tokens.transpose(0, 1).flatten(1).unsqueeze(0), chunk_ids[:1]
        slots = slots + count * size * row_index.view(rounds, rows, 1)
        first = (length + 1) * torch.arange(rows, device=order.device)[:, None]
        tokens = (tokens + first).unflatten(-1, (-1, size)).flatten(1, 2)  # (L, Z, N*M) -> (L, X, M)
        return cls(
            tokens.int(),
            slots.flatten(1),
            chunk_ids.flatten(1).float(),
            layout.build_groups(tokens.shape[1], rows, len(tokens)),
            None if shortcuts else build_block_mask(size, causal, order.device),
            causal,
        )

    def get_slots(self, sequence: int) -> Tensor:
        """The slots of each token among the X*M of a sequence, one for each round that it holds: (R / L, Z*T)."""
        sequences, blocks, size = self.tokens.shape
        return self.slots.unflatten(0, (sequences, -1))[sequence] - sequence * blocks * size

    def iterate_batches(self, sequence: int | None = None) -> Iterator[BlockBatch]:
        """Batches of blocks of one sequence, or of all."""
        size = self.tokens.shape[-1]
        for group in self.groups:
            if sequence is not None and group.sequence != sequence:
                continue
            at_once = SCORES_AT_ONCE.get(self.tokens.device.type, DEFAULT_SCORES_AT_ONCE)
            count = max(1, at_once // (group.key_blocks.shape[1] * size * size))
            for blocks, key_blocks in zip(group.blocks.split(count), group.key_blocks.split(count), strict=True):
                tokens = self.tokens[group.sequence]
                queries, keys = take_rows(tokens, blocks), take_rows(tokens, key_blocks).flatten(1)
                yield BlockBatch(group, blocks, key_blocks, queries, keys)

    def compute_scores(self, q: Tensor, k: Tensor, batch: BlockBatch) -> Tensor:
        """q k^T of some blocks, masked: (x, M, w*M).

        A pair that shares a bucket in several rounds counts in the first of them alone. That is the paper's correction,
        which gives each of N occurrences 1/N of the weight (-log N in the exponent, appendix A).
        """
        sequence, queries, keys = batch.group.sequence, batch.queries, batch.keys
        size = queries.shape[1]
        scores = torch.bmm(take_rows(q, queries), take_rows(k, keys).mT)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.block_mask is None:  # the chunk before may be of another round and hold the token itself
            i, j = queries.unsqueeze(2), keys.unsqueeze(1)
            scores.sub_((j >= i if self.causal else j == i).to(scores.dtype), alpha=MASKED)
            scores.sub_(self.compute_distances(sequence, queries, keys, 0.0), alpha=MASKED)
        else:
            scores[..., -size:].add_(self.block_mask)
            if not batch.group.all_visible:  # the id of the chunk before is 1 less
                before = torch.arange(keys.shape[1], device=keys.device) < keys.shape[1] - size
                scores.sub_(self.compute_distances(sequence, queries, keys, before.float()), alpha=MASKED)
        if sequence:
            nearest = self.compute_distances(0, queries, keys, 0.5)  # 0.5 if a pair shared a chunk before, else more
            for earlier in range(1, sequence):
                torch.minimum(nearest, self.compute_distances(earlier, queries, keys, 0.5), out=nearest)
            scores.add_(nearest.sub_(1).clamp_(max=0), alpha=MASKED)
        return scores

    def compute_distances(self, sequence: int, queries: Tensor, keys: Tensor, offset: Tensor | float) -> Tensor:
        """|chunk id of the query - chunk id of the key - offset|: (x, M), (x, w*M) -> (x, M, w*M)."""
        ids = self.chunk_ids[sequence]
        return (take_rows(ids, queries).unsqueeze(2) - (take_rows(ids, keys) + offset).unsqueeze(1)).abs_()


def build_block_mask(size: int, causal: bool, device: torch.device) -> Tensor:
    """-MASKED where a token must not attend to another of its block: (M, M)."""
    mask = torch.full((size, size), -MASKED, device=device).triu()
    return mask if causal else mask.tril()  # the token itself too: its score would exceed all others


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table: (n, ...), (x, m) -> (x, m, ...)."""
    return table.index_select(0, index.flatten()).unflatten(0, index.shape)


def append_pad_token(x: Tensor) -> Tensor:
    """One more token of zeros for each row: (Z, T, ...) -> (Z*(T+1), ...)."""
    ends = (0, 0) * (x.dim() - 2) + (0, 1)
    return F.pad(x, ends).flatten(0, 1)


class LSHAttentionFunction(torch.autograd.Function):
    """o_i = sum_j exp(q_i k_j - z_i) v_j over all keys j of i, (Z, T, D) each, with z the log-sum-exp of the scores; a
    token without keys outputs its own value (section 2, "causal masking").

    The backward pass uses the weights of the softmax over all rounds, so nothing of single rounds is stored.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, chunks: SortedChunks) -> tuple[Tensor, Tensor]:
        queries, keys, values = append_pad_token(q).mul_(LOG2_E), append_pad_token(k), append_pad_token(v)
        exact = torch.promote_types(q.dtype, torch.float32)
        mixed = v.new_empty(*chunks.tokens.shape, v.shape[-1])  # (L, X, M, D)
        log_sums = v.new_empty(*chunks.tokens.shape, 1, dtype=exact)
        for batch in chunks.iterate_batches():
            scores = chunks.compute_scores(queries, keys, batch)
            top = scores.amax(-1, keepdim=True).clamp_(min=LOWEST)
            weights = scores.sub_(top).exp2_()
            total = weights.sum(-1, keepdim=True)
            outputs = torch.bmm(weights.to(v.dtype), take_rows(values, batch.keys)).div_(total.clamp(min=1))
            mixed[batch.group.sequence].index_copy_(0, batch.blocks, outputs)
            log_sums[batch.group.sequence].index_copy_(0, batch.blocks, total.log2_().add_(top))
        by_round = log_sums.flatten(0, 2).index_select(0, chunks.slots.flatten())
        by_round = by_round.view(len(chunks.slots), *q.shape[:2], 1)  # (RZT, 1) -> (R, Z, T, 1)
        z = by_round.div_(LOG2_E).logsumexp(0)
        no_keys = z == -torch.inf
        shares = (by_round - z.masked_fill(no_keys, 0)).exp().to(v.dtype)
        out = v.masked_fill(~no_keys, 0)
        for share, slots in zip(shares, chunks.slots, strict=True):
            out.addcmul_(share, mixed.flatten(0, 2).index_select(0, slots).view(v.shape))
        ctx.save_for_backward(q, k, v, out, z)
        ctx.chunks = chunks
        ctx.mark_non_differentiable(z)
        return out, z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        q, k, v, out, z = ctx.saved_tensors
        chunks, no_keys = ctx.chunks, z == -torch.inf
        queries, keys, values = append_pad_token(q).mul_(LOG2_E), append_pad_token(k), append_pad_token(v)
        grads = append_pad_token(grad)
        log_sums = append_pad_token(z.masked_fill(no_keys, 0)).mul_(LOG2_E)  # (Z*(T+1), 1)
        dots = append_pad_token((grad * out).sum(-1, keepdim=True).to(z.dtype))
        dq, dk, dv = (torch.zeros_like(q, memory_format=torch.contiguous_format) for _ in range(3))
        block_dq, block_dk, block_dv = (q.new_empty(*chunks.tokens.shape[1:], q.shape[-1]) for _ in range(3))
        for sequence in range(len(chunks.tokens)):
            block_dk.zero_()
            block_dv.zero_()
            for batch in chunks.iterate_batches(sequence):
                weights = chunks.compute_scores(queries, keys, batch).sub_(take_rows(log_sums, batch.queries)).exp2_()
                grad_out = take_rows(grads, batch.queries)
                add_to_blocks(block_dv, batch.key_blocks, torch.bmm(weights.to(v.dtype).mT, grad_out))
                grad_scores = torch.bmm(grad_out, take_rows(values, batch.keys).mT).to(weights.dtype)
                grad_scores = grad_scores.sub_(take_rows(dots, batch.queries)).mul_(weights).to(q.dtype)
                block_dq.index_copy_(0, batch.blocks, torch.bmm(grad_scores, take_rows(keys, batch.keys)))
                block_grad = torch.bmm(grad_scores.mT, take_rows(queries, batch.queries))
                add_to_blocks(block_dk, batch.key_blocks, block_grad)
            for total, sorted_grad in ((dq, block_dq), (dk, block_dk), (dv, block_dv)):
                for slots in chunks.get_slots(sequence):
                    total.add_(sorted_grad.flatten(0, 1).index_select(0, slots).view_as(total))
        return dq, dk.div_(LOG2_E), dv.add_(torch.where(no_keys, grad, 0)), None


def add_to_blocks(total: Tensor, key_blocks: Tensor, grads: Tensor) -> None:
    """Add gradients of key blocks, (x, w*M, D), to those of all blocks, (X, M, D). No column of `key_blocks` holds a
    block twice, so the order of the sums is deterministic."""
    size = total.shape[1]
    for blocks, block_grads in zip(key_blocks.unbind(1), grads.split(size, dim=1), strict=True):
        total.index_put_((blocks,), block_grads, accumulate=True)  # faster than index_add_ on CPUs


def compute_map(q: Tensor, k: Tensor, z: Tensor, chunks: SortedChunks) -> Tensor:
    """The whole attention map, for recorders: (Z, T, D), (Z, T, D), (Z, T, 1) -> (Z, T, T)."""
    count, length, _ = q.shape
    no_keys = z == -torch.inf
    queries, keys = append_pad_token(q).mul_(LOG2_E), append_pad_token(k)
    log_sums = append_pad_token(z.masked_fill(no_keys, 0)).mul_(LOG2_E)
    weights = z.new_zeros(count * (length + 1), length + 1)
    for batch in chunks.iterate_batches():
        rows, columns = batch.queries.long(), batch.keys.long() % (length + 1)
        block_weights = chunks.compute_scores(queries, keys, batch).sub_(take_rows(log_sums, rows)).exp2_()
        weights.index_put_((rows.unsqueeze(2), columns.unsqueeze(1)), block_weights, accumulate=True)
    weights = weights.view(count, length + 1, length + 1)[:, :length, :length]
    return torch.where(no_keys & torch.eye(length, dtype=torch.bool, device=q.device), 1, weights)
