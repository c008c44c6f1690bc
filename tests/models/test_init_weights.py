"""Initial weights are samples of the declared distributions: Kolmogorov-Smirnov tests with scipy's CDFs.

Where a claim is true, D sqrt(n) exceeds the bound with probability 2 exp(-2 * 2.6^2) = 3e-6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import headwise
from headwise.blocks.attention.multihead import Attention, CrossProjection, SelfProjection
from headwise.blocks.attention.synthesizer import Factorised, Random
from headwise.blocks.experts import Experts, Router
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.positions.relative import T5Bias
from headwise.catalog import find

BOUND = 2.6
Cdf = Callable[[Any], Any]


def check_distribution(weight: Tensor, cdf: Cdf) -> None:
    values = weight.detach().flatten().double().numpy()
    assert stats.kstest(values, cdf).statistic * len(values) ** 0.5 < BOUND


def normal(std: float) -> Cdf:
    return stats.norm(scale=std).cdf


def truncated_normal(std: float, cut: float) -> Cdf:
    """N(0, std^2) without what is beyond +-cut."""
    return stats.truncnorm(-cut / std, cut / std, scale=std).cdf


def xavier_uniform(weight: Tensor) -> Cdf:
    bound = (6 / sum(weight.shape)) ** 0.5
    return stats.uniform(-bound, 2 * bound).cdf


def list_weights(model: nn.Module) -> list[tuple[nn.Module, Tensor]]:
    """Modules and weights: linear layers, convolutions, embeddings, class tokens, position tables."""
    found = []
    for module in model.modules():
        names = ("weight",) if isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding) else ("class_tokens", "table")
        tensors = (getattr(module, name, None) for name in names)
        found += [(module, tensor) for tensor in tensors if isinstance(tensor, nn.Parameter)]
    return found


def check_biases_are_zero(model: nn.Module) -> None:
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    assert not any(layer.bias.any() for layer in layers if layer.bias is not None)


NARROW = ("vit-tiny", "deit-tiny", "cait-tiny", "volo-tiny", "swin-tiny", "swinv2-tiny", "levit-tiny")
WIDE = {"depth": 1, "image": 32, "hidden": 64}


@pytest.mark.parametrize(
    ("name", "settings", "std"),
    [*((name, {}, 0.0) for name in NARROW), ("vit-ti16", WIDE, 0.02), ("vit-ti16", {**WIDE, "width": 240}, 0.02)],
)
def test_vision_transformers_have_the_truncated_normal_of_timm(name: str, settings: dict[str, Any], std: float) -> None:
    """timm's trunc_normal_(std=0.02) cuts at +-2, not at two deviations; models below 192 channels have more."""
    entry, size = find(name)
    std = std or 0.02 * 192 / entry.configure(size, settings).output_width
    model = headwise.build(name, outputs=10, **settings)
    found = [weight for _, weight in list_weights(model)]
    for weight in (*found, torch.cat([weight.flatten() for weight in found])):
        check_distribution(weight, truncated_normal(std, 2.0))
    check_biases_are_zero(model)


# the standard deviation of a normal distribution truncated at two of its own; `variance_scaling` of JAX divides by it
TRUNCATED_SHARE = 0.87962566103423978
SHAPES: dict[str, Callable[[float], Cdf]] = {
    "normal": normal,
    "truncated_normal": lambda std: truncated_normal(std, 2 * std),
    "truncated_normal_absolute": lambda std: truncated_normal(std, 2.0),
}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize(
    ("name", "std"), [("bert-tiny", 0.02), ("gpt-tiny", 0.02), ("vit-tiny", 0.02 * 192 / 32), ("deit-tiny", 0.12)]
)
def test_the_distribution_of_initial_weights_is_a_setting(name: str, std: float, kind: str) -> None:
    sizes: dict[str, Any] = {"outputs": 10} if std > 0.02 else {"vocab": 300}
    for settings, expected in ((kind, std), ({"kind": kind, "std": 1.5}, 1.5)):
        model = headwise.build(name, init=settings, **sizes)
        found = torch.cat([weight.detach().flatten() for _, weight in list_weights(model)])
        check_distribution(found, SHAPES[kind](expected))
        if kind == "truncated_normal":
            assert found.abs().max() <= 2 * expected
            assert float(found.std()) == pytest.approx(TRUNCATED_SHARE * expected, rel=0.03)
        check_biases_are_zero(model)


@pytest.mark.parametrize("kind", SHAPES)
def test_other_shapes_of_the_same_variance_fail_the_test_of_distributions(kind: str) -> None:
    """A uniform distribution with the same standard deviation is noticed, and so is the other truncation."""
    std, torch_generator = 1.5, torch.Generator().manual_seed(0)
    values = torch.rand(20_000, generator=torch_generator).sub(0.5).mul(12**0.5 * std)
    with pytest.raises(AssertionError):
        check_distribution(values, SHAPES[kind](std))
    for other in SHAPES.keys() - {kind}:
        drawn = torch.empty(20_000)
        find("bert-tiny")[0].configure("tiny", {"init": {"kind": other}}).init.fill(drawn, std)
        with pytest.raises(AssertionError):
            check_distribution(drawn, SHAPES[kind](std))


def test_gpt2_scales_its_residual_projections_whatever_the_distribution() -> None:
    model = headwise.build("gpt2-tiny", vocab=300, depth=3, init="truncated_normal")
    std = 0.02 / 6**0.5
    for part in model.modules():
        if isinstance(part, FeedForward):
            check_distribution(part.outer.weight, truncated_normal(std, 2 * std))
            check_distribution(part.inner.weight, truncated_normal(0.02, 0.04))


def test_mixer_has_the_variance_of_its_fan_in() -> None:
    model = headwise.build("mixer-tiny", outputs=10)
    for module, weight in list_weights(model):
        std = module.in_features**-0.5 if isinstance(module, nn.Linear) else 0.02 * 192 / 32
        check_distribution(weight, truncated_normal(std, 2.0))
    check_biases_are_zero(model)


def test_grid_positions_have_their_configured_deviation() -> None:
    model = headwise.build("captioner-tiny", outputs=50)
    check_distribution(model.get_parameter("encoder.stem.positions.table"), truncated_normal(3.0, 2.0))
    model = headwise.build("vit-tiny", outputs=10, positions={"kind": "grid", "std": 0.5})
    check_distribution(model.get_parameter("encoder.stem.positions.table"), truncated_normal(0.5, 2.0))


def test_experts_have_a_tenth_of_the_variance_truncated_at_two_deviations() -> None:
    """Fedus et al. (2022), section 2.4: sigma = sqrt(s / n), what is beyond two deviations is drawn again."""
    part = Experts(Router(64, 64), hidden=128, activation="relu")
    alone = [(part.router.weight, 64), (part.inner.weight, 64), (part.outer.weight, 128)]
    model = headwise.build("switch-tiny", vocab=50)
    inside = [each for each in model.modules() if isinstance(each, Experts)]
    assert inside
    alone += [(each.inner.weight, each.inner.weight.shape[-1]) for each in inside]
    for weight, fan_in in alone:
        std = (0.1 / fan_in) ** 0.5
        assert weight.abs().max() <= 2 * std
        check_distribution(weight, truncated_normal(std, 2 * std))


def test_the_transformer_is_xavier_uniform_for_each_projection() -> None:
    """A fused matrix has the bounds of its projections, not those of its own shape: torch's MultiheadAttention, which
    fuses them as well, has narrower ones."""
    model = headwise.build("transformer-tiny", vocab=400, width=64, heads=4, hidden=96)
    fused = {id(qkv.project): 3 if isinstance(qkv, SelfProjection) else 2 for qkv in model.modules()
             if isinstance(qkv, SelfProjection | CrossProjection)}  # fmt: skip
    assert len(set(fused.values())) == 2
    for module, weight in list_weights(model):
        if isinstance(module, nn.Embedding):
            check_distribution(weight, normal(64**-0.5))
        else:
            for block in weight.chunk(fused.get(id(module), 1)):
                check_distribution(block, xavier_uniform(block))
    check_biases_are_zero(model)


@pytest.mark.parametrize(
    "name", ["gpt", "bert", "albert", "bart", "deberta", "fnet", "reformer", "transformer-xl", "llama"]
)
def test_language_models_have_a_standard_deviation_of_a_fiftieth(name: str) -> None:
    model = headwise.build(f"{name}-tiny", vocab=300)
    found = [weight for module, weight in list_weights(model) if isinstance(module, nn.Linear | nn.Embedding)]
    check_distribution(torch.cat([weight.flatten() for weight in found]), normal(0.02))
    check_biases_are_zero(model)


@pytest.mark.parametrize("name", ["gpt2", "gpt3"])
def test_gpt2_scales_residual_projections_by_the_root_of_their_number(name: str) -> None:
    depth = 3
    model = headwise.build(f"{name}-tiny", vocab=300, depth=depth)
    added = {id(part.out) for part in model.modules() if isinstance(part, Attention)}
    added |= {id(part.outer) for part in model.modules() if isinstance(part, FeedForward)}
    assert len(added) == 2 * depth
    for module, weight in list_weights(model):
        if isinstance(module, nn.Linear | nn.Embedding):
            check_distribution(weight, normal(0.02 / (2 * depth) ** 0.5 if id(module) in added else 0.02))


@pytest.mark.parametrize(("name", "share"), [("t5", 1.0), ("switch", 0.1)])
def test_t5_is_initialised_as_in_transformers(name: str, share: float) -> None:
    """T5PreTrainedModel._init_weights: queries (width * head_width)^-1/2, other matrices fan-in^-1/2, words 1, relative
    biases width^-1/2; Switch has a tenth of the variance in its matrices."""
    model = headwise.build(f"{name}-tiny", vocab=300)
    width = 32
    buckets = {id(mod.table) for mod in model.modules() if isinstance(mod, T5Bias)}
    fused = {id(qkv.project): qkv for qkv in model.modules() if isinstance(qkv, SelfProjection)}
    queries = {id(qkv.query): qkv for qkv in model.modules() if isinstance(qkv, CrossProjection)}
    assert buckets and fused and queries
    for module, weight in list_weights(model):
        if isinstance(module, nn.Embedding):
            check_distribution(weight, normal(width**-0.5 if id(module) in buckets else 1.0))
            continue
        qkv = fused.get(id(module)) or queries.get(id(module))
        head = qkv.heads * qkv.head_width if qkv else 0
        if qkv:
            check_distribution(weight[:head], normal((share / (width * qkv.head_width)) ** 0.5))
        if len(weight) > head:
            check_distribution(weight[head:], normal((share / weight.shape[1]) ** 0.5))


def test_perceivers_have_the_variance_of_their_fan_in() -> None:
    for module, weight in list_weights(headwise.build("perceiver-image-tiny", outputs=10)):
        if isinstance(module, nn.Linear):
            check_distribution(weight, normal(module.in_features**-0.5))


@pytest.mark.parametrize("name", ["resnet-tiny", "cnn-tiny"])
def test_convolutions_have_the_variance_of_their_fan_out(name: str) -> None:
    """He et al. (2015): a deviation of sqrt(2 / fan-out)."""
    for module, weight in list_weights(headwise.build(name, outputs=10)):
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
            check_distribution(weight, normal((2 / fan_out) ** 0.5))


def test_factorised_scores_have_the_initial_variance_of_random_ones() -> None:
    """R of N(0, 1); R1 R2^T of the same variance, whatever the rank."""
    check_distribution(Random(4, 64).table, normal(1.0))
    for rank in (1, 4, 16):
        scores = torch.stack([Factorised(8, 32, rank).get_scores(0, 32) for _ in range(20)])
        assert abs(float(scores.detach().var()) - 1) < 0.15
