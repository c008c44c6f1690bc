"""The table of augmentations (`task.augment`): each kind and where its config lives.

>>> AUGMENTATIONS.parse({"kind": "crop", "area": [0.5, 1]}).area
(0.5, 1.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headwise.config.base import Table, slot

if TYPE_CHECKING:
    from headwise.vision.augment.base import AugmentationConfig

_HERE = "headwise.vision.augment"

AUGMENTATIONS = Table(
    "augmentation",
    default="flip",
    homes={
        "crop": f"{_HERE}.crop:CropConfig",
        "shift": f"{_HERE}.crop:ShiftConfig",
        "flip": f"{_HERE}.crop:FlipConfig",
        "colour": f"{_HERE}.colour:ColourConfig",
        "grey": f"{_HERE}.colour:GreyConfig",
        "rand": f"{_HERE}.rand:RandConfig",
        "mixup": f"{_HERE}.mixing:MixupConfig",
        "cutmix": f"{_HERE}.mixing:CutmixConfig",
        "mix": f"{_HERE}.mixing:MixConfig",
        "erase": f"{_HERE}.erase:EraseConfig",
        "cutout": f"{_HERE}.erase:CutoutConfig",
        "copies": f"{_HERE}.copies:CopiesConfig",
    },
)

if TYPE_CHECKING:  # to a type checker, the config of what a slot holds
    AnyAugmentation: TypeAlias = AugmentationConfig
else:
    AnyAugmentation = slot(AUGMENTATIONS)
