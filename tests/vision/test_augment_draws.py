"""What augmentations draw: amounts follow the distributions that their settings say, by scipy's CDFs.

Where that is so, D sqrt(n) exceeds the bound with probability 2 exp(-2 * 2.6^2) = 3e-6.
"""

from __future__ import annotations

from collections.abc import Callable

import kornia
import pytest
import torch
from scipy import stats
from torch import Tensor

from headwise.vision.augment import ColourJitter, Grey, ResizedCrop
from headwise.vision.augment.tables import AUGMENTATIONS

ROWS, BOUND = 4000, 2.6


def check_uniform(values: Tensor, low: float, high: float) -> None:
    statistic = stats.kstest(values.double().numpy(), stats.uniform(low, high - low).cdf).statistic
    assert statistic * len(values) ** 0.5 < BOUND


def pictures() -> Tensor:
    """One picture of two colours, many times: (B, 3, 1, 2)."""
    colours = torch.tensor([[0.5, 0.4, 0.3], [0.3, 0.35, 0.45]], dtype=torch.float64)
    return colours.T[None, :, None, :].expand(ROWS, 3, 1, 2)


def grey(images: Tensor) -> Tensor:
    return kornia.color.rgb_to_grayscale(images)


def hue(images: Tensor) -> Tensor:
    return kornia.color.rgb_to_hsv(images)[:, 0, 0, 0] / (2 * torch.pi)  # of the first pixel, as a share of the circle


FACTORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # the drawn factor, from the images before and after
    "brightness": lambda old, new: (new / old)[:, 0, 0, 0],
    "contrast": lambda old, new: (
        (new - grey(old).mean((2, 3), keepdim=True)) / (old - grey(old).mean((2, 3), keepdim=True))
    )[:, 0, 0, 0],
    "saturation": lambda old, new: ((new - grey(old)) / (old - grey(old)))[:, 0, 0, 0],
    "hue": lambda old, new: 1 + (hue(new) - hue(old) + 0.5) % 1 - 0.5,
}


@pytest.mark.parametrize("name", FACTORS)
def test_jitter_is_uniform_in_both_directions(name: str) -> None:
    """Factors of U(1 - b, 1 + b), the hue by U(-h, h) of its circle, as in torchvision's ColorJitter."""
    settings = dict.fromkeys(FACTORS, 0.0) | {name: 0.3}
    old = pictures()
    check_uniform(FACTORS[name](old, ColourJitter(**settings).augment_images(old)), 0.7, 1.3)


def test_jitter_applies_its_steps_in_every_order() -> None:
    """Contrast and saturation do not commute with a bright image that is cut at white."""
    old = (1.6 * pictures()[:2]).clamp(max=1)
    results = {tuple(ColourJitter(0.3, 0.3, 0.3, 0.1).augment_images(old)[0].flatten().tolist()) for _ in range(20)}
    assert len(results) == 20


@pytest.mark.parametrize("probability", [0.0, 0.2, 0.7, 1.0])
def test_images_become_grey_with_the_probability(probability: float) -> None:
    old = pictures()
    new = Grey(probability).augment_images(old)
    lost = (new == new[:, :1]).all((1, 2, 3))
    assert abs(float(lost.double().mean()) - probability) <= 5 * (probability * (1 - probability) / ROWS) ** 0.5
    torch.testing.assert_close(new[lost], grey(old).expand_as(old)[lost], atol=1e-6, rtol=0)
    assert torch.equal(new[~lost], old[~lost])


def test_crops_have_the_distribution_of_area_aspect_and_position() -> None:
    """Values that grow along both axes give the corners of the crop (Szegedy et al. 2015)."""
    side = 64
    across, down = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="xy")
    ramp = (torch.stack([across, down]).double() + 0.5) / side  # (2, H, W)
    crop = ResizedCrop(area=(0.1, 0.5), aspect=(3 / 4, 4 / 3))
    cropped = crop.augment_images(ramp.expand(1000, 2, side, side))
    first, last = cropped[:, :, 8, 8], cropped[:, :, 55, 55]  # (B, 2): x and y inside the box, away from its edges
    sizes = (last - first) * side / 47  # shares of the sides
    check_uniform(sizes.prod(1), 0.1, 0.5)
    check_uniform((sizes[:, 0] / sizes[:, 1]).log(), float(torch.tensor(3 / 4).log()), float(torch.tensor(4 / 3).log()))
    corner = first - sizes * 8.5 / side
    for which in range(2):
        check_uniform(corner[:, which] / (1 - sizes[:, which]), 0.0, 1.0)


DEFAULTS = {  # DeiT's recipe (Touvron et al. 2021, table 9) and what papers say of the others
    "crop": {"area": (0.08, 1.0), "aspect": (3 / 4, 4 / 3)},
    "flip": {"horizontal": 0.5, "vertical": 0.0},
    "mixup": {"alpha": 0.8},
    "cutmix": {"alpha": 1.0},
    "mix": {"mixup": 0.8, "cutmix": 1.0, "switch": 0.5},
    "erase": {"probability": 0.25, "area": (0.02, 0.33), "aspect": (0.3, 1 / 0.3)},
}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_settings_are_those_of_the_papers(kind: str) -> None:
    config = AUGMENTATIONS.parse(kind)
    for name, value in DEFAULTS[kind].items():
        assert getattr(config, name) == pytest.approx(value)


@pytest.mark.parametrize("kind", sorted(set(AUGMENTATIONS.names) - {"mix"}))  # which combines two others
def test_augmentations_and_their_configs_have_the_same_defaults(kind: str) -> None:
    augmentation = AUGMENTATIONS.parse(kind).build()
    assert augmentation == type(augmentation)()
