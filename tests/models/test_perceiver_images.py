"""Perceivers of images: published sizes, Fourier positions, and pixels as a set."""

from __future__ import annotations

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.positions.fourier import FourierPositions
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context

COUNTS = {"paper": 44_912_254, "fourier": 48_440_627, "learned": 62_255_848}
IMAGES = torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("size", "count"), COUNTS.items())
def test_it_has_the_published_parameters(size: str, count: int) -> None:
    assert count_parameters(headwise.build(f"perceiver-image-{size}", device="meta")) == count


def test_cross_attentions_share_weights_from_the_second_on() -> None:
    first, second = (headwise.build(f"perceiver-image-{size}", device="meta") for size in ("paper", "fourier"))
    assert first.encoder.stack.layer_numbers == (0, *range(2, 8), *(1, *range(2, 8)) * 7)
    assert second.encoder.stack.layer_numbers == (0, *tuple(range(1, 7)) * 8), "the second paper looks once"


def test_positions_are_coordinates_and_fourier_features_up_to_half_the_side() -> None:
    waves = FourierPositions((4, 6), bands=3)(torch.zeros(1, 24, 14), torch.arange(24), (4, 6)).view(4, 6, 14)
    row, column = 1, 4
    y, x = -1 + 2 * row / 3, -1 + 2 * column / 5
    angles = torch.pi * torch.tensor([y * f for f in (1, 1.5, 2)] + [x * f for f in (1, 2, 3)])
    torch.testing.assert_close(waves[row, column], torch.cat((torch.tensor([y, x]), angles.sin(), angles.cos())))


@torch.no_grad()
def test_larger_images_sample_the_same_fourier_features() -> None:
    places = FourierPositions((5, 5), bands=2)
    coarse, fine = (places(torch.zeros(1, 1), torch.arange(1), (side, side)).view(side, side, 10) for side in (5, 9))
    torch.testing.assert_close(fine[::2, ::2], coarse)
    model = headwise.build("perceiver-image-tiny", outputs=3).eval()
    assert model(torch.randn(1, 1, 9, 30)).shape == (1, 3)


@torch.no_grad()
def test_pixels_with_positions_are_a_set() -> None:
    encoder = headwise.build("perceiver-image-tiny", outputs=3).double().eval().encoder
    inputs = encoder.stem(IMAGES.double())
    moved = inputs.with_x(inputs.x[:, torch.randperm(256)])
    before = encoder.perceive(inputs, Context()).x
    torch.testing.assert_close(encoder.perceive(moved, Context()).x, before)
    assert not torch.allclose(encoder(IMAGES.double().flip(3), Context()).x, before)


@torch.no_grad()
def test_cross_attention_of_latents_is_recorded() -> None:
    model = headwise.build("perceiver-image-tiny", outputs=3, learned_query=True).eval()
    with headwise.record() as maps:
        model(IMAGES)
    shapes = {place: tuple(found.shape) for place, found in maps.select().items()}
    assert shapes["encoder", 0, 0] == (2, 1, 8, 256) and shapes["encoder", 1, 0] == (2, 4, 8, 8)
    assert shapes["outputs", 0] == (2, 1, 1, 8), "one query asks the latents"


def test_other_parts_and_positions_work() -> None:
    across = {"kind": "attention", "attend_to": "memory", "heads": 2}
    model = headwise.build(
        "perceiver-image-tiny", outputs=3, cross_attention=across, positions="grid", position_width=6
    )
    assert model(IMAGES).shape == (2, 3)
    with pytest.raises(
        UserError, match="'rotary' is relative, but latents have no positions; use fourier, grid or sinusoid"
    ):
        headwise.build("perceiver-image-tiny", positions="rotary")
    with pytest.raises(UserError, match="two halves of reversible layers"):
        headwise.build("perceiver-image-tiny", wiring="reversible")
    with pytest.raises(UserError, match="4 bands are 18 channels for each pixel"):
        headwise.build("vit-tiny", positions={"kind": "fourier", "bands": 4})
    with pytest.raises(UserError, match="'fourier' is for images"):
        headwise.build("bert-tiny", vocab=12, positions="fourier")
