"""Switch Transformers: published sizes, and which layers have experts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headwise
from headwise.blocks.experts import Experts
from headwise.blocks.stack import count_parameters
from headwise.catalog import CATALOG

COUNTS = {
    "switch-base-8": 619_339_008,
    "switch-base-16": 1_072_397_568,
    "switch-base-128": 7_415_217_408,
    "switch-narang-top1": 1_101_563_136,
    "switch-narang-top2": 648_283_392,
}
UNITS = {"M": 1e6, "B": 1e9}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameter_counts_are_exact(name: str, count: int) -> None:
    assert count_parameters(headwise.build(name, device="meta")) == count


@pytest.mark.parametrize(("size", "published"), CATALOG["switch"].published.items())
def test_sizes_are_those_of_the_papers(size: str, published: str) -> None:
    count = count_parameters(headwise.build(f"switch-{size}", device="meta"))
    assert count == pytest.approx(
        float(published[:-1]) * UNITS[published[-1]], rel=0.06 if size == "base-128" else 0.02
    )


@pytest.mark.parametrize(("size", "millions"), [("narang-top1", 1100.51), ("narang-top2", 647.53)])
def test_matrices_of_narang_without_routers(size: str, millions: float) -> None:
    model = headwise.build(f"switch-{size}", device="meta")
    named = {id(weight): (name, weight) for name, weight in model.named_parameters()}
    matrices = [weight for name, weight in named.values() if weight.dim() > 1 and "router" not in name]
    buckets = 2 * 32 * 12  # of distances, which are a bias
    assert (sum(weight.numel() for weight in matrices) - buckets) / 1e6 == pytest.approx(millions, abs=0.005)


def list_expert_layers(every: int, depth: int = 6, **settings: object) -> list[list[int]]:
    stack = {"depth": depth}
    model = headwise.build("switch-tiny", vocab=9, encoder=stack, decoder=stack, expert_interval=every, **settings)
    return [
        [number for number, layer in enumerate(side.stack.layers) if isinstance(layer.parts[-1], Experts)]
        for side in (model.encoder, model.decoder)
    ]


def test_the_second_of_every_few_layers_has_experts() -> None:
    assert list_expert_layers(2) == [[1, 3, 5]] * 2
    assert list_expert_layers(4, depth=12) == [[1, 5, 9]] * 2
    assert list_expert_layers(1, depth=2) == [[0, 1]] * 2
    assert list_expert_layers(4, depth=12, expert_place=4) == [[3, 7, 11]] * 2


TOP2 = {"top_k": 2, "hidden": 1536, "capacity_factor": 2.0, "eval_capacity_factor": 2.0}
TOP1 = {"capacity_factor": 1.2, "eval_capacity_factor": 1.2}


@pytest.mark.parametrize(("size", "settings"), [("narang-top1", TOP1), ("narang-top2", TOP2)])
def test_the_sizes_of_narang_are_t5_with_other_parts_in_every_fourth_layer(
    size: str, settings: dict[str, object]
) -> None:
    override = {"layers": [4, 8, 12], "feedforward": {"kind": "experts", "count": 32, **settings}}
    stacks = {side: {"depth": 12, "overrides": [override]} for side in ("encoder", "decoder")}
    common = {"norm": "layer", "mlp_bias": True, "dropout": 0.0}
    model = headwise.build("t5-base", device="meta", **common, **stacks)
    expected = headwise.build(f"switch-{size}", device="meta")
    shapes = [{name: weight.shape for name, weight in m.named_parameters()} for m in (model, expected)]
    assert shapes[0] == shapes[1]


def test_matrices_have_a_tenth_of_the_variance_of_t5() -> None:
    torch.manual_seed(0)
    large = {"width": 128, "heads": 4, "head_width": 32}
    switch, dense = (headwise.build(f"{name}-tiny", vocab=9, **large) for name in ("switch", "t5"))
    outs = [model.encoder.stack.layers[0].parts[0].out.weight.var().item() for model in (switch, dense)]
    assert outs[0] == pytest.approx(0.1 * outs[1], rel=0.1)


def test_experts_in_a_language_model_and_a_tagger() -> None:
    ids = torch.tensor([[5, 6, 7]])
    for task in ("language-model", "tag"):
        model = headwise.build("switch-tiny", vocab=9, task=task)
        assert any(isinstance(module, Experts) for module in model.modules())
        assert model(ids).shape == (1, 3, 9)


def test_any_model_can_have_experts() -> None:
    model: nn.Module = headwise.build("bert-tiny", vocab=9, feedforward={"kind": "experts", "activation": "geglu"})
    assert all(isinstance(layer.parts[1], Experts) for layer in model.encoder.stack.layers)  # type: ignore[union-attr]
