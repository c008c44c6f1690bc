"""Attention on grids: windows back in their places, rollouts, distances, and who asks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headwise import UserError, record
from headwise.blocks.grid import WindowPartition
from headwise.blocks.stream import Context
from headwise.inspect.distance import apart, distances, mean_distance
from headwise.inspect.image_maps import Gaze, assembled, of_encoder
from headwise.inspect.rollout import rollout


def gaze(weights: Tensor, asks: tuple[int, int] | None, seen: tuple[int, int]) -> Gaze:
    """Of one head and one image."""
    return Gaze(("encoder", 0, 0), weights.view(1, 1, *weights.shape), asks, seen)


def soft(*shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64).softmax(-1)


@pytest.mark.parametrize(("grid", "shift"), [((4, 6), 0), ((4, 6), 1), ((3, 5), 1)])
def test_windows_stand_where_they_were_cut(grid: tuple[int, int], shift: int) -> None:
    tiling = WindowPartition.of(grid, 2, shift)
    windows = len(tiling.places())
    whole = assembled(torch.full((3 * windows, 2, 4, 4), 0.25), tiling)
    assert whole.shape == (3, 2, grid[0] * grid[1], grid[0] * grid[1])
    rows, columns = (
        ((torch.arange(side) - shift) % padded) // 2 for side, padded in zip(grid, tiling.padded, strict=True)
    )
    numbers = torch.cartesian_prod(rows, columns)  # of the window that each place is in
    together = (numbers[:, None] == numbers).all(-1)
    assert torch.equal(whole, (0.25 * together).expand_as(whole))


def test_a_swin_looks_into_no_other_window(pictured) -> None:
    model = pictured("swin-tiny").model
    found = of_encoder(model, torch.randn(2, 1, 16, 16))
    assert [each.asks for each in found] == [(4, 4), (4, 4), (2, 2), (2, 2)]
    first, shifted = (each.weights for each in found[:2])
    assert torch.allclose(shifted.sum(-1), torch.ones(2, 2, 16))
    assert not first[:, :, 0, [2, 3, 8, 15]].any() and first[:, :, 0, [0, 1, 4, 5]].all()
    assert not shifted[:, :, 0, 1:].any()  # a corner that was rolled meets strangers alone


@pytest.mark.parametrize("name", ["vit-tiny", "deit-tiny"])
def test_weights_are_those_that_were_recorded(name: str, pictured) -> None:
    model, pixels = pictured(name).model, torch.randn(2, 1, 16, 16)
    found = of_encoder(model, pixels)
    with torch.inference_mode(), record() as maps:
        model.encoder(pixels, Context())
    assert [each.path for each in found] == list(maps.weights)
    assert torch.equal(found[-1].weights, maps.weights[found[-1].path][-1])
    class_tokens = found[0].class_tokens
    assert class_tokens == {"vit-tiny": 1, "deit-tiny": 2}[name]
    expected = found[-1].weights[:, :, :class_tokens, class_tokens:].mean(2).view(2, 4, 4, 4)
    assert torch.allclose(found[-1].heat(), expected)
    assert torch.allclose(
        found[0].heat((1, 2)), found[0].weights[:, :, class_tokens + 6, class_tokens:].view(2, 4, 4, 4)
    )
    assert not any(part._forward_pre_hooks for part in model.modules())  # nothing is left behind


def test_grids_of_looks_from_outside_and_onto_fewer(pictured) -> None:
    pixels = torch.randn(1, 1, 16, 16)
    marked = of_encoder(pictured("cait-tiny").model, pixels)[-1]
    assert marked.by_marks and marked.weights.shape == (1, 4, 1, 17)
    latents = of_encoder(pictured("perceiver-image-tiny").model, pixels)
    assert [each.asks for each in latents] == [None, None] and not latents[0].by_marks
    assert latents[0].seen == (16, 16) and latents[0].weights.shape[-2:] == (8, 256)
    pooled = of_encoder(pictured("vit-tiny", mixer="nonlocal").model, pixels)[0]
    assert pooled.asks == (4, 4) and pooled.seen == (2, 2) and pooled.class_tokens == 1


def test_what_looks_at_itself_alone_rolls_out_to_itself() -> None:
    layer = gaze(torch.eye(7), (2, 3), (2, 3))
    held = rollout([layer] * 3)
    assert torch.equal(held[1:], torch.eye(6)) and not held[0].any()  # a mark is no patch


def test_rollout_is_the_product_of_layers_with_residuals() -> None:
    first, second = soft(5, 5), soft(5, 5)
    expected = (second + torch.eye(5)) / 2 @ ((first + torch.eye(5)) / 2)
    found = rollout([gaze(each, (2, 2), (2, 2)) for each in (first, second)])
    assert torch.allclose(found, expected[:, 1:])


def test_rollout_goes_through_merged_and_marked_tokens() -> None:
    fine, coarse = gaze(torch.eye(16), (4, 4), (4, 4)), gaze(torch.eye(4), (2, 2), (2, 2))
    held = rollout([fine, coarse])
    assert held[1].view(4, 4).tolist() == [[0, 0, 0.25, 0.25]] * 2 + [[0.0] * 4] * 2
    look = torch.tensor([[0.5, 0.5, 0.0, 0.0, 0.0]])
    marked = rollout([coarse, gaze(look, None, (2, 2))])
    assert marked.tolist()[0] == [0.25, 0, 0, 0] and torch.equal(marked[1:], torch.eye(4))
    fewer = soft(1, 4)
    assert torch.allclose(rollout([gaze(torch.eye(4).double(), (2, 2), (2, 2)), gaze(fewer, None, (2, 2))]), fewer)


@pytest.mark.parametrize("name", ["vit-tiny", "swin-tiny", "cait-tiny", "levit-tiny", "volo-tiny"])
def test_what_is_held_are_shares_of_the_image(name: str, pictured) -> None:
    loaded = pictured(name)
    pixels = loaded.tokenisers.source
    held = rollout(of_encoder(loaded.model, torch.randn(1, pixels.channels, pixels.height, pixels.width)))
    assert (held >= 0).all() and (held.sum(-1) <= 1 + 1e-5).all() and held.sum() > 0


def test_latents_have_no_rollout_and_no_distances(pictured) -> None:
    model = pictured("perceiver-image-tiny").model
    with pytest.raises(UserError, match="--view queries"):
        rollout(of_encoder(model, torch.randn(1, 1, 16, 16)))
    with pytest.raises(UserError, match="--view queries"):
        distances(model, torch.zeros(1, 1, 16, 16, dtype=torch.uint8), torch.Tensor.float)


def test_distances_of_even_and_of_own_looks() -> None:
    grid, size = (2, 3), (8, 12)
    even = gaze(torch.full((7, 7), 1 / 7), grid, grid)
    assert mean_distance(even, size).item() == pytest.approx(float(apart(grid, grid, size).mean()))
    assert mean_distance(gaze(torch.eye(7), grid, grid), size).item() == 0
    right = torch.eye(6)[[1, 2, 2, 4, 5, 5]]  # to the right, where there is something
    assert mean_distance(gaze(right, grid, grid), size).item() == pytest.approx(4 * 4 / 6)


def test_distances_are_means_over_images(pictured) -> None:
    loaded = pictured("vit-tiny")
    images = torch.randint(0, 256, (9, 1, 16, 16), dtype=torch.uint8)  # more than are looked at together
    normalised = loaded.tokenisers.source.normalise_images
    whole = distances(loaded.model, images, normalised)
    single = [distances(loaded.model, images[[number]], normalised).layers[0] for number in range(9)]
    assert whole.layers[0] == pytest.approx(sum(single) / 9, abs=1e-5)
    assert whole.images == 9 and len(whole.layers) == 2 and whole.layers[0].shape == (4,)
    assert len(whole.table().splitlines()) == 3 and whole.even[0] == pytest.approx(
        float(apart((4, 4), (4, 4), (16, 16)).mean())
    )
