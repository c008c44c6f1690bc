"""Output layers beside the softmax over one table: the adaptive softmax (Grave et al. 2017, "Efficient softmax
approximation for GPUs"), the mixture of softmaxes (Yang et al. 2018, "Breaking the Softmax Bottleneck") and a softmax
with weight normalisation (Salimans and Kingma 2016).

The `forward` of the first two returns log-probabilities, which are logits too: their softmax is the distribution, so
that search, sampling and ensembles need not know the kind. References: torch.nn.AdaptiveLogSoftmaxWithLoss; the
vocabulary embeddings of mesh-tensorflow, with which Narang et al. 2021 trained.

Letters: B rows, T length, C width, V vocab, K components, N tokens, n tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.heads import OutputLayer, VocabularyHead
from headwise.blocks.losses import Loss, compute_cross_entropy, compute_loss_from_logits, count_chunk_rows
from headwise.blocks.token_embeddings import (
    AdaptiveEmbedding,
    ClusterFields,
    Clusters,
    TokenTable,
    build_projections,
    build_table,
    compute_logits,
    project_back,
)
from headwise.blocks.weight_norm import normalize_weight
from headwise.config.base import Config, describe_config
from headwise.errors import UserError

TieProjections = Literal["all", "tails", "none"]
NO_LABEL = -1  # the `pad` of labels without padding


class AdaptiveSoftmax(OutputLayer):
    """The adaptive softmax. The first cluster's softmax has its tokens and one entry for each further cluster c, the
    tails: p(v) = p(v | head) for the first tokens, p(v) = p(c | head) p(v | c) for those of tail c.

    Without label smoothing, the loss computes the logits of a tail for its own labels only, and the z-loss is that of
    each softmax. With a bias, tokens and clusters have one.
    """

    def __init__(self, clusters: Clusters, width: int, tie_projections: TieProjections = "all", **settings: Any):
        tied = settings.pop("table", None)
        table = tied if tied is not None else build_table(clusters, width)
        super().__init__(width, clusters.vocab, table=table, **settings)
        self.clusters = clusters
        self.cluster_table = nn.Embedding(len(clusters.sizes) - 1, clusters.widths[0])
        learned = isinstance(self.bias, nn.Parameter)
        self.cluster_bias = nn.Parameter(torch.zeros(len(clusters.sizes) - 1)) if learned else None
        # Which clusters have projections of their own beside those of a tied table.
        first_own, tails_own = tie_projections != "all" and tied is not None, tie_projections == "none"
        own = tuple(
            needed and first_own and (tails_own or number == 0) for number, needed in enumerate(clusters.projected)
        )
        self.projections = build_projections(clusters.widths, own, width)

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities of all tokens, (B, T, C) -> (B, T, V)."""
        return self.compute_log_probs(self.transform(x))

    def compute_log_probs(self, x: Tensor) -> Tensor:
        exact, size = torch.promote_types(x.dtype, torch.float32), self.clusters.sizes[0]
        (weight, bias), *tails = self.list_weights()
        log_head = F.linear(self.project(x, 0), weight, bias).log_softmax(-1, dtype=exact)
        log_p = [log_head[..., :size]]
        for number, (weight, bias) in enumerate(tails, start=1):
            log_tail = F.linear(self.project(x, number), weight, bias).log_softmax(-1, dtype=exact)
            log_p.append(log_head[..., size + number - 1].unsqueeze(-1) + log_tail)
        return torch.cat(log_p, -1)

    def loss(self, x: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Loss:
        x, labels = self.transform(x).reshape(-1, x.shape[-1]), labels.reshape(-1)
        if label_smoothing:  # its uniform part is over all tokens
            if self.z_loss:
                raise UserError(
                    "z_loss: an adaptive softmax has it without label smoothing alone; set one of them to 0"
                )
            rows = count_chunk_rows(self.vocab)
            return compute_loss_from_logits(
                self.compute_log_probs, x, labels, self.pad, label_smoothing, rows, normalised=True
            )
        keep = labels != self.pad
        x, labels = x[keep], labels[keep]
        (weight, bias), *tails = self.list_weights()
        head_labels = labels
        for number, start in enumerate(self.clusters.starts[1:]):
            head_labels = head_labels.where(labels < start, self.clusters.sizes[0] + number)
        losses = [compute_cross_entropy(self.project(x, 0), weight, bias, head_labels, NO_LABEL, z_loss=self.z_loss)]
        for number, (weight, bias) in enumerate(tails, start=1):
            rows_labels = labels - self.clusters.starts[number]
            inside = (rows_labels >= 0) & (rows_labels < self.clusters.sizes[number])
            projected = self.project(x[inside], number)
            losses.append(
                compute_cross_entropy(projected, weight, bias, rows_labels[inside], NO_LABEL, z_loss=self.z_loss)
            )
        total, nll = (torch.stack([getattr(loss, name) for loss in losses]).sum() for name in ("total", "nll"))
        return Loss(total, nll, keep.sum())

    def project(self, x: Tensor, number: int) -> Tensor:
        """x in the width of a cluster, (B, T, C) -> (B, T, W)."""
        if isinstance(self.projections[number], nn.Identity) and isinstance(self.table, AdaptiveEmbedding):
            return project_back(x, self.table.projections[number])
        return project_back(x, self.projections[number])

    def list_weights(self) -> list[tuple[Tensor, Tensor | None]]:
        """Weight and bias of each cluster's softmax; the first with an entry for each other cluster."""
        sizes = list(self.clusters.sizes)
        if isinstance(self.table, AdaptiveEmbedding):
            weights = self.table.weights
        else:
            weights = list(self.table.weight.split(sizes))
        weights[0] = torch.cat((weights[0], self.cluster_table.weight))
        if self.bias is None:
            return [(weight, None) for weight in weights]
        biases = list(self.bias.split(sizes))
        fixed = biases[0].new_zeros(len(sizes) - 1)
        biases[0] = torch.cat((biases[0], fixed if self.cluster_bias is None else self.cluster_bias))
        return list(zip(weights, biases, strict=True))


class MixtureOfSoftmaxes(OutputLayer):
    """The mixture of softmaxes: log p = log sum_k pi_k softmax(E tanh(W_k x) + b), pi = softmax(U x). The matrix of
    log-probabilities over contexts can have any rank; that of one softmax has at most the width."""

    def __init__(self, components: int, component_bias: bool, width: int, vocab: int, **settings: Any):
        super().__init__(width, vocab, **settings)
        self.components = components
        self.prior = nn.Linear(width, components, bias=False)
        self.project = nn.Linear(width, components * width, bias=component_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities of all tokens, (B, T, C) -> (B, T, V)."""
        x = self.transform(x)
        chunks = x.reshape(-1, x.shape[-1]).split(self.chunk_rows)
        log_p = torch.cat([self.compute_log_probs(chunk) for chunk in chunks])
        return log_p.view(*x.shape[:-1], self.vocab)

    def compute_log_probs(self, x: Tensor) -> Tensor:
        exact = torch.promote_types(x.dtype, torch.float32)
        log_prior = self.prior(x).log_softmax(-1, dtype=exact)  # (n, K)
        vectors = self.project(x).tanh().unflatten(-1, (self.components, -1))  # (n, C) -> (n, K, C)
        log_p = compute_logits(vectors, self.table, self.bias).log_softmax(-1, dtype=exact)  # (n, K, V)
        return torch.logsumexp(log_p + log_prior.unsqueeze(-1), dim=1)

    def loss(self, x: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Loss:
        x = self.transform(x)
        return compute_loss_from_logits(
            self.compute_log_probs, x, labels, self.pad, label_smoothing, self.chunk_rows, normalised=True
        )

    @property
    def chunk_rows(self) -> int:
        """Tokens of a chunk: each has a row of logits for every component."""
        return max(1, count_chunk_rows(self.vocab) // self.components)


class WeightNormSoftmax(OutputLayer):
    """A softmax whose output embeddings have weight normalisation: logit_v = g_v E_v x / ||E_v|| (+ b_v)."""

    def __init__(self, width: int, vocab: int, **settings: Any):
        super().__init__(width, vocab, **settings)
        self.gain = nn.Parameter(torch.ones(vocab))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.transform(x), self.compute_weight(), self.bias)

    def loss(self, x: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Loss:
        weight, settings = self.compute_weight(), (labels, self.pad, label_smoothing, self.z_loss)
        return compute_cross_entropy(self.transform(x), weight, self.bias, *settings)

    def compute_weight(self) -> Tensor:
        """The normalised output embeddings, (V, C)."""
        assert isinstance(self.table, nn.Embedding)
        return normalize_weight(self.table.weight, self.gain)


@dataclass(frozen=True)
class OutputContext:
    """The place of an output layer in a model: the sizes that it must fit, and the model's settings."""

    width: int  # of its inputs after the transform
    vocab: int
    table: TokenTable | None = None  # to tie the weights to
    must_tie: bool = False  # whether a table that cannot be tied is an error; else the layer has its own
    bias: bool = False
    transform: nn.Module | None = None
    suppress_ids: tuple[int, ...] = ()
    z_loss: float = 0.0

    @property
    def settings(self) -> Mapping[str, Any]:
        """Arguments of every `OutputLayer`."""
        names = ("width", "table", "bias", "transform", "suppress_ids", "z_loss")
        return {name: getattr(self, name) for name in names}


class OutputConfig(Config):
    """An output layer: `build(output_ctx)` returns an `OutputLayer`."""

    kind: str

    def build(self, output_ctx: OutputContext) -> OutputLayer:
        raise UserError(f"{self.kind}: {type(self).__name__} has no build method; write one that returns the layer")

    def check_built(self, built: Any, *arguments: Any) -> Any:
        if not isinstance(super().check_built(built), OutputLayer):
            raise UserError(f"{describe_config(self)}.build returns {type(built).__name__}; return an OutputLayer")
        return built


class SoftmaxConfig(OutputConfig):
    """One softmax over the vocabulary."""

    kind: Literal["softmax"] = "softmax"

    def build(self, output_ctx: OutputContext) -> OutputLayer:
        return VocabularyHead(vocab=output_ctx.vocab, **output_ctx.settings)


class AdaptiveSoftmaxConfig(ClusterFields, OutputConfig):
    """The adaptive softmax (Grave et al. 2017)."""

    kind: Literal["adaptive"] = "adaptive"
    # of a tied table: which of its projections are tied, too; Transformer-XL ties those of the tails
    tie_projections: TieProjections = "all"

    def build(self, output_ctx: OutputContext) -> OutputLayer:
        clusters = self.make_clusters(output_ctx.vocab, output_ctx.width, "output_layer")
        table, settings = output_ctx.table, dict(output_ctx.settings)
        if table is not None and not has_clusters(table, clusters):
            if output_ctx.must_tie:
                own = str(table.clusters) if isinstance(table, AdaptiveEmbedding) else "one table"
                raise UserError(
                    f"tie: the token embedding has {own}, the adaptive softmax clusters of {clusters}; give both the "
                    "same cutoffs, widths and projections, or use tie = 'none'"
                )
            settings["table"] = None
        return AdaptiveSoftmax(clusters, tie_projections=self.tie_projections, **settings)


def has_clusters(table: TokenTable, clusters: Clusters) -> bool:
    """Whether the rows of a table are those of the clusters. An ordinary table has clusters without projections."""
    return table.clusters == clusters if isinstance(table, AdaptiveEmbedding) else not any(clusters.projected)


class MixtureOfSoftmaxesConfig(OutputConfig):
    """The mixture of softmaxes (Yang et al. 2018)."""

    kind: Literal["mixture"] = "mixture"
    components: int = Field(15, ge=1)
    bias: bool = False  # of the projections W_k; the authors' code has one, that of Narang et al. 2021 does not

    def build(self, output_ctx: OutputContext) -> OutputLayer:
        return MixtureOfSoftmaxes(self.components, self.bias, vocab=output_ctx.vocab, **output_ctx.settings)


class WeightNormSoftmaxConfig(OutputConfig):
    """One softmax, with weight normalisation of the output embeddings (Salimans and Kingma 2016)."""

    kind: Literal["weight_norm"] = "weight_norm"

    def build(self, output_ctx: OutputContext) -> OutputLayer:
        settings = dict(output_ctx.settings)
        if not isinstance(output_ctx.table, nn.Embedding | None):
            if output_ctx.must_tie:
                raise UserError(
                    "tie: the token embedding has clusters, a softmax with weight normalisation one table; use "
                    "token_embedding = 'table' or tie = 'none'"
                )
            settings["table"] = None
        return WeightNormSoftmax(vocab=output_ctx.vocab, **settings)
