"""VOLO: published sizes, its two grids, and the patch head."""

from __future__ import annotations

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.mixers.outlook import OutlookAttention
from headwise.blocks.residual import DropPath
from headwise.blocks.stack import count_parameters

COUNTS = {"d1": 26_632_040, "d2": 58_678_336, "d3": 86_325_072, "d4": 192_961_520, "d5": 295_455_584}
IMAGES = torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("size", "count"), COUNTS.items())
def test_it_has_the_published_parameters(size: str, count: int) -> None:
    assert count_parameters(headwise.build(f"volo-{size}", device="meta")) == count


@torch.no_grad()
def test_outlook_attention_has_the_finer_grid() -> None:
    model = headwise.build("volo-tiny", outputs=3).eval()
    with headwise.record() as maps:
        model(IMAGES)
    shapes = {place[1:]: tuple(found.shape) for place, found in maps.select("encoder").items()}
    attention = {(number, 0): (2, 4, 16, 16) for number in (2, 3)}
    assert shapes == {(0, 0): (2, 2, 64, 64), **attention, (5, 0): (2, 4, 1, 17)}


@torch.no_grad()
def test_the_patch_head_counts_half() -> None:
    model = headwise.build("volo-tiny", outputs=3).eval()
    x = model.encoder.read(IMAGES)["encoder"].x
    chosen, advised = (head.head for head in model.heads)
    expected = chosen(x[:, 0]) + 0.5 * advised(x[:, 1:]).max(1).values
    torch.testing.assert_close(model(IMAGES), expected)


def test_drop_path_is_zero_in_outlookers_and_rises_after() -> None:
    model = headwise.build("volo-tiny", outputs=3, drop_path=0.2)
    found = [[part.p for part in layer.modules() if isinstance(part, DropPath)] for layer in model.encoder.stack.layers]
    assert found == [[], [], [pytest.approx(0.1)] * 2, [pytest.approx(0.2)] * 2, [], []]


def test_unfitting_image_sides_are_refused() -> None:
    with pytest.raises(UserError, match=r"28 x 28 pixels cannot be cut into patches of 8 x 8"):
        headwise.build("volo-tiny", outputs=3, image=28, patch=4)
    with pytest.raises(UserError, match=r"patch: .* needs an even patch size, not 3"):
        headwise.build("volo-tiny", outputs=3, image=18, patch=3)
    model = headwise.build("volo-tiny", outputs=3)
    with pytest.raises(UserError, match=r"18 x 16 pixels cannot be cut"):
        model(torch.randn(1, 1, 18, 16))
    assert model(torch.randn(2, 1, 20, 28)).shape == (2, 3), "other sizes do, with positions between those it has"


def test_other_mixers_in_the_first_stage() -> None:
    model = headwise.build("volo-tiny", outputs=3, outlook="attention", outlook_width=16)
    assert not any(isinstance(part, OutlookAttention) for part in model.modules())
    assert model(IMAGES).shape == (2, 3)
