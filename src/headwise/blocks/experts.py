"""Mixture of experts: a router sends each token to one of several feed-forward networks, or to a few.

One expert: Fedus et al. 2022, "Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient
Sparsity". Several: Shazeer et al. 2017, "Outrageously Large Neural Networks"; Lepikhin et al. 2021, "GShard". The
router z-loss: Zoph et al. 2022, "ST-MoE".

Letters: B rows, T length, C width, N = B * T tokens, E experts, J choices of a token, S = N * J assignments, M capacity
of an expert, F hidden.

An expert fills its capacity with assignments in the order of position in the text, then choice, then row. So no token
is dropped because of a later one of any row, and routing does not depend on the future.

DISCREPANCY: GShard assigns all first choices before all second ones, so that a later token can displace an earlier one,
and takes the second expert with a probability that grows with its gate; here the second expert is always used.
DISCREPANCY: the released codes cut a batch into groups (`transformers`: rows) with a capacity each; here the batch is
one group, as in the paper's formula. Padding is not routed and takes no capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import accumulate
from math import log
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from headwise.blocks.feedforward import ACTIVATIONS, GATED_ACTIVATIONS, Activation
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.replicas import REPLICAS
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, LayerPath, Part, Properties, Stream

INIT_SCALE = 0.1  # of the variance of initial weights, INIT_SCALE / inputs: Fedus et al., section 2.4
ROW_MULTIPLE = 16  # rows of an expert's batch are rounded up, so that its shape, and with it rounding, rarely changes


@dataclass(frozen=True, slots=True)
class ExpertLoad:
    """Expert load: the numbers of assigned tokens and of processed tokens, which fit the capacity; both (E,)."""

    assigned: Tensor
    processed: Tensor

    def __add__(self, other: ExpertLoad) -> ExpertLoad:
        return ExpertLoad(self.assigned + other.assigned, self.processed + other.processed)

    @property
    def shares(self) -> list[float]:
        """Share of all assignments, by expert."""
        total = max(1, int(self.assigned.sum()))
        return [assigned / total for assigned in self.assigned.tolist()]

    @property
    def busiest(self) -> float:
        """The largest load, in units of the mean load."""
        return max(self.shares) * len(self.shares)

    @property
    def evenness(self) -> float:
        """The entropy of the shares, divided by that of equal shares."""
        entropy = -sum(share * log(share) for share in self.shares if share)
        return entropy / log(len(self.shares)) if len(self.shares) > 1 else 1.0

    @property
    def dropped(self) -> float:
        """The share of the assignments beyond the capacity."""
        return 1 - int(self.processed.sum()) / max(1, int(self.assigned.sum()))


def merge_loads(
    loads: Mapping[LayerPath, ExpertLoad], more: Mapping[LayerPath, Iterable[ExpertLoad]]
) -> dict[LayerPath, ExpertLoad]:
    """Add new loads to those of each layer."""
    merged = dict(loads)
    for path, layer_loads in more.items():
        for load in layer_loads:
            merged[path] = merged[path] + load if path in merged else load
    return merged


def summarise_loads(loads: Iterable[ExpertLoad]) -> dict[str, float]:
    """Loads of several layers in three figures: the largest load, the lowest evenness, the share dropped in all."""
    loads = list(loads)
    assigned = sum(int(load.assigned.sum()) for load in loads)
    processed = sum(int(load.processed.sum()) for load in loads)
    return {
        "busiest": max(load.busiest for load in loads),
        "evenness": min(load.evenness for load in loads),
        "dropped": 1 - processed / max(1, assigned),
    }


@dataclass(frozen=True, slots=True)
class Routing:
    """The experts of each token, (N, J), the gates of their outputs, (N, J), and the router's loss."""

    chosen: Tensor
    gates: Tensor
    loss: Tensor


class Router(nn.Module):
    """Router, top-1 routing or top-k: p = softmax(W_r x), of which a token takes the largest; in float32 (section 2.4).

    Gates are these p (Fedus et al. eq. 2) or, `normalise`, divided by their sum over the chosen experts (GShard,
    Shazeer et al.). In training inputs are multiplied by U(1 - jitter, 1 + jitter), and there is a loss: balance * E *
    sum_i f_i P_i (eq. 4), lowest where loads are even, with f_i the share of tokens whose first choice is i and P_i the
    mean of p_i, and z_loss * mean (log sum exp logits)^2 (Zoph et al. eq. 5). Padding does not count."""

    def __init__(
        self,
        width: int,
        experts: int,
        top_k: int = 1,
        normalise: bool = False,
        jitter: float = 0.01,
        balance: float = 0.01,
        z_loss: float = 0.0,
    ):
        super().__init__()
        self.top_k, self.normalise, self.jitter, self.balance, self.z_loss = top_k, normalise, jitter, balance, z_loss
        self.weight = init_small(torch.empty(experts, width))

    def forward(self, tokens: Tensor, real: Tensor | None) -> Routing:
        """Route tokens (N, C); the loss counts those that are `real` (N,)."""
        exact = torch.promote_types(tokens.dtype, torch.float32)
        kind = "cpu" if tokens.is_meta else tokens.device.type
        with torch.autocast(kind, enabled=False):
            inputs = tokens.to(exact)
            if self.training and self.jitter:
                inputs = inputs * torch.empty_like(inputs).uniform_(1 - self.jitter, 1 + self.jitter)
            return self.choose(inputs, F.linear(inputs, self.weight.to(exact)), real)  # (N, C) -> (N, E)

    def choose(self, inputs: Tensor, logits: Tensor, real: Tensor | None) -> Routing:
        """Choose the experts of each token by its logits (N, E)."""
        p = logits.softmax(-1)
        gates, chosen = p.topk(self.top_k)  # (N, E) -> (N, J)
        if self.normalise:
            gates = gates / gates.sum(-1, keepdim=True)
        loss = self.loss(logits, p, chosen[:, 0], real) if self.training else p.new_zeros(())
        return Routing(chosen, gates, loss)

    def loss(self, logits: Tensor, p: Tensor, first: Tensor, real: Tensor | None) -> Tensor:
        """The load-balancing loss of first choices (N,) and the router z-loss of logits (N, E)."""
        weight = torch.ones_like(p[:, 0]) if real is None else real.to(p.dtype)
        replicas = REPLICAS.get()
        share = weight / replicas.sum(weight.sum()).clamp(min=1)  # (N,): the weight of a token in a mean
        hits = (first.unsqueeze(-1) == torch.arange(p.shape[-1], device=p.device)).to(p.dtype)  # (N,) -> (N, E)
        balance = self.balance * p.shape[-1] * (replicas.sum(share @ hits) @ replicas.sum(share @ p))
        if not self.z_loss:
            return balance
        return balance + self.z_loss * replicas.sum(share @ logits.logsumexp(-1).square())


class NoisyRouter(Router):
    """Noisy top-k gating: H(x) = W_g x + N(0, 1) * softplus(W_n x) in training, gates = softmax over the k largest of
    H(x) (Shazeer et al. 2017, eqs. 3-5); without noise in evaluation.

    Its loss is balance * (CV^2 of the importance + CV^2 of the load) (section 4 and appendix A), with the squared
    coefficient of variation CV^2 over the experts. The importance of an expert is the sum of its gates; its load the
    sum of the probabilities that it is chosen where its noise alone is drawn again. Both weights begin with zeros, so
    that loads do (appendix A).
    """

    def __init__(self, width: int, experts: int, top_k: int = 2, balance: float = 0.01, z_loss: float = 0.0):
        super().__init__(width, experts, top_k, normalise=True, jitter=0.0, balance=balance, z_loss=z_loss)
        nn.init.zeros_(self.weight)
        self.noise = nn.Parameter(torch.zeros(experts, width))

    def choose(self, inputs: Tensor, logits: Tensor, real: Tensor | None) -> Routing:
        if not self.training:
            return super().choose(inputs, logits, real)
        std = F.softplus(F.linear(inputs, self.noise.to(inputs.dtype)))  # (N, E)
        noisy = logits + torch.randn_like(logits) * std
        top, chosen = noisy.topk(self.top_k)  # (N, E) -> (N, J)
        gates = top.softmax(-1)
        weight = torch.ones_like(std[:, 0]) if real is None else real.to(std.dtype)
        importance = torch.zeros_like(logits).scatter(1, chosen, gates)  # (N, E)
        load, replicas = self.compute_load(logits, noisy, std), REPLICAS.get()
        loss = compute_squared_cv(replicas.sum(weight @ importance)) + compute_squared_cv(replicas.sum(weight @ load))
        tokens = replicas.sum(weight.sum()).clamp(min=1)
        z_loss = self.z_loss * replicas.sum(weight @ noisy.logsumexp(-1).square()) / tokens
        return Routing(chosen, gates, self.balance * loss + z_loss)

    def compute_load(self, logits: Tensor, noisy: Tensor, std: Tensor) -> Tensor:
        """The probability (N, E) that an expert is among the k largest where its noise alone is drawn again."""
        if self.top_k == logits.shape[-1]:
            return torch.ones_like(logits)
        top = noisy.topk(self.top_k + 1)[0]
        # the k-th largest of the others: for one of the k largest that is the (k + 1)-th of all
        threshold = torch.where(noisy >= top[:, -2:-1], top[:, -1:], top[:, -2:-1])
        return torch.special.ndtr((logits - threshold) / std)


def compute_squared_cv(values: Tensor) -> Tensor:
    """The squared coefficient of variation: variance / mean^2.

    >>> compute_squared_cv(torch.tensor([1.0, 3.0])).item()
    0.25
    """
    return values.var(unbiased=False) / values.mean().square().clamp(min=1e-10)


class GroupedLinear(nn.Module):
    """E linear maps: weights (E, out, in); biases in one vector (E * out), as optimisers decay all but vectors."""

    def __init__(self, count: int, inputs: int, outputs: int, bias: bool):
        super().__init__()
        self.weight = init_small(torch.empty(count, outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(count * outputs)) if bias else None

    def forward(self, groups: Tensor) -> Tensor:
        """Apply each map to its group: (E, M, in) -> (E, M, out)."""
        if self.bias is None:
            return torch.bmm(groups, self.weight.mT)
        return torch.baddbmm(self.bias.view(len(groups), 1, -1), groups, self.weight.mT)  # (E * out,) -> (E, 1, out)

    def split_maps(self) -> Iterable[Callable[[Tensor], Tensor]]:
        """The single maps, (M, in) -> (M, out)."""
        biases = [None] * len(self.weight) if self.bias is None else self.bias.chunk(len(self.weight))
        return [partial(F.linear, weight=weight, bias=bias) for weight, bias in zip(self.weight, biases, strict=True)]


def init_small(weight: Tensor) -> nn.Parameter:
    """Truncated normal of variance INIT_SCALE / inputs, cut at two standard deviations."""
    std = (INIT_SCALE / weight.shape[-1]) ** 0.5
    return nn.Parameter(nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std))


class Experts(Part):
    """Mixture of experts with a capacity factor: y = sum_j g_j E_j(x) over the experts j of a token, each a
    feed-forward network (eq. 2).

    An expert has a capacity of ceil(tokens / E * factor), with one `capacity` factor for training and one for
    evaluation; tokens beyond it are dropped: their output is 0, and the residual path is left. Without `capacity` no
    token is dropped, and neither where texts have one token, as in each decoding step. With `row_capacity` an expert
    takes so many tokens of each row instead, as in transformers, and rows do not depend on each other. The loads are
    the side output "load", the router's loss of training is "aux".
    """

    def __init__(
        self,
        router: Router,
        hidden: int,
        capacity: tuple[float, float] | None = (1.25, 2.0),
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
        row_capacity: int = 0,
    ):
        super().__init__()
        self.router = router
        self.count, width = router.weight.shape
        # Fractions, so that the capacity is the same integer on the host and on a device.
        factors = [Fraction(factor).limit_denominator(1000) for factor in capacity or ()]
        self.capacity = (factors[0], factors[1]) if factors else None
        self.row_capacity = row_capacity  # 0: none
        self.gated = activation in GATED_ACTIVATIONS
        self.activation = (GATED_ACTIVATIONS if self.gated else ACTIVATIONS)[activation]
        self.inner = GroupedLinear(self.count, width, 2 * hidden if self.gated else hidden, bias)
        self.outer = GroupedLinear(self.count, hidden, width, bias)
        self.drop = make_dropout(dropout)

    @property
    def properties(self) -> Properties:
        """Rows depend on each other only through the capacity."""
        never_drops = not self.row_capacity and (self.capacity is None or self.capacity[1] >= self.count)
        return Properties(
            causal=True,
            steppable=never_drops,
            batch_independent=never_drops or bool(self.row_capacity),
            joins=True,
            ragged=never_drops or bool(self.row_capacity),
            packing=True,
        )

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        tokens = stream.x.flatten(0, 1)  # (B, T, C) -> (N, C)
        keep = stream.real_mask
        routing = self.router(tokens, None if keep is None else keep.flatten())
        chosen = routing.chosen.view(*stream.x.shape[:2], -1)  # (N, J) -> (B, T, J)
        # the capacity is that of the whole batch, of which other processes may have rows
        replicas = REPLICAS.get()
        if keep is None and replicas.shared:  # others may have padding
            keep = torch.ones_like(chosen[..., 0], dtype=torch.bool)
        everywhere = replicas.gather_rows(chosen)
        kept = None if keep is None else replicas.gather_rows(keep)
        places, loads = rank_assignments(everywhere, kept, self.count)
        total = everywhere[..., 0].numel()  # tokens
        capacity = self.compute_capacity(total if kept is None else kept.sum(), total, stream)
        fits = replicas.select_rows((places < capacity).view_as(everywhere)).flatten()
        processed = loads.clamp(max=capacity)
        rank, assigned = (places, loads) if everywhere is chosen else rank_assignments(chosen, keep, self.count)
        if self.row_capacity and stream.x.shape[1] > 1:
            fits = fits & (rank_in_rows(chosen, keep, self.count) < self.row_capacity)
            processed = torch.zeros_like(loads).index_add_(0, chosen.flatten(), fits.to(loads.dtype))
            processed = replicas.sum(processed)
        ctx.side.add("load", ctx.path, ExpertLoad(loads, processed))
        if self.training:
            ctx.side.add("aux", ctx.path, routing.loss)
        inputs = tokens.unsqueeze(1).expand(-1, chosen.shape[-1], -1).flatten(0, 1)  # (N, C) -> (N, J, C) -> (S, C)
        limit = min(len(tokens), int(self.compute_capacity(total, total, stream)))
        sizes = self.compute_sizes(assigned, limit, chosen.numel())
        outputs = self.dispatch(inputs, chosen.flatten(), rank, fits, sizes)
        outputs = (outputs * routing.gates.view(-1, 1)).to(stream.x.dtype)  # (N, J) -> (S, 1)
        if chosen.shape[-1] == 1:
            return outputs.view_as(stream.x)  # (S, C) -> (B, T, C), without a pass over memory
        return outputs.view(*chosen.shape, -1).sum(2)  # (S, C) -> (B, T, J, C) -> (B, T, C)

    def compute_capacity(self, tokens: int | Tensor, total: int, stream: Stream) -> int | Tensor:
        """The capacity of an expert for so many tokens; the `total` with padding, if none are dropped."""
        if self.capacity is None or self.row_capacity or stream.x.shape[1] == 1:
            return total
        factor = self.capacity[0 if self.training else 1]
        return -(-tokens * factor.numerator // (factor.denominator * self.count))

    def compute_sizes(self, assigned: Tensor, capacity: int, assignments: int) -> list[int]:
        """Rows of each expert's batch: the capacity or, on CPUs, where reading counts is free, the rounded load. On the
        meta device, where FLOPs are counted, experts without a capacity have equal loads."""
        if assigned.is_meta and self.capacity is None:
            return [-(-assignments // self.count)] * self.count
        if not is_readable(assigned):
            return [capacity] * self.count
        return [min(capacity, -(-count // ROW_MULTIPLE) * ROW_MULTIPLE) for count in assigned.tolist()]

    def dispatch(self, inputs: Tensor, chosen: Tensor, rank: Tensor, fits: Tensor, sizes: list[int]) -> Tensor:
        """Run the experts on their assignments (S, C); zeros for those that do not fit."""
        *starts, end = accumulate(sizes, initial=0)
        # on other devices sizes are equal, and a list would be a copy that waits for the device
        first = torch.tensor(starts)[chosen] if is_readable(chosen) else chosen * sizes[0]
        slot = torch.where(fits, first + rank, end)
        rows = inputs.new_zeros(end + 1, inputs.shape[-1]).index_copy_(0, slot, inputs)  # the last for dropped ones
        outputs = self.run_separately(rows[:-1].split(sizes)) if is_readable(rows) else self.run_batched(rows[:-1])
        return outputs.index_select(0, slot)

    def run_separately(self, batches: Sequence[Tensor]) -> Tensor:
        """Batches of any sizes, E times (M, C) -> (sum of M + 1, C): no padding rows, which is faster on CPUs."""
        maps = zip(batches, self.inner.split_maps(), self.outer.split_maps(), strict=True)
        outputs = [outer(self.activate(inner(batch))) for batch, inner, outer in maps]
        return torch.cat((*outputs, outputs[0].new_zeros(1, outputs[0].shape[-1])))

    def run_batched(self, rows: Tensor) -> Tensor:
        """Batches of one size, (E * M, C) -> (E * M + 1, C), in two batched products."""
        groups = rows.view(self.count, -1, rows.shape[-1])  # (E * M, C) -> (E, M, C)
        return F.pad(self.outer(self.activate(self.inner(groups))).flatten(0, 1), (0, 0, 0, 1))

    def activate(self, hidden: Tensor) -> Tensor:
        if not self.gated:
            return self.drop(self.activation(hidden))
        gate, value = hidden.chunk(2, dim=-1)
        return self.drop(self.activation(gate) * value)


def is_readable(x: Tensor) -> bool:
    """Whether values of a tensor can be read without synchronising a device."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def rank_assignments(chosen: Tensor, keep: Tensor | None, experts: int) -> tuple[Tensor, Tensor]:
    """The rank of each assignment (B, T, J) among those of its expert, (S,), from 0; and the load of each, (E,).

    >>> rank, assigned = rank_assignments(torch.tensor([[[1], [0], [1]], [[1], [0], [0]]]), None, 2)
    >>> rank.view(2, 3).tolist(), assigned.tolist()
    ([[0, 0, 2], [1, 1, 2]], [3, 3])
    """
    rows, length, choices = chosen.shape
    if keep is not None:
        chosen = chosen.masked_fill(~keep.unsqueeze(-1), experts)  # an expert that does not exist, sorted last
    ordered = chosen.permute(1, 2, 0).flatten()  # (B, T, J) -> (T, J, B) -> (S,), in the order of assignment
    ordered, order = ordered.sort(stable=True)
    starts = torch.searchsorted(ordered, torch.arange(experts + 1, device=ordered.device))
    index = torch.arange(len(ordered), device=ordered.device)
    rank = torch.empty_like(order).scatter_(0, order, index - starts[ordered])
    rank = rank.view(length, choices, rows).permute(2, 0, 1)  # (S,) -> (T, J, B) -> (B, T, J)
    if keep is not None:
        rank = rank.masked_fill(~keep.unsqueeze(-1), len(ordered))  # beyond any capacity
    return rank.flatten(), starts.diff()


def rank_in_rows(chosen: Tensor, keep: Tensor | None, experts: int) -> Tensor:
    """The rank of each assignment (B, T, J) among those of its expert in its row, (S,), from 0.

    >>> rank_in_rows(torch.tensor([[[1], [0], [1]], [[1], [0], [0]]]), None, 2).view(2, 3).tolist()
    [[0, 0, 1], [0, 0, 1]]
    """
    hits = chosen.unsqueeze(-1) == torch.arange(experts, device=chosen.device)  # (B, T, J) -> (B, T, J, E)
    if keep is not None:
        hits = hits & keep[:, :, None, None]
    counts = hits.flatten(1, 2).long().cumsum(1)  # (B, T, J, E) -> (B, T * J, E)
    return (counts.gather(2, chosen.flatten(1).unsqueeze(-1)) - 1).flatten()


class ExpertsConfig(PartConfig):
    """Mixture of experts: each token is routed to `top_k` of `count` feed-forward networks. 0: the model's number."""

    kind: Literal["experts"] = "experts"
    count: int = Field(8, ge=1)
    top_k: int = Field(1, ge=1)
    hidden: int = Field(0, ge=0)
    activation: Activation | Literal[""] = ""
    dropout: float = Field(0.0, ge=0, lt=1)  # inside the experts: 0.4 where a large model is fine-tuned on a small task
    normalise: bool | Literal["auto"] = "auto"  # gates sum to 1 over the chosen experts; auto: if top_k > 1
    capacity_factor: float = 1.25  # capacity of an expert in training, in units of tokens / experts
    eval_capacity_factor: float = 2.0
    drop: bool = True  # tokens beyond the capacity; false: no limit
    row_capacity: int = Field(0, ge=0)  # most tokens of one text for an expert, instead of the factors; 0: the factors
    balance_loss: float = Field(0.01, ge=0)  # weight of the load-balancing loss
    z_loss: float = Field(0.0, ge=0)  # weight of the router z-loss
    jitter: float = Field(0.01, ge=0, lt=1)  # of the router's inputs in training
    noisy: bool = False  # noisy top-k gating; the balance loss is then that of importance and load, and jitter is 0

    @field_validator("capacity_factor", "eval_capacity_factor")
    @classmethod
    def _check_factor(cls, factor: float) -> float:
        if factor < 0.001:
            raise ValueError("leaves no expert any capacity; 1.25 is usual, and drop = false sets no limit")
        return factor

    @model_validator(mode="after")
    def _check_top_k(self) -> Self:
        if self.top_k > self.count:
            raise ValueError(f"{self.top_k} experts cannot be chosen among {self.count}; lower top_k")
        if self.noisy and self.normalise is False:
            raise ValueError("noisy gates sum to 1 over the chosen experts; leave out normalise, or set noisy = false")
        return self

    def build(self, build_ctx: BuildContext) -> nn.Module:
        normalise = self.top_k > 1 if self.normalise == "auto" else self.normalise
        router = (
            NoisyRouter(build_ctx.width, self.count, self.top_k, self.balance_loss, self.z_loss)
            if self.noisy
            else Router(build_ctx.width, self.count, self.top_k, normalise, self.jitter, self.balance_loss, self.z_loss)
        )
        return Experts(
            router,
            self.hidden or build_ctx.hidden,
            (self.capacity_factor, self.eval_capacity_factor) if self.drop else None,
            self.activation or build_ctx.activation,
            build_ctx.mlp_bias,
            self.dropout or build_ctx.hidden_dropout,
            self.row_capacity if self.drop else 0,
        )
