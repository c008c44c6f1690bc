"""LeViT: published sizes, two heads, images of other shapes, and fused batch norms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import headwise
from headwise.blocks.batchnorm import fuse_batch_norms
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context
from headwise.errors import UserError
from headwise.models.levit import LevitConfig

COUNTS = {"128s": 7_777_058, "128": 9_213_936, "192": 10_947_069, "256": 18_893_876, "384": 39_128_836}


def build_tiny(**settings: Any) -> Any:
    return headwise.build("levit-tiny", outputs=3, **settings)


@pytest.mark.parametrize(("size", "count"), COUNTS.items())
def test_published_sizes(size: str, count: int) -> None:
    assert count_parameters(headwise.build(f"levit-{size}", device="meta")) == count


def test_the_grid_shrinks_from_14_to_7_to_4() -> None:
    assert LevitConfig().grids() == [(14, 14), (7, 7), (4, 4)]
    stream = build_tiny(image=20).encoder(torch.randn(2, 1, 20, 20), Context())
    assert stream.grid == (3, 3) and stream.x.shape == (2, 9, 24)


def test_heads_are_separate_and_predictions_average_them() -> None:
    model, pixels = build_tiny().eval(), torch.randn(2, 1, 16, 16)
    one, two = model.head_logits(pixels)
    assert not torch.allclose(one, two)
    torch.testing.assert_close(model(pixels), (one + two) / 2)
    assert len(build_tiny(class_heads=1).head_logits(pixels)) == 1


def test_every_residual_branch_is_initialised_to_zero() -> None:
    """What is left is the stem and the layers that shrink."""
    model, pixels = build_tiny().eval(), torch.randn(2, 1, 16, 16)
    deeper = build_tiny(depths=(3, 2)).eval()
    names = {
        name.replace("layers.2.attention", "layers.6.attention"): value for name, value in model.state_dict().items()
    }
    deeper.load_state_dict({name: value for name, value in names.items() if "parts" not in name}, strict=False)
    torch.testing.assert_close(deeper(pixels), model(pixels))


def test_fusing_leaves_linear_maps_and_the_same_outputs() -> None:
    model, pixels = build_tiny().double(), torch.randn(8, 1, 16, 16, dtype=torch.float64)
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            nn.init.uniform_(parameter, 0.5, 1.5)
    for _ in range(3):
        model(pixels)  # running statistics
    plain = fuse_batch_norms(model)
    assert not [module for module in plain.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    torch.testing.assert_close(plain(pixels), model.eval()(pixels), rtol=1e-9, atol=1e-9)


def test_images_of_another_shape_are_refused() -> None:
    model = build_tiny(image=(20, 13))
    assert model(torch.randn(2, 1, 20, 13)).shape == (2, 3)
    with pytest.raises(UserError, match="grid of 5 x 4, and images of 16 x 20"):
        model(torch.randn(2, 1, 16, 20))


def test_another_mixer_in_its_stages() -> None:
    attention = build_tiny(mixer="attention")
    assert attention.encoder.stack.layers[0].layers[0].parts[0].score_mods[0].scores.shape == (2, 16)
    assert build_tiny(mixer="fourier", position_bias=False)(torch.randn(2, 1, 16, 16)).shape == (2, 3)
    with pytest.raises(UserError, match="positions"):
        build_tiny(mixer="performer")
    with pytest.raises(ValueError, match="different lengths"):
        LevitConfig(depths=(2, 2))
