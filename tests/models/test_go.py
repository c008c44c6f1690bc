"""GO against its equations, written out; attention without positions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from headwise.blocks.graphsage import GraphSageLayer
from headwise.catalog import CATALOG
from headwise.models.go import GoConfig, GraphOptimizer
from headwise.models.placement_policy import GraphInput
from headwise.placement.features import KINDS, NUMBERS


def make_graph(nodes: int, devices: int = 3) -> GraphInput:
    edges = torch.tensor([(a, b) for a in range(nodes) for b in (a + 1, a + 3) if b < nodes]).T
    edges = torch.cat([edges, edges.flip(0)], 1)
    return GraphInput(torch.randint(KINDS, (nodes,)), torch.randn(nodes, NUMBERS), edges, devices)


def make_model(**settings: object) -> GraphOptimizer:
    torch.manual_seed(0)
    model: GraphOptimizer = CATALOG["go"].configure("tiny", {"width": 8, **settings}).build().double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def attend(layer: torch.nn.Module, x: torch.Tensor, memory: torch.Tensor, heads: int) -> torch.Tensor:
    """Softmax attention of x (S, C) to memory and x, with the weights of a layer's attention."""
    attention = layer.parts[0]
    qkv = attention.qkv.net if hasattr(attention.qkv, "net") else attention.qkv
    weight, bias = (
        next((p for n, p in qkv.named_parameters() if p.dim() == 2)),
        next(p for p in qkv.parameters() if p.dim() == 1),
    )
    q_weight, k_weight, v_weight = weight.chunk(3)
    q_bias, k_bias, v_bias = bias.chunk(3)
    keys_in = torch.cat([memory, x])
    q, k, v = x @ q_weight.T + q_bias, keys_in @ k_weight.T + k_bias, keys_in @ v_weight.T + v_bias
    outputs = []
    for one, two, three in zip(q.chunk(heads, 1), k.chunk(heads, 1), v.chunk(heads, 1), strict=True):
        outputs.append(((one @ two.T) / one.shape[1] ** 0.5).softmax(1) @ three)
    return F.linear(torch.cat(outputs, 1), attention.out.weight, attention.out.bias)


def test_graphsage_is_its_equation():
    torch.manual_seed(1)
    layer, x = GraphSageLayer(5).double(), torch.randn(6, 5, dtype=torch.float64)
    edges = torch.tensor([[0, 1, 2, 4, 1, 3], [1, 2, 1, 3, 0, 1]])
    result = layer(x, edges)
    for node in range(6):
        neighbours = edges[0][edges[1] == node].tolist()
        messages = [torch.relu(layer.pool.weight @ x[each] + layer.pool.bias) for each in neighbours]
        pooled = torch.stack(messages).max(0).values if messages else torch.zeros(5, dtype=torch.float64)
        expected = torch.relu(layer.update.weight @ torch.cat([x[node], pooled]) + layer.update.bias)
        assert torch.allclose(result[node], expected, atol=1e-12)


def test_the_network_is_its_equations():
    """Superposition, pre-norm layers over segments of four nodes that see the four before, one softmax for each
    node."""
    model, graph = make_model(memory_length=4), make_graph(10)
    graph = graph._replace(numbers=graph.numbers.double())
    previous = torch.randint(4, (1, 10))
    x0 = model.embed(graph)
    got = model.compute_logits(x0, previous, 3)[0]

    x, heads = x0 + model.previous.weight[previous[0]], model.config.heads
    for layer, gate in zip(model.stack.layers, model.gates, strict=True):
        inputs = x * (gate.condition.weight @ x0.mean(0) + gate.condition.bias)
        outputs = []
        for first in range(0, 10, 4):
            part, before = inputs[first : first + 4], inputs[max(first - 4, 0) : first]
            normed, memory = (
                F.layer_norm(each, (8,), layer.norms[0].weight, layer.norms[0].bias) for each in (part, before)
            )
            part = part + attend(layer, normed, memory, heads)
            hidden = F.layer_norm(part, (8,), layer.norms[1].weight, layer.norms[1].bias)
            outputs.append(part + layer.parts[1](hidden))
        x = torch.cat(outputs)
    x = F.layer_norm(x, (8,), model.stack.final.weight, model.stack.final.bias)
    expected = x @ model.head.weight.T + model.head.bias
    assert torch.allclose(got[:, :3], expected[:, :3], atol=1e-10)
    assert (got.softmax(-1)[:, 3:] == 0).all()


def test_attention_without_positions_is_permutation_equivariant():
    model = make_model(segment=16)
    x0, previous, order = torch.randn(9, 8, dtype=torch.float64), torch.randint(4, (2, 9)), torch.randperm(9)
    straight = model.compute_logits(x0, previous, 8)
    shuffled = model.compute_logits(x0[order], previous[:, order], 8)
    assert torch.allclose(straight[:, order], shuffled, atol=1e-10)
    segments = make_model(segment=4)  # across segments it is not
    assert not torch.allclose(
        segments.compute_logits(x0, previous, 8)[:, order], segments.compute_logits(x0[order], previous[:, order], 8)
    )


def test_probabilities_are_those_of_the_passes():
    """The log probability of a placement is that of all passes, each given the one before."""
    model, graph = make_model(), make_graph(6)
    graph = graph._replace(numbers=graph.numbers.double())
    actions = model.draw(graph, 3)
    assert actions.shape == (3, 12) and actions.max() < 3
    measured = model.measure(graph, actions)
    x0 = model.embed(graph)
    for row in range(3):
        first, second = actions[row, :6], actions[row, 6:]
        one = model.compute_logits(x0, torch.zeros(1, 6, dtype=torch.long), 3)[0].log_softmax(-1)
        two = model.compute_logits(x0, first[None] + 1, 3)[0].log_softmax(-1)
        expected = [*(one[n, first[n]] for n in range(6)), *(two[n, second[n]] for n in range(6))]
        assert torch.allclose(measured.log_probs[row], torch.stack(expected), atol=1e-10)
    assert model.place(graph, actions).tolist() == actions[:, 6:].tolist()
    entropy = -(one.exp() * one)[:, :3].sum(-1)
    assert torch.allclose(measured.entropy[-1, :6], entropy, atol=1e-10)


def test_a_gradient_reaches_every_parameter():
    model, graph = make_model().float(), make_graph(12)
    model.measure(graph, model.draw(graph, 2)).log_probs.sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert without == []


def test_superposition_depends_on_the_graph_alone():
    model = make_model()
    x, whole = torch.randn(2, 4, 8).double(), torch.randn(8).double()
    gate = model.gates[0]
    assert torch.allclose(gate(x, whole) / x, gate(torch.ones_like(x), whole))
    assert GoConfig(superposition=False).build().gates is None


@pytest.mark.parametrize(("size", "expected"), [("base", 590_984), ("small", 152_136)])
def test_sizes(size, expected):
    model = CATALOG["go"].configure(size).build()
    assert sum(each.numel() for each in model.parameters()) == expected
