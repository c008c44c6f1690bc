"""MLP-Mixer for images: published sizes, and dependence on positions."""

from __future__ import annotations

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.stack import count_parameters


@pytest.mark.parametrize(("size", "count"), {"s16": 18_528_264, "b16": 59_880_472, "l16": 208_196_168}.items())
def test_it_has_the_published_parameters(size: str, count: int) -> None:
    assert count_parameters(headwise.build(f"mixer-{size}", device="meta")) == count


def shuffle_patches(images: torch.Tensor) -> torch.Tensor:
    """The four quarters of an image in another order."""
    upper, lower = images.chunk(2, dim=2)
    return torch.cat((lower.roll(8, 3), upper), dim=2)


@torch.no_grad()
def test_only_token_mixing_weights_depend_on_the_position_of_a_patch() -> None:
    images = torch.randn(2, 1, 16, 16)
    mixer, blind = (headwise.build("mixer-tiny", outputs=3, mixer=kind).eval() for kind in ("tokens", "attention"))
    assert not torch.allclose(mixer(images), mixer(shuffle_patches(images)))
    torch.testing.assert_close(blind(images), blind(shuffle_patches(images)))


def test_the_image_size_sets_the_number_of_mixed_tokens() -> None:
    model = headwise.build("mixer-tiny", outputs=3, image=(24, 16))
    assert model.encoder.stack.layers[0].parts[0].max_length == 24
    with pytest.raises(UserError, match=r"image: the model reads 24 x 16 pixels only"):
        model(torch.randn(1, 1, 16, 24))
