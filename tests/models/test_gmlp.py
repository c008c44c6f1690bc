"""gMLP for texts and images: published sizes, layers of one block, and dependence on positions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.stack import count_parameters


@pytest.mark.parametrize(
    ("size", "count"),
    {
        "base": 130_369_232, "large": 365_898_656, "xlarge": 941_666_416, "amlp-base": 109_087_196,
        "amlp-large": 316_252_088,
    }.items(),
)  # fmt: skip
def test_text_models_have_the_published_parameters(size: str, count: int) -> None:
    """130M, 365M, 941M, 109M and 316M in the paper, which only Toeplitz matrices give."""
    assert count_parameters(headwise.build(f"gmlp-{size}", device="meta")) == count


@pytest.mark.parametrize(("size", "count"), {"ti16": 5_867_328, "s16": 19_422_656, "b16": 73_075_392}.items())
def test_image_models_have_the_published_parameters(size: str, count: int) -> None:
    """5.9M, 19.5M and 73M in the paper; timm counts 5.87M, 19.42M and 73.08M."""
    width, hidden = {"ti16": (128, 768), "s16": (256, 1536), "b16": (512, 3072)}[size]
    patches, half = 196, hidden // 2
    stem, head = 3 * 16 * 16 * width + width, 1000 * (width + 1)
    block = 2 * width + hidden * (width + 1) + 2 * half + patches * (patches + 1) + width * (half + 1)
    assert stem + 30 * block + 2 * width + head == count
    assert count_parameters(headwise.build(f"gmlp-image-{size}", device="meta")) == count


def test_a_block_is_a_whole_layer_and_other_mixers_have_a_feed_forward_network() -> None:
    built: list[Any] = [headwise.build("gmlp-tiny", vocab=12, mixer=mixer) for mixer in ("gmlp", "attention")]
    assert [len(model.encoder.stack.layers[0].parts) for model in built] == [1, 2]


@torch.no_grad()
def test_weights_of_the_gate_depend_on_the_position_of_a_patch() -> None:
    model = headwise.build("gmlp-image-tiny", outputs=3).eval()
    images = torch.randn(2, 1, 16, 16)
    torch.testing.assert_close(model(images), model(images.roll(8, 3)), rtol=1e-3, atol=1e-4)  # near zero at first
    for name, weight in model.named_parameters():
        if name.endswith("gating.weight"):
            torch.nn.init.normal_(weight)
    assert not torch.allclose(model(images), model(images.roll(8, 3)), rtol=1e-2)


def test_the_image_size_sets_the_number_of_gated_tokens() -> None:
    model = headwise.build("gmlp-image-tiny", outputs=3, image=(24, 16))
    assert model.encoder.stack.layers[0].parts[0].gating.max_length == 24
    with pytest.raises(UserError, match=r"image: the model reads 24 x 16 pixels only"):
        model(torch.randn(1, 1, 16, 24))
