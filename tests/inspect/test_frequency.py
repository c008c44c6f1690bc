"""Low and high frequencies of images, and what classifiers see in them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headwise.inspect.frequency import compute_energy_above, high_pass, low_pass, measure_by_frequency, plot
from headwise.tasks.classify_images import ClassifyImages, ClassifyImagesConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels
from headwise.vision.images import Images
from headwise.vision.pixels import Pixels


@pytest.mark.parametrize("shape", [(8, 8), (7, 12), (9, 5)])
@pytest.mark.parametrize("radius", [0, 1, 2.5, 10])
def test_low_pass_and_high_pass_images_add_up_to_the_image(shape, radius):
    torch.manual_seed(1)
    images = torch.rand(2, 3, *shape, dtype=torch.float64)
    low, high = low_pass(images, radius), high_pass(images, radius)
    assert_close(low + high, images)
    assert_close(low_pass(low, radius), low)  # a filter finds nothing more to do
    assert high_pass(low, radius).abs().max() < 1e-12


def wave(down, across, side=16):
    places = 2 * torch.pi * torch.arange(side, dtype=torch.float64) / side
    return torch.cos(down * places[:, None] + across * places).view(1, 1, side, side)


@pytest.mark.parametrize(("down", "across"), [(0, 3), (3, 0), (3, 4), (-4, 3)])
def test_a_wave_passes_the_low_pass_filter_within_the_radius(down, across):
    image, length = wave(down, across), (down**2 + across**2) ** 0.5
    assert_close(low_pass(image, length), image)
    assert low_pass(image, length - 0.1).abs().max() < 1e-12
    both = image + 2 * wave(1, 0) + 7.0  # the mean does not count
    assert_close(compute_energy_above(both, 2), torch.tensor([0.2], dtype=torch.float64))


class Brightness(nn.Module):
    """Tells bright images from dark ones."""

    def forward(self, pixels):
        mean = pixels.mean((1, 2, 3))
        return torch.stack([-mean, mean], dim=1)


class Stripes(nn.Module):
    """Tells upright stripes of one pixel from lying ones."""

    def forward(self, pixels):
        across, down = pixels.diff(dim=3).abs().mean((1, 2, 3)), pixels.diff(dim=2).abs().mean((1, 2, 3))
        return torch.stack([down, across], dim=1)


def stripes(count=20):
    """Those that stand are bright and those that lie dark: each model could tell the two labels apart."""
    lines = 40 * np.arange(2, dtype=np.uint8)[np.arange(8) % 2]
    upright, lying = 120 + np.tile(lines, (8, 1)), 60 + np.tile(lines[:, None], (1, 8))
    pixels = np.stack([upright, lying] * (count // 2))[:, None].astype(np.uint8)
    return Images(pixels, ["upright", "lying"] * (count // 2), [""] * count)


@pytest.mark.parametrize(
    ("model", "low", "high"), [(Brightness(), (100, 100), (50, 50)), (Stripes(), (50, 100), (100, 50))]
)
def test_accuracy_depends_on_the_frequencies_that_the_model_uses(model, low, high):
    pixels = Pixels(8, 8, 1, (0.4,), (1.0,))
    task = ClassifyImages(ClassifyImagesConfig(), Tokenisers(pixels, Labels(["lying", "upright"])))
    accuracies = measure_by_frequency(task, model, stripes(), radii=(1, 6))
    assert (accuracies.accuracy, accuracies.low, accuracies.high) == (100, low, high)


def test_default_radii_cover_all_frequencies_and_are_plotted(tmp_path):
    task = ClassifyImages(
        ClassifyImagesConfig(), Tokenisers(Pixels(8, 8, 1, (0.4,), (1.0,)), Labels(["lying", "upright"]))
    )
    accuracies = measure_by_frequency(task, Brightness(), stripes(4))
    assert len(accuracies.radii) == 8 and accuracies.low[-1] == accuracies.accuracy
    assert plot({"by brightness": accuracies}, tmp_path / "frequencies.svg").read_text().count("<svg") == 1
    assert accuracies.radii[-1] == pytest.approx(32**0.5) and accuracies.radii[-3] == pytest.approx(
        accuracies.radii[-1] / 2
    )
