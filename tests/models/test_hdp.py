"""The recurrent policy with groups."""

from __future__ import annotations

from itertools import product

import torch

from headwise.catalog import CATALOG
from headwise.models.placement_policy import GraphInput
from headwise.placement.features import NUMBERS


def make_policy(groups: int):
    torch.manual_seed(0)
    return CATALOG["hdp"].configure("tiny", {"groups": groups, "width": 8}).build().double()


def make_graph(nodes: int, devices: int) -> GraphInput:
    torch.manual_seed(1)
    nothing = torch.zeros(2, 0, dtype=torch.long)
    return GraphInput(torch.arange(nodes), torch.randn(nodes, NUMBERS).double(), nothing, devices)


def test_probabilities_of_all_actions_sum_to_one():
    policy, graph = make_policy(groups=2), make_graph(3, 2)
    actions = torch.tensor(
        [[*groups, *devices] for groups in product(range(2), repeat=3) for devices in product(range(2), repeat=2)]
    )
    total = policy.measure(graph, actions).log_probs.sum(1).exp().sum()
    assert torch.allclose(total, torch.tensor(1.0).double(), atol=1e-12)


def test_operators_of_a_group_are_together():
    policy, graph = make_policy(groups=3), make_graph(20, 4)
    actions = policy.draw(graph, 5)
    groups, devices = actions.split([20, 3], 1)
    placement = policy.place(graph, actions)
    for row in range(5):
        assert placement[row].tolist() == [devices[row, group] for group in groups[row].tolist()]
    assert placement.max() < 4


def test_what_is_drawn_often_is_probable():
    policy, graph = make_policy(groups=2), make_graph(2, 2)
    with torch.no_grad():
        for parameter in policy.parameters():
            torch.nn.init.normal_(parameter, std=1.0)
        actions = policy.draw(graph, 4000)
        seen, counts = actions.unique(dim=0, return_counts=True)
        expected = policy.measure(graph, seen).log_probs.sum(1).exp()
    assert torch.allclose(counts.double() / 4000, expected, atol=0.04)
