"""FAVOR+: estimates without bias, what makes them better, and directions that are drawn anew.

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
from headwise.blocks.mixers.favor import KERNELS, Performer, Positive, RandomProjection, Trigonometric
from headwise.blocks.mixers.linear import everywhere, nothing, onward
from headwise.blocks.stream import Stream

D = 8


def directions(features: int, draws: int, **settings: Any) -> Tensor:
    """(draws, features, D)."""
    made = RandomProjection(D, features, **settings).double()
    drawn = []
    for _ in range(draws):
        made.draw()
        drawn.append(made.matrix)
    return torch.stack(drawn)


def pair(cosine: float, length: float = 1.0) -> tuple[Tensor, Tensor]:
    """A query and a key of this length and angle, (1, 1, 1, D) each."""
    q, k = torch.zeros(2, 1, 1, 1, D, dtype=torch.float64)
    q[..., 0] = k[..., 0] = length
    k[..., 0], k[..., 1] = length * cosine, length * math.sqrt(1 - cosine**2)
    return q, k


def estimates(q: Tensor, k: Tensor, drawn: Tensor, kind: str = "softmax") -> Tensor:
    """phi(q) . phi(k) for each draw. phi of a key has no maximum taken off, and serves for both."""
    phi = Positive(drawn, epsilon=0.0) if kind == "softmax" else KERNELS[kind](drawn)
    return (phi.keys(q) * phi.keys(k)).sum(-1).flatten()  # (1, draws, 1, M) -> (draws,)


def exact(q: Tensor, k: Tensor) -> Tensor:
    return ((q * k).sum() / D**0.5).exp()


def mse(q: Tensor, k: Tensor, drawn: Tensor, kind: str = "softmax") -> float:
    return (estimates(q, k, drawn, kind) - exact(q, k)).square().mean().item()


@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize("kind", ["softmax", "trig"])
def test_the_estimate_of_a_softmax_weight_is_unbiased(kind: str, orthogonal: bool) -> None:
    drawn = directions(32, 600, orthogonal=orthogonal)
    for cosine in (0.9, 0.0, -0.9):
        q, k = pair(cosine)
        found = estimates(q, k, drawn, kind)
        error = found.std() / len(found) ** 0.5
        assert (found.mean() - exact(q, k)).abs() < 4 * error  # 99.99 % of seeds
        assert error < 0.03 * exact(q, k)  # so that the bound means something


def test_the_squared_error_falls_with_the_number_of_features() -> None:
    q, k = pair(0.5)
    few, many = (mse(q, k, directions(count, 600, orthogonal=False)) for count in (8, 64))
    assert few / many == pytest.approx(8, rel=0.35)


@pytest.mark.parametrize("norms", ["chi", "sqrt"])
def test_orthogonal_directions_are_better_than_independent_ones(norms: str) -> None:
    q, k = pair(0.5, length=0.8)
    assert mse(q, k, directions(D, 3000, norms=norms)) < mse(q, k, directions(D, 3000, orthogonal=False))


def test_positive_features_are_better_where_weights_are_small_and_trigonometric_ones_where_they_are_large() -> None:
    drawn = directions(32, 200)
    q, k = pair(-0.9, length=3.0)
    assert mse(q, k, drawn) < 0.1 * mse(q, k, drawn, "trig")
    q, k = pair(1.0, length=3.0)
    assert mse(q, k, drawn, "trig") < mse(q, k, drawn)


def test_directions_are_orthogonal_within_blocks_and_gaussian_each() -> None:
    drawn = directions(D + 3, 800)
    first, rest = drawn[:, :D], drawn[:, D:]
    for block in (first, rest):
        products = block @ block.mT
        assert (products - torch.diag_embed(products.diagonal(dim1=1, dim2=2))).abs().max() < 1e-5
    assert (first @ rest.mT).abs().mean() > 0.1
    # each number of each direction is N(0, 1): also the signs, which a QR decomposition does not leave to chance
    assert drawn.mean(0).abs().max() < 4.5 / 800**0.5
    assert (drawn.square().mean(0) - 1).abs().max() < 4.5 * (2 / 800) ** 0.5
    assert torch.allclose(directions(D, 3, norms="sqrt").norm(dim=2), torch.tensor(D**0.5, dtype=torch.float64))


def heads(length: int = 40) -> tuple[Tensor, ...]:
    return torch.randn(3, 1, 2, length, D, generator=torch.Generator().manual_seed(3), dtype=torch.float64).unbind(0)


@pytest.mark.parametrize("causal", [False, True])
def test_many_features_approach_softmax_attention(causal: bool) -> None:
    q, k, v = heads()
    q, k = q / 2, k / 2
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def error(features: int) -> float:
        phi = Positive(directions(features, 1)[0])
        out = onward(phi, q, k, v, Stream.of(q[0]), nothing(phi, k, v))[0] if causal else everywhere(phi, q, k, v, None)
        return (out - wanted).square().mean().sqrt().item()

    few, many = error(64), error(16_384)
    assert many < 0.02 and 8 < few / many < 32  # sqrt(256) = 16


def test_keys_are_stabilised_by_their_maximum_in_an_encoder_alone() -> None:
    """phi(k) = exp(w k' - |k'|^2 / 2 - max) + epsilon, written out, where epsilon is no longer small."""
    q, k, v = heads()
    matrix, epsilon = directions(16, 1)[0], 0.05
    phi = Positive(matrix, epsilon)

    def features(x: Tensor, most: Tensor) -> Tensor:
        return (x @ matrix.mT - x.square().sum(-1, keepdim=True) / 2 - most).exp() + epsilon

    q, k = q * D**-0.25, k * D**-0.25
    asked = features(q, (q @ matrix.mT).amax(-1, keepdim=True))
    for most, mixed in (
        ((k @ matrix.mT).amax((-2, -1), keepdim=True), lambda *given: everywhere(phi, *given, None)),
        (
            torch.zeros(()),
            lambda *given: onward(phi, *given, Stream.of(q[0]), nothing(phi, k, v))[0],
        ),
    ):
        weights = asked @ features(k, most).mT
        weights = weights.tril() if most.dim() == 0 else weights
        expected = weights @ v / weights.sum(-1, keepdim=True)
        torch.testing.assert_close(mixed(q * D**0.25, k * D**0.25, v), expected)


def test_features_are_as_many_as_asked_for() -> None:
    assert Performer(64, 8).projection.matrix.shape == (256, 8)
    assert Performer(512, 8, features=0).projection.matrix.shape == (266, 64)  # 64 log 64
    assert Performer(2, 2, features=0).projection.matrix.shape == (1, 1)
    assert Trigonometric(torch.zeros(3, D)).keys(torch.zeros(1, 1, 5, D)).shape == (1, 1, 5, 6)


def test_directions_are_drawn_anew_in_training_alone() -> None:
    part, x = Performer(16, 2, features=4, redraw=2), torch.randn(1, 3, 16)
    seen = []
    for _ in range(5):
        part(x)
        seen.append(part.projection.matrix.clone())
    changed = [not torch.equal(one, other) for one, other in pairwise(seen)]
    assert changed == [False, True, False, True]
    part.eval()
    assert torch.equal(part(x), part(x)) and torch.equal(part.projection.matrix, seen[-1])


def trained(part: Performer, steps: range) -> Performer:
    for step in steps:
        torch.manual_seed(step)
        part(torch.randn(2, 5, 16)).square().mean().backward()
        with torch.no_grad():
            for parameter in part.parameters():
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    return part


def test_a_resumed_run_goes_on_with_the_same_bits() -> None:
    def fresh() -> Performer:
        return Performer(16, 2, features=4, redraw=3)

    torch.manual_seed(0)
    whole = fresh()
    stored = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    trained(whole, range(8))
    first = fresh()
    first.load_state_dict(stored)
    second = fresh()
    second.load_state_dict(trained(first, range(5)).state_dict())
    for name, tensor in trained(second, range(5, 8)).state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name]), name


def test_a_draw_between_two_places_of_a_shared_layer_leaves_gradients_right() -> None:
    """What a chunk forgets is made again with the directions that it had."""
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


def test_mistakes_are_named_without_a_config_too() -> None:
    with pytest.raises(UserError, match="features: -1 cannot be drawn; give 1 or more"):
        Performer(16, 2, features=-1)
    with pytest.raises(UserError, match="kernel: there is no 'softmx'; did you mean softmax"):
        Performer(16, 2, kernel="softmx")


def test_a_checkpoint_has_the_seed_of_a_draw_and_not_its_directions() -> None:
    """Directions of several checkpoints have no mean; whole numbers are not averaged."""
    part, other = Performer(16, 2, features=8), Performer(16, 2, features=8)
    part.projection.draw()
    kept = {name: tensor for name, tensor in part.state_dict().items() if "projection" in name}
    assert kept and not any(tensor.is_floating_point() for tensor in kept.values())
    other.load_state_dict(part.state_dict())
    assert torch.equal(other.projection.matrix, part.projection.matrix)
