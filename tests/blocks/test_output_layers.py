"""Output layers against torch's adaptive softmax and against their equations in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.heads import OutputLayer, VocabularyHead
from headwise.blocks.losses import compute_loss_from_logits
from headwise.blocks.output_layers import AdaptiveSoftmax, AdaptiveSoftmaxConfig, MixtureOfSoftmaxes, OutputContext
from headwise.blocks.tables import OUTPUT_LAYERS
from headwise.blocks.token_embeddings import AdaptiveEmbedding, AdaptiveEmbeddingConfig
from headwise.errors import UserError

close = torch.testing.assert_close
PAD, WIDTH, VOCAB, CUTOFFS = 0, 8, 30, (6, 14)
ADAPTIVE = {"kind": "adaptive", "cutoffs": CUTOFFS, "div_value": 2.0}
LAYERS: dict[str, Any] = {
    "softmax": {"kind": "softmax"},
    "adaptive": ADAPTIVE,
    "adaptive, projected": {**ADAPTIVE, "projections": "all"},
    "mixture": {"kind": "mixture", "components": 3, "bias": True},
}


def build(name: str, **context: Any) -> Any:
    """An output layer in float64 with random weights."""
    torch.manual_seed(0)
    layer = OUTPUT_LAYERS.parse(LAYERS[name]).build(OutputContext(WIDTH, VOCAB, **context)).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7)
    return layer


def make_batch(rows: int = 4, length: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, length, WIDTH, dtype=torch.float64, generator=generator).requires_grad_()
    labels = torch.randint(1, VOCAB, (rows, length), generator=generator)
    labels[:, -2:] = PAD
    return x, labels


def list_torch_tensors(layer: Any, tensors: Any) -> list[Tensor]:
    """The weights of torch's adaptive softmax, or their gradients, in the shapes and order of ours."""
    head, rest = tensors(layer.head.weight), [tensors(module.weight) for tail in layer.tail for module in tail]
    first = layer.shortlist_size
    biases = [] if layer.head.bias is None else list(tensors(layer.head.bias).tensor_split([first]))
    return [head[:first], head[first:], *(tensor.t() for tensor in rest[::2]), *rest[1::2], *biases]


def list_tensors(layer: AdaptiveSoftmax, tensors: Any) -> list[Tensor]:
    table: Any = layer.table
    head, *tails = [tensors(cluster.weight) for cluster in table.tables]
    biases = [] if layer.bias is None else [tensors(layer.bias)[: layer.clusters.sizes[0]], tensors(layer.cluster_bias)]
    projections = [tensors(projection.weight) for projection in table.projections[1:]]
    return [head, tensors(layer.cluster_table.weight), *projections, *tails, *biases]


@pytest.mark.parametrize("head_bias", [False, True])
@pytest.mark.parametrize(("cutoffs", "div_value"), [((6, 14), 2.0), ((1, 2, 29), 1.5), ((20,), 1.0)])
def test_the_adaptive_softmax_is_that_of_torch(cutoffs: tuple[int, ...], div_value: float, head_bias: bool) -> None:
    """Log-probabilities, loss and all gradients, on copied weights. torch projects every tail, whatever its width."""
    torch.manual_seed(0)
    torch_layer = nn.AdaptiveLogSoftmaxWithLoss(WIDTH, VOCAB, list(cutoffs), div_value, head_bias=head_bias).double()
    config = AdaptiveSoftmaxConfig(cutoffs=cutoffs, div_value=div_value, projections="tails")
    layer: Any = config.build(OutputContext(WIDTH, VOCAB, bias=head_bias)).double()
    for ours, theirs in zip(
        list_tensors(layer, Tensor.detach), list_torch_tensors(torch_layer, Tensor.detach), strict=True
    ):
        ours.copy_(theirs)
    labels = torch.arange(1, VOCAB).repeat(2)  # torch gives a tail without labels no gradient instead of zeros
    x = torch.randn(len(labels), WIDTH, dtype=torch.float64, requires_grad=True)
    close(layer(x), torch_layer.log_prob(x))
    loss, expected = layer.loss(x, labels), -torch_layer(x, labels).output.sum()
    close(loss.total, expected)
    close(loss.nll, expected.detach())
    assert loss.count == len(labels)
    (grad_x,) = torch.autograd.grad(expected, x, retain_graph=True)
    close(torch.autograd.grad(loss.total, x, retain_graph=True)[0], grad_x)
    torch.autograd.backward([layer.loss(x, labels).total, expected])
    grads = [
        list_tensors(layer, lambda weight: weight.grad),
        list_torch_tensors(torch_layer, lambda weight: weight.grad),
    ]
    close(*grads)


def compute_mixture(layer: MixtureOfSoftmaxes, x: Tensor) -> list[float]:
    """log sum_k pi_k softmax(E tanh(W_k x + c_k) + b) of one vector, number by number."""

    def softmax(logits: list[float]) -> list[float]:
        powers = [math.exp(logit) for logit in logits]
        return [power / sum(powers) for power in powers]

    def multiply(matrix: Tensor, vector: list[float]) -> list[float]:
        return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix.tolist()]

    prior, probabilities = softmax(multiply(layer.prior.weight, x.tolist())), [0.0] * layer.vocab
    shifts = [0.0] * layer.vocab if layer.bias is None else layer.bias.tolist()
    for k in range(layer.components):
        rows = slice(k * WIDTH, (k + 1) * WIDTH)
        inner = multiply(layer.project.weight[rows], x.tolist())
        vector = [math.tanh(a + c) for a, c in zip(inner, layer.project.bias[rows].tolist(), strict=True)]
        logits = [a + b for a, b in zip(multiply(layer.table.weight, vector), shifts, strict=True)]
        probabilities = [p + prior[k] * q for p, q in zip(probabilities, softmax(logits), strict=True)]
    return [math.log(p) for p in probabilities]


@pytest.mark.parametrize("bias", [False, True])
def test_the_mixture_of_softmaxes_is_its_equation(bias: bool) -> None:
    layer, (x, _) = build("mixture", bias=bias), make_batch(1, 5)
    expected = torch.tensor([[compute_mixture(layer, vector) for vector in x[0]]], dtype=torch.float64)
    close(layer(x), expected)


def test_a_mixture_of_one_is_a_softmax_of_the_projected_input() -> None:
    layer = OUTPUT_LAYERS.parse({"kind": "mixture", "components": 1}).build(OutputContext(WIDTH, VOCAB)).double()
    x, _ = make_batch()
    close(layer(x), F.linear(layer.project(x).tanh(), layer.table.weight).log_softmax(-1))


@torch.no_grad()
def test_the_mixture_breaks_the_softmax_bottleneck() -> None:
    """Log-probabilities of one softmax over many contexts have at most rank C + 1; those of a mixture have more."""
    x = torch.randn(100, WIDTH, dtype=torch.float64)
    assert torch.linalg.matrix_rank(build("softmax")(x).log_softmax(-1)) == WIDTH + 1
    assert torch.linalg.matrix_rank(build("mixture")(x)) > 2 * WIDTH


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_of_the_logits(name: str, bias: bool, label_smoothing: float) -> None:
    """Also with label smoothing, whose uniform part is over all tokens; with the gradients of all parameters."""
    layer, (x, labels) = build(name, bias=bias), make_batch()
    inputs = [x, *layer.parameters()]
    loss, logits = layer.loss(x, labels, label_smoothing), layer(x).flatten(0, 1)
    expected = F.cross_entropy(
        logits, labels.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=label_smoothing
    )
    close(loss.total, expected)
    close(loss.nll, F.cross_entropy(logits, labels.flatten(), ignore_index=PAD, reduction="sum").detach())
    assert loss.count == (labels != PAD).sum() and not loss.nll.requires_grad
    close(torch.autograd.grad(3 * loss.total, inputs), torch.autograd.grad(3 * expected, inputs))


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "softmax"])
def test_logits_are_log_probabilities(name: str) -> None:
    x, _ = make_batch()
    close(build(name, bias=True)(x).exp().sum(-1), torch.ones(x.shape[:2], dtype=torch.float64))


@pytest.mark.parametrize("chunk_size", [1, 5, 28])
def test_a_loss_in_chunks_is_the_loss_at_once(chunk_size: int) -> None:
    layer, (x, labels) = build("mixture", bias=True), make_batch()
    inputs = [x, *layer.parameters()]
    whole = layer.loss(x, labels, 0.1)
    loss = compute_loss_from_logits(layer.compute_log_probs, x, labels, PAD, 0.1, chunk_size, normalised=True)
    close((loss.total, loss.nll, loss.count), (whole.total, whole.nll, whole.count))
    close(torch.autograd.grad(loss.total, inputs), torch.autograd.grad(whole.total, inputs))


@torch.no_grad()
def test_the_mixture_runs_in_chunks_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, (x, _) = build("mixture"), make_batch()
    whole = layer(x)
    monkeypatch.setattr("headwise.blocks.output_layers.count_chunk_rows", lambda vocab: 15)
    assert layer.chunk_rows == 5
    close(layer(x), whole)


@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_of_padding_has_no_loss(name: str) -> None:
    layer, (x, labels) = build(name, bias=True), make_batch()
    for label_smoothing in (0.0, 0.1):
        loss = layer.loss(x, torch.full_like(labels, PAD), label_smoothing)
        loss.total.backward()
        assert loss.total == loss.nll == loss.count == 0
    assert not any(parameter.grad.any() for parameter in layer.parameters())


@torch.no_grad()
@pytest.mark.parametrize("name", LAYERS)
def test_suppressed_tokens_have_no_probability(name: str) -> None:
    layer, (x, _) = build(name, suppress_ids=(3, 9, 29)), make_batch()
    probabilities = layer(x).softmax(-1)
    assert (probabilities[..., [3, 9, 29]] == 0).all()
    close(probabilities.sum(-1), torch.ones(x.shape[:2], dtype=torch.float64))


@torch.no_grad()
@pytest.mark.parametrize("name", LAYERS)
def test_low_precision_is_for_matrix_products_alone(name: str) -> None:
    layer, (x, labels) = build(name).float(), make_batch()
    exact = layer.loss(x.float(), labels, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = layer.loss(x.float(), labels, 0.1)
    assert loss.total.dtype == torch.float32
    close(loss.total, exact.total, rtol=2e-2, atol=0)


class TestTies:
    """The adaptive softmax shares tables and projections with the token embedding."""

    clusters = {"cutoffs": CUTOFFS, "widths": (8, 4, 2)}  # noqa: RUF012

    def build(self, embedding: dict[str, Any], output: dict[str, Any], must_tie: bool = True) -> tuple[Any, Any]:
        torch.manual_seed(0)
        table = AdaptiveEmbeddingConfig(**embedding).build(VOCAB, WIDTH)
        context = OutputContext(WIDTH, VOCAB, table, must_tie)
        return table, AdaptiveSoftmaxConfig(**output).build(context)

    def test_all_weights_are_the_embeddings(self) -> None:
        table, layer = self.build(self.clusters, self.clusters)
        own = {name for name, _ in layer.named_parameters() if not name.startswith("table.")}
        assert layer.table is table and own == {"cluster_table.weight"}
        x = torch.randn(2, WIDTH)
        logits = F.linear(x, torch.cat((table.weight[:6], layer.cluster_table.weight))).log_softmax(-1)
        tail = F.linear(x, table.weight[14:]).log_softmax(-1)
        close(layer(x)[:, 14:], logits[:, 7:] + tail)

    @pytest.mark.parametrize(("tied", "own"), [("tails", [0]), ("none", [0, 1, 2]), ("all", [])])
    def test_projections_are_tied_as_set(self, tied: str, own: list[int]) -> None:
        every = {**self.clusters, "projections": "all"}
        table, layer = self.build(every, {**every, "tie_projections": tied})
        names = [name for name, _ in layer.named_parameters() if name.startswith("projections.")]
        assert names == [f"projections.{number}.weight" for number in own]
        x = torch.randn(3, WIDTH)
        for number in range(3):
            source = layer if number in own else table
            close(layer.project(x, number), x @ source.projections[number].weight)

    def test_one_table_has_clusters_without_projections(self) -> None:
        table = nn.Embedding(VOCAB, WIDTH)
        config = AdaptiveSoftmaxConfig(cutoffs=CUTOFFS, div_value=1)
        layer: Any = config.build(OutputContext(WIDTH, VOCAB, table, must_tie=True))
        assert layer.table is table and sum(p.numel() for p in layer.parameters()) == (VOCAB + 2) * WIDTH

    def test_other_clusters_are_untied_or_refused(self) -> None:
        other = {**self.clusters, "widths": (8, 4, 4)}
        table, layer = self.build(self.clusters, other, must_tie=False)
        assert layer.table is not table
        with pytest.raises(UserError, match=r"^tie: the token embedding has 6 x 8, 8 x 4, 16 x 2, the adaptive soft"):
            self.build(self.clusters, other)
        with pytest.raises(UserError, match=r"^tie: the token embedding has one table, the adaptive softmax clusters"):
            AdaptiveSoftmaxConfig(**other).build(OutputContext(WIDTH, VOCAB, nn.Embedding(VOCAB, WIDTH), True))

    def test_a_softmax_of_adaptive_embeddings_has_their_weights(self) -> None:
        table: Any = AdaptiveEmbeddingConfig(**self.clusters).build(VOCAB, WIDTH).double()
        layer, (x, labels) = VocabularyHead(WIDTH, VOCAB, table, bias=True).double(), make_batch()
        nn.init.normal_(layer.bias)
        assert isinstance(table, AdaptiveEmbedding)
        close(layer(x), F.linear(x, table.weight, layer.bias))
        loss, inputs = layer.loss(x, labels, 0.1), [x, *layer.parameters()]
        expected = F.cross_entropy(
            F.linear(x, table.weight, layer.bias).flatten(0, 1),
            labels.flatten(),
            ignore_index=PAD,
            reduction="sum",
            label_smoothing=0.1,
        )
        close(torch.autograd.grad(loss.total, inputs), torch.autograd.grad(expected, inputs))


def test_every_kind_fulfils_the_interface() -> None:
    for name in LAYERS:
        layer = build(name)
        assert (
            isinstance(layer, OutputLayer) and layer.vocab == VOCAB and layer(torch.zeros(2, 3, 8).double()).ndim == 3
        )
    assert isinstance(build("adaptive"), AdaptiveSoftmax)
