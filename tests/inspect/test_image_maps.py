"""Attention on patch grids: merged windows, rollout, distances, and queries."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headwise import UserError, record
from headwise.blocks.grid import WindowPartition
from headwise.blocks.stream import Context
from headwise.inspect.distance import compute_cell_distances, compute_mean_distance, measure_distances
from headwise.inspect.image_maps import ImageAttention, merge_windows, record_encoder_attention
from headwise.inspect.rollout import compute_rollout


def make_attention(weights: Tensor, query_grid: tuple[int, int] | None, key_grid: tuple[int, int]) -> ImageAttention:
    """Of one head and one image."""
    return ImageAttention(("encoder", 0, 0), weights.view(1, 1, *weights.shape), query_grid, key_grid)


def random_softmax(*shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64).softmax(-1)


@pytest.mark.parametrize(("grid", "shift"), [((4, 6), 0), ((4, 6), 1), ((3, 5), 1)])
def test_windows_are_merged_at_their_places_in_the_grid(grid: tuple[int, int], shift: int) -> None:
    partition = WindowPartition.of(grid, 2, shift)
    windows = len(partition.compute_order())
    merged = merge_windows(torch.full((3 * windows, 2, 4, 4), 0.25), partition)
    assert merged.shape == (3, 2, grid[0] * grid[1], grid[0] * grid[1])
    rows, columns = (
        ((torch.arange(side) - shift) % padded) // 2 for side, padded in zip(grid, partition.padded, strict=True)
    )
    numbers = torch.cartesian_prod(rows, columns)  # of the window that each place is in
    together = (numbers[:, None] == numbers).all(-1)
    assert torch.equal(merged, (0.25 * together).expand_as(merged))


def test_swin_has_no_attention_between_windows(build_image_run) -> None:
    model = build_image_run("swin-tiny").model
    attentions = record_encoder_attention(model, torch.randn(2, 1, 16, 16))
    assert [attention.query_grid for attention in attentions] == [(4, 4), (4, 4), (2, 2), (2, 2)]
    first, shifted = (attention.weights for attention in attentions[:2])
    assert torch.allclose(shifted.sum(-1), torch.ones(2, 2, 16))
    assert not first[:, :, 0, [2, 3, 8, 15]].any() and first[:, :, 0, [0, 1, 4, 5]].all()
    assert not shifted[:, :, 0, 1:].any()  # a corner that was rolled attends to itself alone


@pytest.mark.parametrize("name", ["vit-tiny", "deit-tiny"])
def test_weights_equal_the_recorded_ones(name: str, build_image_run) -> None:
    model, pixels = build_image_run(name).model, torch.randn(2, 1, 16, 16)
    attentions = record_encoder_attention(model, pixels)
    with torch.inference_mode(), record() as maps:
        model.encoder(pixels, Context())
    assert [attention.path for attention in attentions] == list(maps.weights)
    assert torch.equal(attentions[-1].weights, maps.weights[attentions[-1].path][-1])
    class_tokens = attentions[0].class_tokens
    assert class_tokens == {"vit-tiny": 1, "deit-tiny": 2}[name]
    expected = attentions[-1].weights[:, :, :class_tokens, class_tokens:].mean(2).view(2, 4, 4, 4)
    assert torch.allclose(attentions[-1].heat_map(), expected)
    assert torch.allclose(
        attentions[0].heat_map((1, 2)), attentions[0].weights[:, :, class_tokens + 6, class_tokens:].view(2, 4, 4, 4)
    )
    assert not any(part._forward_pre_hooks for part in model.modules())  # nothing is left behind


def test_query_and_key_grids_of_class_cross_and_pooled_attention(build_image_run) -> None:
    pixels = torch.randn(1, 1, 16, 16)
    class_attention = record_encoder_attention(build_image_run("cait-tiny").model, pixels)[-1]
    assert class_attention.is_class_attention and class_attention.weights.shape == (1, 4, 1, 17)
    latents = record_encoder_attention(build_image_run("perceiver-image-tiny").model, pixels)
    assert [attention.query_grid for attention in latents] == [None, None] and not latents[0].is_class_attention
    assert latents[0].key_grid == (16, 16) and latents[0].weights.shape[-2:] == (8, 256)
    pooled = record_encoder_attention(build_image_run("vit-tiny", mixer="nonlocal").model, pixels)[0]
    assert pooled.query_grid == (4, 4) and pooled.key_grid == (2, 2) and pooled.class_tokens == 1


def test_rollout_of_identity_attention_is_the_identity() -> None:
    layer = make_attention(torch.eye(7), (2, 3), (2, 3))
    rollout = compute_rollout([layer] * 3)
    assert torch.equal(rollout[1:], torch.eye(6)) and not rollout[0].any()  # a class token is no patch


def test_rollout_is_the_product_of_layers_with_residuals() -> None:
    first, second = random_softmax(5, 5), random_softmax(5, 5)
    expected = (second + torch.eye(5)) / 2 @ ((first + torch.eye(5)) / 2)
    rollout = compute_rollout([make_attention(weights, (2, 2), (2, 2)) for weights in (first, second)])
    assert torch.allclose(rollout, expected[:, 1:])


def test_rollout_handles_merged_patches_class_attention_and_latents() -> None:
    fine, coarse = make_attention(torch.eye(16), (4, 4), (4, 4)), make_attention(torch.eye(4), (2, 2), (2, 2))
    rollout = compute_rollout([fine, coarse])
    assert rollout[1].view(4, 4).tolist() == [[0, 0, 0.25, 0.25]] * 2 + [[0.0] * 4] * 2
    weights = torch.tensor([[0.5, 0.5, 0.0, 0.0, 0.0]])
    with_class_token = compute_rollout([coarse, make_attention(weights, None, (2, 2))])
    assert with_class_token.tolist()[0] == [0.25, 0, 0, 0] and torch.equal(with_class_token[1:], torch.eye(4))
    fewer = random_softmax(1, 4)
    assert torch.allclose(
        compute_rollout([make_attention(torch.eye(4).double(), (2, 2), (2, 2)), make_attention(fewer, None, (2, 2))]),
        fewer,
    )


@pytest.mark.parametrize("name", ["vit-tiny", "swin-tiny", "cait-tiny", "levit-tiny", "volo-tiny"])
def test_rollout_rows_sum_to_at_most_one(name: str, build_image_run) -> None:
    loaded = build_image_run(name)
    pixels = loaded.tokenisers.source
    rollout = compute_rollout(
        record_encoder_attention(loaded.model, torch.randn(1, pixels.channels, pixels.height, pixels.width))
    )
    assert (rollout >= 0).all() and (rollout.sum(-1) <= 1 + 1e-5).all() and rollout.sum() > 0


def test_latents_have_no_rollout_and_no_distances(build_image_run) -> None:
    model = build_image_run("perceiver-image-tiny").model
    with pytest.raises(UserError, match="--view queries"):
        compute_rollout(record_encoder_attention(model, torch.randn(1, 1, 16, 16)))
    with pytest.raises(UserError, match="--view queries"):
        measure_distances(model, torch.zeros(1, 1, 16, 16, dtype=torch.uint8), torch.Tensor.float)


def test_mean_distances_of_uniform_and_identity_attention() -> None:
    grid, size = (2, 3), (8, 12)
    even = make_attention(torch.full((7, 7), 1 / 7), grid, grid)
    assert compute_mean_distance(even, size).item() == pytest.approx(
        float(compute_cell_distances(grid, grid, size).mean())
    )
    assert compute_mean_distance(make_attention(torch.eye(7), grid, grid), size).item() == 0
    right = torch.eye(6)[[1, 2, 2, 4, 5, 5]]  # to the right, where there is something
    assert compute_mean_distance(make_attention(right, grid, grid), size).item() == pytest.approx(4 * 4 / 6)


def test_distances_are_means_over_images(build_image_run) -> None:
    loaded = build_image_run("vit-tiny")
    images = torch.randint(0, 256, (9, 1, 16, 16), dtype=torch.uint8)  # more than one batch
    normalise_images = loaded.tokenisers.source.normalise_images
    distances = measure_distances(loaded.model, images, normalise_images)
    single = [measure_distances(loaded.model, images[[number]], normalise_images).layers[0] for number in range(9)]
    assert distances.layers[0] == pytest.approx(sum(single) / 9, abs=1e-5)
    assert distances.images == 9 and len(distances.layers) == 2 and distances.layers[0].shape == (4,)
    assert len(distances.table().splitlines()) == 3 and distances.even[0] == pytest.approx(
        float(compute_cell_distances((4, 4), (4, 4), (16, 16)).mean())
    )
