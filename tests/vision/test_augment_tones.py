"""Colour operations equal those of Pillow and kornia."""

import kornia
import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.testing import assert_close

from headwise.vision.augment import tones

LEVEL = 1 / 255


@pytest.fixture(scope="module")
def images():
    """Smooth pictures in float64 with few and many tones, (4, 3, 20, 28), whose values are levels of bytes."""
    torch.manual_seed(5)
    rough = torch.rand(4, 3, 5, 7, dtype=torch.float64)
    smooth = torch.nn.functional.interpolate(rough, scale_factor=4, mode="bicubic").clamp(0.1, 0.8)
    return (255 * smooth).round() / 255


def as_pillow(image):
    return Image.fromarray((255 * image.permute(1, 2, 0)).round().byte().numpy())


def apply_pillow(images, change):
    """Apply a function of Pillow to each image, with its own factor."""
    done = [torch.from_numpy(np.array(change(as_pillow(image), number))) for number, image in enumerate(images)]
    return torch.stack(done).permute(0, 3, 1, 2).double() / 255


FACTORS = [0.1, 0.7, 1.0, 1.9]
PILLOW = {
    "brightness": (lambda x: tones.adjust_brightness(x, x.new_tensor(FACTORS)), ImageEnhance.Brightness),
    "contrast": (lambda x: tones.adjust_contrast(x, x.new_tensor(FACTORS)), ImageEnhance.Contrast),
    "saturation": (lambda x: tones.adjust_saturation(x, x.new_tensor(FACTORS)), ImageEnhance.Color),
    "sharpness": (lambda x: tones.adjust_sharpness(x, x.new_tensor(FACTORS)), ImageEnhance.Sharpness),
}


@pytest.mark.parametrize("name", PILLOW)
def test_enhancements_equal_pillows_with_a_factor_for_each_image(images, name):
    ours, reference = PILLOW[name]
    expected = apply_pillow(images, lambda image, number: reference(image).enhance(FACTORS[number]))
    assert_close(ours(images), expected, atol=1.6 * LEVEL, rtol=0)  # Pillow rounds to levels, twice


BITS = [8, 6, 4, 1]
THRESHOLDS = [256, 180, 90, 0]
TABLES = {
    "posterise": (lambda x: tones.posterise(x, x.new_tensor(BITS)), lambda im, n: ImageOps.posterize(im, BITS[n])),
    "solarise": (
        lambda x: tones.solarise(x, x.new_tensor(THRESHOLDS) / 255),
        lambda image, number: ImageOps.solarize(image, THRESHOLDS[number]),
    ),
    "equalise": (tones.equalise, lambda image, number: ImageOps.equalize(image)),
    "invert": (tones.invert, lambda image, number: ImageOps.invert(image)),
}


@pytest.mark.parametrize("name", TABLES)
def test_operations_on_levels_equal_pillows_exactly(images, name):
    ours, reference = TABLES[name]
    assert_close(ours(images), apply_pillow(images, reference), atol=1e-9, rtol=0)


def test_equalise_is_exact_where_few_pixels_make_coarse_steps_and_where_there_is_one_tone():
    torch.manual_seed(1)
    noise = torch.randint(256, (3, 3, 16, 17)) / 255
    noise[1] = 0.4
    noise[2, 0] = (noise[2, 0] > 0.5).float()
    assert_close(tones.equalise(noise), apply_pillow(noise, TABLES["equalise"][1]).float(), atol=1e-6, rtol=0)


def test_autocontrast_spreads_each_channel_over_all_tones(images):
    flat = images.clone()
    flat[0, 1] = 0.25  # one tone has no contrast to raise
    expected = apply_pillow(flat, lambda image, number: ImageOps.autocontrast(image))
    assert_close(tones.autocontrast(flat), expected, atol=1.1 * LEVEL, rtol=0)


def test_hue_and_grey_equal_kornias(images):
    turn = torch.tensor([-0.5, -0.2, 0.1, 0.4], dtype=torch.float64)
    expected = kornia.enhance.adjust_hue(images, 2 * torch.pi * turn)
    assert_close(tones.shift_hue(images, turn), expected, atol=1e-6, rtol=0)
    assert_close(tones.to_grey(images), kornia.color.rgb_to_grayscale(images), atol=1e-9, rtol=0)


def test_a_full_turn_of_hue_is_the_identity_and_a_third_permutes_channels(images):
    assert_close(tones.shift_hue(images, torch.ones(4).double()), images)
    assert_close(tones.shift_hue(images, torch.full((4,), 1 / 3).double()), images.roll(1, dims=1))


@pytest.mark.parametrize("change", [tones.shift_hue, tones.adjust_saturation])
def test_operations_on_colour_leave_grey_images_unchanged(images, change):
    grey = images[:, :1]
    assert change(grey, torch.full((4,), 0.3)) is grey
