"""Swin and Swin v2: published sizes, stages, and images of other sizes."""

from __future__ import annotations

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.record import collect
from headwise.blocks.residual import DropPath, ResPostNorm
from headwise.blocks.stream import Context, Stream

PUBLISHED = {
    "swin-t": 28_288_354,
    "swin-s": 49_606_258,
    "swin-b": 87_768_224,
    "swin-l": 196_532_476,
    "swinv2-t": 28_347_154,
    "swinv2-s": 49_728_418,
    "swinv2-b": 87_918_816,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_number(name: str) -> None:
    model = headwise.build(name, device="meta")
    assert sum(weight.numel() for weight in model.parameters()) == PUBLISHED[name]


def test_each_stage_halves_the_grid_and_doubles_the_width() -> None:
    model = headwise.build("swin-t", outputs=2, device="meta")
    with collect("layer") as side:
        model(torch.zeros(1, 3, 224, 224, device="meta"))
    stages = [each for place, (each,) in side.values["layer"].items() if len(place) == 2]
    assert [stage.grid for stage in stages] == [(28, 28), (14, 14), (7, 7), (7, 7)]
    assert [stage.x.shape[-1] for stage in stages] == [192, 384, 768, 768]
    shifts = [part.shift for part in model.modules() if hasattr(part, "shift") and hasattr(part, "window")]
    assert shifts == [0, 3] * 6


@pytest.mark.parametrize("name", ["swin-tiny", "swinv2-tiny"])
@torch.no_grad()
def test_images_that_do_not_fill_windows(name: str) -> None:
    model, larger = headwise.build(name, outputs=3), headwise.build(name, outputs=3, image=(20, 28))
    larger.load_state_dict(model.state_dict())
    images = torch.randn(2, 1, 20, 28)
    assert larger(images).shape == model(images).shape == (2, 3)
    odd = torch.randn(2, 1, 18, 27)
    assert torch.allclose(model(odd), model(torch.nn.functional.pad(odd, (0, 1, 0, 2))), atol=1e-6)


@torch.no_grad()
def test_swin_v2_offsets_are_in_units_of_the_pretrained_window() -> None:
    """Trained with windows of 2 and run with windows of 4, offsets keep their biases with `pretrained_windows`."""
    learned = headwise.build("swinv2-tiny", outputs=3)
    extended, plain = (
        headwise.build("swinv2-tiny", outputs=3, window=4, pretrained_windows=pretrained_windows)
        for pretrained_windows in ((2, 2), ())
    )
    score_mods = [
        model.encoder.stack.layers[0].layers[0].parts[0].score_mods[0] for model in (learned, extended, plain)
    ]
    for mod in score_mods[1:]:
        mod.load_state_dict(score_mods[0].state_dict())
    small, same, other = (mod.compute_table().unflatten(0, (2 * mod.window - 1, -1)) for mod in score_mods)
    torch.testing.assert_close(same[2:5, 2:5], small)
    assert not torch.allclose(other[2:5, 2:5], small)


def test_residual_branches_of_swin_v2_are_initialised_to_zero() -> None:
    layer = headwise.build("swinv2-tiny").encoder.stack.layers[0].layers[1]
    stream = Stream(torch.randn(1, 16, 16), torch.arange(16), grid=(4, 4))
    assert isinstance(layer, ResPostNorm)
    assert torch.equal(layer(stream, Context()).x, stream.x)


def test_drop_path_rises_with_depth() -> None:
    model = headwise.build("swin-tiny", depths=(2, 3), drop_path=0.4)
    rates = [part.p for part in model.modules() if isinstance(part, DropPath)]
    assert rates == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4])


def test_stages_with_any_mixer() -> None:
    model = headwise.build("swin-tiny", outputs=3, mixer="performer", wiring="post")
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 3)
    with pytest.raises(UserError, match="depths"):
        headwise.build("swin-tiny", depths=(2, 2, 2))
