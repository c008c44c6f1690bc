"""Geometry: affine maps, crops, shifts and flips."""

import kornia
import pytest
import torch
from torch.testing import assert_close

from headwise.vision.augment import Flip, ResizedCrop, Shift, geometry
from headwise.vision.augment.base import draw_boxes


@pytest.fixture(scope="module")
def images():
    torch.manual_seed(2)
    return torch.rand(3, 3, 10, 14, dtype=torch.float64)


def warp_with_kornia(images, matrices):
    """kornia's affine map of pixels (x, y) from the top left, old to new; ours are about the middle."""
    return kornia.geometry.warp_affine(images, matrices, tuple(images.shape[-2:]), align_corners=False)


AMOUNT = torch.tensor([-0.3, 0.0, 0.25], dtype=torch.float64)
CENTRE = torch.tensor([[6.5, 4.5]], dtype=torch.float64).expand(3, 2)


def test_rotation_equals_kornias():
    images = torch.rand(3, 1, 10, 14, dtype=torch.float64)
    scale = torch.ones(3, 2, dtype=torch.float64)
    expected = warp_with_kornia(images, kornia.geometry.get_rotation_matrix2d(CENTRE, AMOUNT.rad2deg(), scale))
    assert_close(geometry.rotate(images, AMOUNT), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("change", "row", "column"), [(geometry.shear_x, 0, 1), (geometry.shear_y, 1, 0)])
def test_shearing_equals_kornias(images, change, row, column):
    matrices = torch.eye(2, 3, dtype=torch.float64).repeat(3, 1, 1)
    matrices[:, row, column] = -AMOUNT
    matrices[:, row, 2] = AMOUNT * CENTRE[0, column]
    assert_close(change(images, AMOUNT), warp_with_kornia(images, matrices), atol=1e-9, rtol=0)


def test_translation_by_whole_pixels_moves_them(images):
    right, down = torch.tensor([2.0, 0.0, -1.0]).double(), torch.tensor([0.0, 3.0, 1.0]).double()
    moved = geometry.translate(images, right, down)
    assert_close(moved[0, :, :, 2:], images[0, :, :, :-2])
    assert_close(moved[1, :, 3:], images[1, :, :-3])
    assert_close(moved[2, :, 1:, :-1], images[2, :, :-1, 1:])
    assert max(moved[0, :, :, :2].max(), moved[1, :, :3].max()) < 1e-12


def test_a_crop_of_everything_is_the_image(images):
    crop = ResizedCrop(area=(1.0, 1.0), aspect=(1.4, 1.4))
    assert_close(crop.augment_images(images), images)


def test_a_crop_enlarges_a_box_of_the_image():
    ramp = torch.linspace(0, 1, 32, dtype=torch.float64).expand(64, 1, 32, 32)  # tones tell columns
    torch.manual_seed(0)
    augmented = ResizedCrop(area=(0.25, 0.25), aspect=(1.0, 1.0)).augment_images(ramp)
    slope = (augmented[:, 0, 0, 20] - augmented[:, 0, 0, 10]) / (ramp[0, 0, 0, 20] - ramp[0, 0, 0, 10])
    assert_close(slope, torch.full((64,), 0.5).double())  # half of the columns take all the room
    first = augmented[:, 0, 0, 1]
    assert first.min() < 0.1 and first.max() > 0.45  # boxes lie anywhere


def test_boxes_have_uniform_areas_and_log_uniform_aspects_within_their_bounds():
    torch.manual_seed(0)
    tall, wide, fits = draw_boxes(torch.empty(20_000, 1, 100, 100), area=(0.02, 0.33), aspect=(0.3, 1 / 0.3))
    areas, ratios = tall * wide / 1e4, (wide / tall).log()
    assert fits.all() and areas.min() > 0.0199 and areas.max() < 0.3301
    assert abs(areas.mean() - 0.175) < 0.003 and abs(areas.std() - 0.31 / 12**0.5) < 0.003
    assert abs(ratios.mean()) < 0.02 and ratios.abs().max() < 1.2041


def test_if_no_box_fits_the_crop_is_centred():
    wide = torch.rand(2, 1, 4, 100)
    augmented = ResizedCrop(area=(0.9, 1.0), aspect=(0.75, 4 / 3)).augment_images(wide)
    torch.manual_seed(7)
    assert_close(
        augmented, ResizedCrop(area=(0.9, 1.0), aspect=(0.75, 4 / 3)).augment_images(wide)
    )  # nothing is left to chance
    assert_close(augmented[:, :, :, 49:51].mean(), wide[:, :, :, 49:51].mean(), atol=0.1, rtol=0)


def test_shifts_are_windows_of_the_padded_image():
    torch.manual_seed(3)
    images = torch.rand(40, 2, 5, 6)
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    windows = padded.unfold(2, 5, 1).unfold(3, 6, 1)  # (B, C, 5, 5, H, W)
    same = (windows == Shift(by=2).augment_images(images)[:, :, None, None]).all((1, 4, 5))  # (B, 5, 5)
    assert same.flatten(1).any(1).all()
    assert same.any(0).float().mean() > 0.6  # 40 images have at most 25 offsets


def test_each_image_is_flipped_by_its_own_draw():
    torch.manual_seed(4)
    images = torch.rand(400, 1, 3, 4)
    augmented = Flip(horizontal=0.25, vertical=0.5).augment_images(images)
    ways = torch.stack([(augmented == other).all((1, 2, 3)) for other in
                        (images, images.flip(3), images.flip(2), images.flip(2, 3))])  # fmt: skip
    assert (ways.sum(0) == 1).all()
    assert_close(ways.float().mean(1), torch.tensor([0.375, 0.125, 0.375, 0.125]), atol=0.06, rtol=0)
