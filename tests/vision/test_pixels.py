"""Normalisation of images by the mean and standard deviation of each channel."""

import numpy as np
import torch

from headwise.vision.pixels import Pixels


def test_normalised_images_have_mean_zero_and_standard_deviation_one() -> None:
    random = np.random.default_rng(0)
    images = np.stack([random.integers(0, 100, (60, 8, 9)), random.integers(150, 256, (60, 8, 9))], 1).astype(np.uint8)
    pixels = Pixels.from_images(images)
    assert (pixels.channels, pixels.height, pixels.width) == (2, 8, 9)
    np.testing.assert_allclose(pixels.mean, images.mean((0, 2, 3)) / 255, atol=1e-4)
    np.testing.assert_allclose(pixels.std, images.std((0, 2, 3)) / 255, atol=1e-4)
    normalised = pixels.normalise_images(torch.from_numpy(images)).double()
    torch.testing.assert_close(normalised.mean((0, 2, 3)), torch.zeros(2).double(), atol=2e-3, rtol=0)
    torch.testing.assert_close(normalised.std((0, 2, 3)), torch.ones(2).double(), atol=2e-3, rtol=0)


def test_constant_images_are_not_divided_by_zero() -> None:
    images = np.full((3, 1, 4, 4), 51, np.uint8)
    pixels = Pixels.from_images(images)
    assert pixels.mean == (0.2,) and pixels.std == (0.01,)
    assert pixels.normalise_images(torch.from_numpy(images)).abs().max() < 1e-4
