"""Experts in the place of the feed-forward network: each token is sent to one of them, or to a few.

One expert: Fedus et al. 2022, "Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient
Sparsity". Several: Shazeer et al. 2017, "Outrageously Large Neural Networks"; Lepikhin et al. 2021, "GShard". The loss
on large logits: Zoph et al. 2022, "ST-MoE".

Letters: B rows, T length, C width, N = B * T tokens, E experts, J choices of a token, S = N * J claims, M places at an
expert, F hidden.

An expert serves claims by position in the text, then by choice, then by row, until its places are taken. So no token
ever loses its place to a later one of any row, and what it is given does not depend on the future.

DISCREPANCY: GShard serves all first choices before all second ones, which lets a later token displace an earlier one,
and takes the second expert at random with a probability that grows with its gate; here the second one is always asked.
DISCREPANCY: the released codes cut a batch into groups (`transformers`: rows) with places of their own; here the batch
is one group, as in the paper's formula. Padding is not routed and takes no place.
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

from headwise.blocks.feedforward import GATED, PLAIN, Activation
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, LayerPath, Part, Properties, Stream

SCALE = 0.1  # of the first weights' variance, against the usual 1 / inputs: Fedus et al., section 2.4
ROUND = 16  # of rows: a later claim seldom changes the shape of a product, and with it an earlier one's last bit


@dataclass(frozen=True, slots=True)
class ExpertLoad:
    """How many claims each expert of a layer had, and how many it served; both (E,)."""

    claims: Tensor
    served: Tensor

    def __add__(self, other: ExpertLoad) -> ExpertLoad:
        return ExpertLoad(self.claims + other.claims, self.served + other.served)

    @property
    def shares(self) -> list[float]:
        """Of all claims, by expert."""
        total = max(1, int(self.claims.sum()))
        return [claims / total for claims in self.claims.tolist()]

    @property
    def busiest(self) -> float:
        """The longest queue, in means of all."""
        return max(self.shares) * len(self.shares)

    @property
    def evenness(self) -> float:
        """The entropy of the shares, over that of equal ones."""
        entropy = -sum(share * log(share) for share in self.shares if share)
        return entropy / log(len(self.shares)) if len(self.shares) > 1 else 1.0

    @property
    def dropped(self) -> float:
        """The share of the claims for which there was no place."""
        return 1 - int(self.served.sum()) / max(1, int(self.claims.sum()))


def added(
    loads: Mapping[LayerPath, ExpertLoad], more: Mapping[LayerPath, Iterable[ExpertLoad]]
) -> dict[LayerPath, ExpertLoad]:
    """The loads of each place, with what came since."""
    found = dict(loads)
    for path, several in more.items():
        for load in several:
            found[path] = found[path] + load if path in found else load
    return found


def summary(loads: Iterable[ExpertLoad]) -> dict[str, float]:
    """Some layers' loads in three figures: the least even layer, its longest queue, and what all of them dropped."""
    loads = list(loads)
    claims, served = (sum(int(getattr(load, what).sum()) for load in loads) for what in ("claims", "served"))
    return {
        "busiest": max(load.busiest for load in loads),
        "evenness": min(load.evenness for load in loads),
        "dropped": 1 - served / max(1, claims),
    }


@dataclass(frozen=True, slots=True)
class Routes:
    """The experts that each token chose, (N, J), with the weights of their answers, (N, J), and the router's loss."""

    chosen: Tensor
    gates: Tensor
    loss: Tensor


class Router(nn.Module):
    """Top-1 routing, or top-k: p = softmax(W_r x), of which each token takes the largest; in float32 (section 2.4).

    Gates are these p (Fedus et al. eq. 2) or, `normalise`, their shares among the chosen (GShard, Shazeer et al.). In
    training the router reads inputs times U(1 - jitter, 1 + jitter), and has a loss:
    balance * E * sum_i f_i P_i (eq. 4), least where loads are even, with f_i the share of tokens whose first choice is
    i and P_i the mean of p_i, and z_loss * mean (log sum exp logits)^2 (Zoph et al. eq. 5). Padding does not count.
    """

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
        self.weight = small(torch.empty(experts, width))

    def forward(self, tokens: Tensor, real: Tensor | None) -> Routes:
        """Routes of tokens (N, C), of which `real` (N,) count."""
        exact = torch.promote_types(tokens.dtype, torch.float32)
        kind = "cpu" if tokens.is_meta else tokens.device.type
        with torch.autocast(kind, enabled=False):
            inputs = tokens.to(exact)
            if self.training and self.jitter:
                inputs = inputs * torch.empty_like(inputs).uniform_(1 - self.jitter, 1 + self.jitter)
            logits = F.linear(inputs, self.weight.to(exact))  # (N, C) -> (N, E)
            p = logits.softmax(-1)
            gates, chosen = p.topk(self.top_k)  # (N, E) -> (N, J)
            if self.normalise:
                gates = gates / gates.sum(-1, keepdim=True)
            loss = self.loss(logits, p, chosen[:, 0], real) if self.training else p.new_zeros(())
        return Routes(chosen, gates, loss)

    def loss(self, logits: Tensor, p: Tensor, first: Tensor, real: Tensor | None) -> Tensor:
        """The load-balancing loss and the router z-loss: how uneven the first choices (N,) are, and how large the
        logits (N, E)."""
        counted = torch.ones_like(p[:, 0]) if real is None else real.to(p.dtype)
        share = counted / counted.sum().clamp(min=1)  # (N,): what a token counts in a mean
        hits = (first.unsqueeze(-1) == torch.arange(p.shape[-1], device=p.device)).to(p.dtype)  # (N,) -> (N, E)
        balance = self.balance * p.shape[-1] * ((share @ hits) @ (share @ p))
        return balance + self.z_loss * (share @ logits.logsumexp(-1).square()) if self.z_loss else balance


class Stacked(nn.Module):
    """E linear maps side by side: weights (E, out, in), as E of nn.Linear's; biases in one row, so that they are
    vectors to an optimiser, which decays matrices alone."""

    def __init__(self, count: int, inputs: int, outputs: int, bias: bool):
        super().__init__()
        self.weight = small(torch.empty(count, outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(count * outputs)) if bias else None

    def forward(self, groups: Tensor) -> Tensor:
        """A group by each map: (E, M, in) -> (E, M, out)."""
        if self.bias is None:
            return torch.bmm(groups, self.weight.mT)
        return torch.baddbmm(self.bias.view(len(groups), 1, -1), groups, self.weight.mT)  # (E * out,) -> (E, 1, out)

    def apart(self) -> Iterable[Callable[[Tensor], Tensor]]:
        """The maps one by one, (M, in) -> (M, out)."""
        biases = [None] * len(self.weight) if self.bias is None else self.bias.chunk(len(self.weight))
        return [partial(F.linear, weight=weight, bias=bias) for weight, bias in zip(self.weight, biases, strict=True)]


def small(weight: Tensor) -> nn.Parameter:
    """Drawn from a normal of variance SCALE / inputs that is cut at two deviations."""
    std = (SCALE / weight.shape[-1]) ** 0.5
    return nn.Parameter(nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std))


class Experts(Part):
    """A mixture of experts with a capacity factor: y = sum_j g_j E_j(x) over the experts j that a token chose, each a
    feed-forward network (eq. 2).

    An expert has ceil(tokens / E * factor) places, with one `capacity` factor for training and one for evaluation; for
    a token beyond them it has no answer, and what is left is the residual path. Where `capacity` is None nobody is
    turned away, and neither is anybody where a text has one token, as in each step of decoding. What everybody chose
    goes to the side outputs as "load", in training the router's loss as "aux".
    """

    def __init__(
        self,
        router: Router,
        hidden: int,
        capacity: tuple[float, float] | None = (1.25, 2.0),
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.router = router
        self.count, width = router.weight.shape
        # Fractions, so that a count on a device gives the very number that it gives here.
        factors = [Fraction(factor).limit_denominator(1000) for factor in capacity or ()]
        self.capacity = (factors[0], factors[1]) if factors else None
        self.gated = activation in GATED
        self.activation = (GATED if self.gated else PLAIN)[activation]
        self.inner = Stacked(self.count, width, 2 * hidden if self.gated else hidden, bias)
        self.outer = Stacked(self.count, hidden, width, bias)
        self.drop = make_dropout(dropout)

    @property
    def properties(self) -> Properties:
        """A row meets others only in queues that may be too long."""
        open_to_all = self.capacity is None or self.capacity[1] >= self.count
        return Properties(
            causal=True,
            steppable=open_to_all,
            batch_independent=open_to_all,
            joins=True,
            ragged=open_to_all,
            packing=True,
        )

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        tokens = stream.x.flatten(0, 1)  # (B, T, C) -> (N, C)
        keep = stream.real
        routes = self.router(tokens, None if keep is None else keep.flatten())
        chosen = routes.chosen.view(*stream.x.shape[:2], -1)  # (N, J) -> (B, T, J)
        number, queues = lined_up(chosen, keep, self.count)
        places = self.places(len(tokens) if keep is None else keep.sum(), stream)
        ctx.side.add("load", ctx.path, ExpertLoad(queues, queues.clamp(max=places)))
        if self.training:
            ctx.side.add("aux", ctx.path, routes.loss)
        claims = tokens.unsqueeze(1).expand(-1, chosen.shape[-1], -1).flatten(0, 1)  # (N, C) -> (N, J, C) -> (S, C)
        sizes = self.sizes(queues, min(len(tokens), int(self.places(len(tokens), stream))))
        answers = self.asked(claims, chosen.flatten(), number, number < places, sizes)
        answers = (answers * routes.gates.view(-1, 1)).to(stream.x.dtype)  # (N, J) -> (S, 1)
        if chosen.shape[-1] == 1:
            return answers.view_as(stream.x)  # (S, C) -> (B, T, C), without a pass over memory
        return answers.view(*chosen.shape, -1).sum(2)  # (S, C) -> (B, T, J, C) -> (B, T, C)

    def places(self, tokens: int | Tensor, stream: Stream) -> int | Tensor:
        """How many of `tokens` an expert serves; all of the batch, where nobody is turned away."""
        rows, length = stream.x.shape[:2]
        if self.capacity is None or length == 1:
            return rows * length
        factor = self.capacity[0 if self.training else 1]
        return -(-tokens * factor.numerator // (factor.denominator * self.count))

    def sizes(self, queues: Tensor, places: int) -> list[int]:
        """Rows for each expert: as many as there may be claims; on CPUs, where looking costs nothing, as there are."""
        if not looks(queues):
            return [places] * self.count
        return [min(places, -(-queue // ROUND) * ROUND) for queue in queues.tolist()]

    def asked(self, claims: Tensor, chosen: Tensor, number: Tensor, served: Tensor, sizes: list[int]) -> Tensor:
        """The experts' answers to claims (S, C): zeros to those that are not served."""
        *starts, end = accumulate(sizes, initial=0)
        slot = torch.where(served, torch.tensor(starts, device=chosen.device)[chosen] + number, end)
        rows = claims.new_zeros(end + 1, claims.shape[-1]).index_copy_(0, slot, claims)  # the last is for the others
        answers = self.one_by_one(rows[:-1].split(sizes)) if looks(rows) else self.together(rows[:-1])
        return answers.index_select(0, slot)

    def one_by_one(self, queues: Sequence[Tensor]) -> Tensor:
        """Queues of any size, E times (M, C) -> (sum of M + 1, C): no row too many, which is what counts on CPUs."""
        maps = zip(queues, self.inner.apart(), self.outer.apart(), strict=True)
        answers = [outer(self.activated(inner(queue))) for queue, inner, outer in maps]
        return torch.cat((*answers, answers[0].new_zeros(1, answers[0].shape[-1])))

    def together(self, rows: Tensor) -> Tensor:
        """Queues of one size, (E * M, C) -> (E * M + 1, C), in two products."""
        groups = rows.view(self.count, -1, rows.shape[-1])  # (E * M, C) -> (E, M, C)
        return F.pad(self.outer(self.activated(self.inner(groups))).flatten(0, 1), (0, 0, 0, 1))

    def activated(self, hidden: Tensor) -> Tensor:
        if not self.gated:
            return self.drop(self.activation(hidden))
        gate, value = hidden.chunk(2, dim=-1)
        return self.drop(self.activation(gate) * value)


def looks(x: Tensor) -> bool:
    """Whether numbers of a tensor may be read: elsewhere than on CPUs it would keep the device waiting."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def lined_up(chosen: Tensor, keep: Tensor | None, experts: int) -> tuple[Tensor, Tensor]:
    """The number of each claim (B, T, J) in the queue of its expert, (S,), from 0; and how long queues are, (E,).

    >>> number, queues = lined_up(torch.tensor([[[1], [0], [1]], [[1], [0], [0]]]), None, 2)
    >>> number.view(2, 3).tolist(), queues.tolist()
    ([[0, 0, 2], [1, 1, 2]], [3, 3])
    """
    rows, length, choices = chosen.shape
    if keep is not None:
        chosen = chosen.masked_fill(~keep.unsqueeze(-1), experts)  # an expert that does not exist: behind the others
    claims = chosen.permute(1, 2, 0).flatten()  # (B, T, J) -> (T, J, B) -> (S,): in the order of service
    claims, order = claims.sort(stable=True)
    starts = torch.searchsorted(claims, torch.arange(experts + 1, device=claims.device))
    numbers = torch.arange(len(claims), device=claims.device)
    number = torch.empty_like(order).scatter_(0, order, numbers - starts[claims])
    number = number.view(length, choices, rows).permute(2, 0, 1)  # (S,) -> (T, J, B) -> (B, T, J)
    if keep is not None:
        number = number.masked_fill(~keep.unsqueeze(-1), len(claims))  # beyond any place
    return number.flatten(), starts.diff()


class ExpertsConfig(PartConfig):
    """Each token is sent to `top_k` of `count` feed-forward networks. 0 leaves a number to the model."""

    kind: Literal["experts"] = "experts"
    count: int = Field(8, ge=1)
    top_k: int = Field(1, ge=1)
    hidden: int = Field(0, ge=0)
    activation: Activation | Literal[""] = ""
    dropout: float = Field(0.0, ge=0, lt=1)  # inside the experts: 0.4 where a large model learns a small task
    normalise: bool | Literal["auto"] = "auto"  # gates over those of the chosen; auto: where there are several
    capacity_factor: float = 1.25  # places of an expert, in even shares of the tokens, while training
    eval_capacity_factor: float = 2.0
    drop: bool = True  # tokens beyond the capacity; false: every expert serves all that come
    balance_loss: float = Field(0.01, ge=0)  # weight of the loss on uneven loads
    z_loss: float = Field(0.0, ge=0)  # weight of the loss on large logits
    jitter: float = Field(0.01, ge=0, lt=1)  # of the router's inputs while training

    @field_validator("capacity_factor", "eval_capacity_factor")
    @classmethod
    def _some_place(cls, factor: float) -> float:
        if factor < 0.001:
            raise ValueError("a factor that leaves no expert a place; 1.25 is usual, and drop = false sets no limit")
        return factor

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.top_k > self.count:
            raise ValueError(f"{self.top_k} experts cannot be chosen among {self.count}; lower choose")
        return self

    def build(self, site: BuildContext) -> nn.Module:
        normalise = self.top_k > 1 if self.normalise == "auto" else self.normalise
        router = Router(site.width, self.count, self.top_k, normalise, self.jitter, self.balance_loss, self.z_loss)
        return Experts(
            router,
            self.hidden or site.hidden,
            (self.capacity_factor, self.eval_capacity_factor) if self.drop else None,
            self.activation or site.activation,
            site.mlp_bias,
            self.dropout or site.hidden_dropout,
        )
