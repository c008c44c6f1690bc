"""FAVOR+: bias and variance of the estimates, and redrawn random vectors.

The statistical tests have fixed seeds; their bounds hold for other seeds, too.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.mixers.favor import KERNELS, Performer, PositiveFeatures, RandomProjection, TrigonometricFeatures
from headwise.blocks.mixers.linear import attend_all, attend_causally, init_state
from headwise.blocks.stream import Stream

D = 8


def draw_vectors(features: int, draws: int, **settings: Any) -> Tensor:
    """(draws, features, D)."""
    projection = RandomProjection(D, features, **settings).double()
    matrices = []
    for _ in range(draws):
        projection.draw()
        matrices.append(projection.matrix)
    return torch.stack(matrices)


def make_pair(cosine: float, length: float = 1.0) -> tuple[Tensor, Tensor]:
    """A query and a key of this length and angle, (1, 1, 1, D) each."""
    q, k = torch.zeros(2, 1, 1, 1, D, dtype=torch.float64)
    q[..., 0] = k[..., 0] = length
    k[..., 0], k[..., 1] = length * cosine, length * math.sqrt(1 - cosine**2)
    return q, k


def estimate(q: Tensor, k: Tensor, vectors: Tensor, kind: str = "softmax") -> Tensor:
    """phi(q) . phi(k) for each draw. `map_keys` subtracts no maximum, so it serves for both."""
    phi = PositiveFeatures(vectors, epsilon=0.0) if kind == "softmax" else KERNELS[kind](vectors)
    return (phi.map_keys(q) * phi.map_keys(k)).sum(-1).flatten()  # (1, draws, 1, M) -> (draws,)


def compute_kernel(q: Tensor, k: Tensor) -> Tensor:
    return ((q * k).sum() / D**0.5).exp()


def compute_mse(q: Tensor, k: Tensor, vectors: Tensor, kind: str = "softmax") -> float:
    return (estimate(q, k, vectors, kind) - compute_kernel(q, k)).square().mean().item()


@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize("kind", ["softmax", "trig"])
def test_the_estimate_of_a_softmax_weight_is_unbiased(kind: str, orthogonal: bool) -> None:
    vectors = draw_vectors(32, 600, orthogonal=orthogonal)
    for cosine in (0.9, 0.0, -0.9):
        q, k = make_pair(cosine)
        values = estimate(q, k, vectors, kind)
        error = values.std() / len(values) ** 0.5
        assert (values.mean() - compute_kernel(q, k)).abs() < 4 * error  # 99.99 % of seeds
        assert error < 0.03 * compute_kernel(q, k)  # else the bound would be void


def test_the_squared_error_falls_with_the_number_of_features() -> None:
    q, k = make_pair(0.5)
    few, many = (compute_mse(q, k, draw_vectors(count, 600, orthogonal=False)) for count in (8, 64))
    assert few / many == pytest.approx(8, rel=0.35)


@pytest.mark.parametrize("norms", ["chi", "sqrt"])
def test_orthogonal_vectors_have_lower_variance_than_independent_ones(norms: str) -> None:
    q, k = make_pair(0.5, length=0.8)
    assert compute_mse(q, k, draw_vectors(D, 3000, norms=norms)) < compute_mse(
        q, k, draw_vectors(D, 3000, orthogonal=False)
    )


def test_positive_features_are_better_for_small_weights_and_trigonometric_ones_for_large() -> None:
    vectors = draw_vectors(32, 200)
    q, k = make_pair(-0.9, length=3.0)
    assert compute_mse(q, k, vectors) < 0.1 * compute_mse(q, k, vectors, "trig")
    q, k = make_pair(1.0, length=3.0)
    assert compute_mse(q, k, vectors, "trig") < compute_mse(q, k, vectors)


def test_vectors_are_orthogonal_within_blocks_and_each_gaussian() -> None:
    vectors = draw_vectors(D + 3, 800)
    first, rest = vectors[:, :D], vectors[:, D:]
    for block in (first, rest):
        products = block @ block.mT
        assert (products - torch.diag_embed(products.diagonal(dim1=1, dim2=2))).abs().max() < 1e-5
    assert (first @ rest.mT).abs().mean() > 0.1
    # each component is N(0, 1), signs included, which are not random in a QR decomposition
    assert vectors.mean(0).abs().max() < 4.5 / 800**0.5
    assert (vectors.square().mean(0) - 1).abs().max() < 4.5 * (2 / 800) ** 0.5
    assert torch.allclose(draw_vectors(D, 3, norms="sqrt").norm(dim=2), torch.tensor(D**0.5, dtype=torch.float64))


def make_heads(length: int = 40) -> tuple[Tensor, ...]:
    return torch.randn(3, 1, 2, length, D, generator=torch.Generator().manual_seed(3), dtype=torch.float64).unbind(0)


@pytest.mark.parametrize("causal", [False, True])
def test_many_features_approach_softmax_attention(causal: bool) -> None:
    q, k, v = make_heads()
    q, k = q / 2, k / 2
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def error(features: int) -> float:
        phi = PositiveFeatures(draw_vectors(features, 1)[0])
        out = (
            attend_causally(phi, q, k, v, Stream.of(q[0]), init_state(phi, k, v))[0]
            if causal
            else attend_all(phi, q, k, v, None)
        )
        return (out - wanted).square().mean().sqrt().item()

    few, many = error(64), error(16_384)
    assert many < 0.02 and 8 < few / many < 32  # sqrt(256) = 16


def test_only_an_encoder_subtracts_the_maximum_over_keys() -> None:
    """phi(k) = exp(w k' - |k'|^2 / 2 - max) + epsilon, written out, with a large epsilon."""
    q, k, v = make_heads()
    matrix, epsilon = draw_vectors(16, 1)[0], 0.05
    phi = PositiveFeatures(matrix, epsilon)

    def features(x: Tensor, highest: Tensor) -> Tensor:
        return (x @ matrix.mT - x.square().sum(-1, keepdim=True) / 2 - highest).exp() + epsilon

    q, k = q * D**-0.25, k * D**-0.25
    queries = features(q, (q @ matrix.mT).amax(-1, keepdim=True))
    for highest, attend in (
        ((k @ matrix.mT).amax((-2, -1), keepdim=True), lambda *qkv: attend_all(phi, *qkv, None)),
        (
            torch.zeros(()),
            lambda *qkv: attend_causally(phi, *qkv, Stream.of(q[0]), init_state(phi, k, v))[0],
        ),
    ):
        weights = queries @ features(k, highest).mT
        weights = weights.tril() if highest.dim() == 0 else weights
        expected = weights @ v / weights.sum(-1, keepdim=True)
        torch.testing.assert_close(attend(q * D**0.25, k * D**0.25, v), expected)


def test_number_of_features() -> None:
    assert Performer(64, 8).projection.matrix.shape == (256, 8)
    assert Performer(512, 8, features=0).projection.matrix.shape == (266, 64)  # 64 log 64
    assert Performer(2, 2, features=0).projection.matrix.shape == (1, 1)
    assert TrigonometricFeatures(torch.zeros(3, D)).map_keys(torch.zeros(1, 1, 5, D)).shape == (1, 1, 5, 6)


def test_vectors_are_redrawn_in_training_alone() -> None:
    part, x = Performer(16, 2, features=4, redraw=2), torch.randn(1, 3, 16)
    matrices = []
    for _ in range(5):
        part(x)
        matrices.append(part.projection.matrix.clone())
    changed = [not torch.equal(one, other) for one, other in pairwise(matrices)]
    assert changed == [False, True, False, True]
    part.eval()
    assert torch.equal(part(x), part(x)) and torch.equal(part.projection.matrix, matrices[-1])


def train(part: Performer, steps: range) -> Performer:
    for step in steps:
        torch.manual_seed(step)
        part(torch.randn(2, 5, 16)).square().mean().backward()
        with torch.no_grad():
            for parameter in part.parameters():
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    return part


def test_a_resumed_run_continues_bit_by_bit() -> None:
    def fresh() -> Performer:
        return Performer(16, 2, features=4, redraw=3)

    torch.manual_seed(0)
    whole = fresh()
    stored = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    train(whole, range(8))
    first = fresh()
    first.load_state_dict(stored)
    second = fresh()
    second.load_state_dict(train(first, range(5)).state_dict())
    for name, tensor in train(second, range(5, 8)).state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name]), name


def test_a_redraw_between_two_uses_of_a_shared_layer_keeps_gradients_right() -> None:
    """Features are recomputed with the vectors of their forward pass."""
    gradients = []
    for redraw in (1, 0):
        torch.manual_seed(0)
        part, x = Performer(16, 2, features=4, redraw=redraw).double(), torch.randn(1, 200, 16).double()
        x.requires_grad_()
        out = part(x)
        if redraw:
            part(x)  # draws
        out.square().sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mixer": {"kind": "performer", "features": -1}}, r"mixer.features: .*greater than or equal to 0"),
        ({"mixer": {"kind": "performer", "kernel": "cosine"}}, r"mixer.kernel: .*'softmax', 'relu' or 'trig'"),
        ({"mixer": {"kind": "performer", "heads": 5}}, "heads: a width of 32 cannot be divided among 5 heads"),
        ({"mixer": {"kind": "linear", "features": 8}}, "mixer.features: unknown key"),
    ],
)
def test_mistakes_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        headwise.build("gpt-tiny", vocab=12, **settings)


def test_mistakes_are_named_without_a_config() -> None:
    with pytest.raises(UserError, match="features: -1 is negative; use 1 or more"):
        Performer(16, 2, features=-1)
    with pytest.raises(UserError, match="kernel: there is no 'softmx'; did you mean softmax"):
        Performer(16, 2, kernel="softmx")


def test_a_checkpoint_stores_the_seed_and_not_the_vectors() -> None:
    """So that averaging checkpoints, which skips integers, does not average vectors."""
    part, other = Performer(16, 2, features=8), Performer(16, 2, features=8)
    part.projection.draw()
    stored = {name: tensor for name, tensor in part.state_dict().items() if "projection" in name}
    assert stored and not any(tensor.is_floating_point() for tensor in stored.values())
    other.load_state_dict(part.state_dict())
    assert torch.equal(other.projection.matrix, part.projection.matrix)
