"""How images are changed in training (`task.augment`): each kind's own settings. No torch here.

>>> AUGMENTATIONS.parse({"kind": "crop", "area": [0.5, 1]}).area
(0.5, 1.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field

from headwise.config.base import Config, Table

if TYPE_CHECKING:
    from headwise.vision.augment import Augmentation

AUGMENTATIONS = Table("augmentation", default="flip")

# RandAugment: the paper's 14 operations, and two that timm has beside them
Paper = Literal[
    "identity", "autocontrast", "equalise", "rotate", "solarise", "colour", "posterise", "contrast", "brightness",
    "sharpness", "shear-x", "shear-y", "translate-x", "translate-y",
]  # fmt: skip
Operation = Literal[Paper, "invert", "solarise-add"]
PAPER: tuple[Operation, ...] = get_args(Paper)


def _ascending(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError(f"the least comes before the most: [{pair[1]}, {pair[0]}]")
    return pair


Probability = Annotated[float, Field(ge=0, le=1)]
Change = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Area = Annotated[tuple[Share, Share], AfterValidator(_ascending)]
Ratio = Annotated[float, Field(gt=0)]
Aspect = Annotated[tuple[Ratio, Ratio], AfterValidator(_ascending)]  # width / height


class AugmentationConfig(Config):
    """A `kind`, and settings of its own, under the names of what it builds."""

    kind: str

    def build(self) -> Augmentation:
        raise TypeError(f"{type(self).__name__} builds nothing")

    @property
    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in self if name != "kind"}


@AUGMENTATIONS.add
class CropConfig(AugmentationConfig):
    """A part of the image, enlarged to its size: random resized cropping."""

    kind: Literal["crop"] = "crop"
    area: Area = (0.08, 1.0)
    aspect: Aspect = (3 / 4, 4 / 3)
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"

    def build(self) -> Augmentation:
        from headwise.vision.augment import ResizedCrop

        return ResizedCrop(**self.settings)


@AUGMENTATIONS.add
class ShiftConfig(AugmentationConfig):
    """The image moved by some pixels, with padding where it was."""

    kind: Literal["shift"] = "shift"
    by: int = Field(4, ge=1)
    padding: Literal["constant", "reflect", "replicate"] = "constant"

    def build(self) -> Augmentation:
        from headwise.vision.augment import Shift

        return Shift(**self.settings)


@AUGMENTATIONS.add
class FlipConfig(AugmentationConfig):
    """Mirror images."""

    kind: Literal["flip"] = "flip"
    horizontal: Probability = 0.5
    vertical: Probability = 0.0

    def build(self) -> Augmentation:
        from headwise.vision.augment import Flip

        return Flip(**self.settings)


@AUGMENTATIONS.add
class ColourConfig(AugmentationConfig):
    """Other brightness, contrast, saturation and hue: the most that each may change."""

    kind: Literal["colour"] = "colour"
    brightness: Change = 0.3
    contrast: Change = 0.3
    saturation: Change = 0.3
    hue: float = Field(0.0, ge=0, le=0.5)  # of the circle of hues

    def build(self) -> Augmentation:
        from headwise.vision.augment import ColourJitter

        return ColourJitter(**self.settings)


@AUGMENTATIONS.add
class GreyConfig(AugmentationConfig):
    """No colour at all."""

    kind: Literal["grey"] = "grey"
    probability: Probability = 0.2

    def build(self) -> Augmentation:
        from headwise.vision.augment import Grey

        return Grey(**self.settings)


@AUGMENTATIONS.add
class RandConfig(AugmentationConfig):
    """RandAugment: `count` of the operations for each image, of one magnitude from 0 to 10 with some noise."""

    kind: Literal["rand"] = "rand"
    count: int = Field(2, ge=1)
    magnitude: float = Field(9.0, ge=0, le=10)
    noise: float = Field(0.5, ge=0)
    probability: Probability = 1.0  # of each operation
    operations: tuple[Operation, ...] = Field(PAPER, min_length=1)

    def build(self) -> Augmentation:
        from headwise.vision.augment import RandAugment

        return RandAugment(**self.settings)


@AUGMENTATIONS.add
class MixupConfig(AugmentationConfig):
    """Two images laid over each other, and their labels; alpha 1 draws all shares alike, less keeps near 0 and 1."""

    kind: Literal["mixup"] = "mixup"
    alpha: float = Field(0.8, gt=0)

    def build(self) -> Augmentation:
        from headwise.vision.augment import Mixup

        return Mixup(self.alpha)


@AUGMENTATIONS.add
class CutmixConfig(AugmentationConfig):
    """A box of another image, and its share of the label."""

    kind: Literal["cutmix"] = "cutmix"
    alpha: float = Field(1.0, gt=0)

    def build(self) -> Augmentation:
        from headwise.vision.augment import Cutmix

        return Cutmix(self.alpha)


@AUGMENTATIONS.add
class MixConfig(AugmentationConfig):
    """Mixup for some images, CutMix for the others."""

    kind: Literal["mix"] = "mix"
    mixup: float = Field(0.8, gt=0)  # their alphas
    cutmix: float = Field(1.0, gt=0)
    switch: Probability = 0.5  # how often it is CutMix

    def build(self) -> Augmentation:
        from headwise.vision.augment import Cutmix, Mixup, Switch

        return Switch(Mixup(self.mixup), Cutmix(self.cutmix), self.switch)


@AUGMENTATIONS.add
class EraseConfig(AugmentationConfig):
    """A box of noise: random erasing."""

    kind: Literal["erase"] = "erase"
    probability: Probability = 0.25
    area: Area = (0.02, 0.33)
    aspect: Aspect = (0.3, 1 / 0.3)

    def build(self) -> Augmentation:
        from headwise.vision.augment import Erase

        return Erase(**self.settings)


@AUGMENTATIONS.add
class CutoutConfig(AugmentationConfig):
    """A black square."""

    kind: Literal["cutout"] = "cutout"
    size: int = Field(16, ge=1)  # pixels

    def build(self) -> Augmentation:
        from headwise.vision.augment import Cutout

        return Cutout(self.size)


@AUGMENTATIONS.add
class CopiesConfig(AugmentationConfig):
    """Several copies of each image in a batch, which what comes after tells apart: batch augmentation."""

    kind: Literal["copies"] = "copies"
    times: int = Field(2, ge=2)

    def build(self) -> Augmentation:
        from headwise.vision.augment import Copies

        return Copies(self.times)


class AdversarialConfig(Config):
    """Images made harder by the model's own gradient before it learns from them (HAT: Bai et al. 2022): `steps` looks
    at each image, the first as it is, each later one at pixels that were moved further against the model."""

    steps: int = Field(1, ge=1)  # 1: images as they are; the paper has 3
    radius: float = Field(2 / 255, gt=0)  # the max_distance that a pixel moves
    step: float = Field(1 / 255, gt=0)
    share: float = Field(2 / 3, gt=0, le=1)  # of the budget; after it, images as they are
    weight: float = Field(3.0, gt=0)  # of the loss on moved pixels
    agreement: float = Field(0.01, ge=0)  # how much it counts that what is said of them is what is said of the image

    def looks(self, progress: float) -> int:
        """How often an image is looked at when this share of the budget is spent."""
        return self.steps if progress < self.share else 1
