"""How strong each operation of RandAugment is, and how often: kornia and Pillow with the ranges that timm publishes.

timm's `inc1` table at level m of 10: rotate 30 m/10 degrees, shear 0.3 m/10, translate 0.45 m/10 of the side, solarise
256 - 256 m/10, solarise-add 110 m/10, enhance 1 +- 0.9 m/10. Posterise keeps 8 - 4 m/10
bits, which is ours.
"""

import kornia
import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats
from torch import Tensor

from headwise.vision.augment import RandAugment
from headwise.vision.augment.rand import OPERATIONS, PAPER_OPERATIONS
from headwise.vision.augment.tables import AUGMENTATIONS

HEIGHT, WIDTH = 20, 28
LEVEL = 1 / 255
MAGNITUDES = (1.0, 0.5, -0.25, -1.0)  # of 1, with their direction


@pytest.fixture(scope="module")
def image() -> Tensor:
    """A smooth picture whose values are levels of bytes, (3, H, W)."""
    generator = torch.Generator().manual_seed(3)
    rough = torch.rand(1, 3, 5, 7, dtype=torch.float64, generator=generator)
    smooth = torch.nn.functional.interpolate(rough, (HEIGHT, WIDTH), mode="bicubic").clamp(0.05, 0.95)
    return (255 * smooth[0]).round() / 255


def warp(image: Tensor, matrix: list[list[float]]) -> Tensor:
    """kornia's affine map of pixels from the middle, old to new."""
    to_middle = torch.tensor([[1, 0, -(WIDTH - 1) / 2], [0, 1, -(HEIGHT - 1) / 2], [0, 0, 1]], dtype=torch.float64)
    about = torch.cat([torch.tensor(matrix, dtype=torch.float64), torch.tensor([[0.0, 0.0, 1.0]]).double()])
    combined = torch.linalg.inv(to_middle) @ about @ to_middle
    return kornia.geometry.warp_affine(image[None], combined[None, :2], (HEIGHT, WIDTH), align_corners=False)[0]


def rotated(image: Tensor, m: float) -> Tensor:
    cosine, sine = np.cos(np.pi / 6 * m), np.sin(np.pi / 6 * m)  # 30 degrees, anticlockwise where y points down
    return warp(image, [[cosine, sine, 0], [-sine, cosine, 0]])


def with_pillow(image: Tensor, change) -> Tensor:
    levels = Image.fromarray((255 * image.permute(1, 2, 0)).round().byte().numpy())
    return torch.from_numpy(np.array(change(levels))).permute(2, 0, 1).double() / 255


EXPECTED = {
    "identity": lambda x, m: x,
    "autocontrast": lambda x, m: with_pillow(x, ImageOps.autocontrast),
    "equalise": lambda x, m: with_pillow(x, ImageOps.equalize),
    "invert": lambda x, m: with_pillow(x, ImageOps.invert),
    "rotate": rotated,
    "shear-x": lambda x, m: warp(x, [[1, -0.3 * m, 0], [0, 1, 0]]),
    "shear-y": lambda x, m: warp(x, [[1, 0, 0], [-0.3 * m, 1, 0]]),
    "translate-x": lambda x, m: warp(x, [[1, 0, 0.45 * WIDTH * m], [0, 1, 0]]),
    "translate-y": lambda x, m: warp(x, [[1, 0, 0], [0, 1, 0.45 * HEIGHT * m]]),
    "posterise": lambda x, m: with_pillow(x, lambda levels: ImageOps.posterize(levels, round(8 - 4 * abs(m)))),
    "solarise": lambda x, m: with_pillow(x, lambda levels: ImageOps.solarize(levels, 256 - 256 * abs(m))),
    "solarise-add": lambda x, m: torch.where(x < 128 / 255, (x + 110 / 255 * abs(m)).clamp(max=1), x),
    "colour": lambda x, m: with_pillow(x, lambda levels: ImageEnhance.Color(levels).enhance(1 + 0.9 * m)),
    "contrast": lambda x, m: with_pillow(x, lambda levels: ImageEnhance.Contrast(levels).enhance(1 + 0.9 * m)),
    "brightness": lambda x, m: with_pillow(x, lambda levels: ImageEnhance.Brightness(levels).enhance(1 + 0.9 * m)),
    "sharpness": lambda x, m: with_pillow(x, lambda levels: ImageEnhance.Sharpness(levels).enhance(1 + 0.9 * m)),
}
ROUNDED = ("autocontrast", "colour", "contrast", "brightness", "sharpness")  # Pillow rounds to levels on the way


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_have_the_strength_of_their_magnitude(image: Tensor, name: str) -> None:
    augmented = OPERATIONS[name](image.expand(len(MAGNITUDES), *image.shape), image.new_tensor(MAGNITUDES))
    expected = torch.stack([EXPECTED[name](image, m) for m in MAGNITUDES])
    torch.testing.assert_close(augmented, expected, atol=1.6 * LEVEL if name in ROUNDED else 1e-6, rtol=0)


def test_magnitudes_are_normal_with_a_random_sign() -> None:
    rows = 20_000
    amounts = RandAugment(magnitude=6.0, noise=0.5).draw_amounts(torch.empty(rows, 1, 1, 1, dtype=torch.float64))
    sizes = 10 * amounts.abs()
    assert abs(sizes.mean() - 6) < 5 * 0.5 / rows**0.5
    assert abs(sizes.std() / 0.5 - 1) < 5 / (2 * rows) ** 0.5
    assert abs((amounts > 0).double().mean() - 0.5) < 5 * 0.5 / rows**0.5


def test_magnitudes_are_clipped_to_0_and_10() -> None:
    for magnitude, end in ((10.0, 1.0), (0.0, 0.0)):
        sizes = RandAugment(magnitude=magnitude, noise=1.0).draw_amounts(torch.empty(4000, 1, 1, 1)).abs()
        assert sizes.min() >= 0 and sizes.max() <= 1
        assert abs((sizes == end).float().mean() - 0.5) < 0.05  # half of a normal is beyond its mean


@pytest.mark.parametrize(("count", "probability"), [(1, 1.0), (2, 1.0), (3, 0.5)])
def test_each_image_has_count_operations_each_with_its_probability(count: int, probability: float) -> None:
    """Black plus 110 levels each time, up to the brighter half, counts how often it was applied, 0, 1 or 2 times."""
    rows = 8000
    rand = RandAugment(count, magnitude=10.0, noise=0.0, probability=probability, operations=("solarise-add",))
    applied = (rand.augment_images(torch.zeros(rows, 1, 2, 2))[:, 0, 0, 0] / (110 / 255)).round()
    chances = stats.binom(count, probability)
    for times, expected in ((0, chances.pmf(0)), (1, chances.pmf(1)), (2, chances.sf(1))):
        assert abs(float((applied == times).float().mean()) - expected) <= 5 * 0.5 / rows**0.5


def test_defaults_equal_deits() -> None:
    """rand-m9-mstd0.5: two operations of magnitude 9, noise 0.5 (Touvron et al. 2021, table 9)."""
    rand = AUGMENTATIONS.parse("rand").build()
    assert (rand.count, rand.magnitude, rand.noise, rand.probability, rand.operations) == (
        2,
        9.0,
        0.5,
        1.0,
        PAPER_OPERATIONS,
    )
