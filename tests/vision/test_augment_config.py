"""Every augmentation of the table, built from its settings."""

import pytest
import torch
from torch.testing import assert_close

from headwise.config.base import Config, slot, validate
from headwise.errors import UserError
from headwise.vision.augment.rand import OPERATIONS, PAPER_OPERATIONS
from headwise.vision.augment.tables import AUGMENTATIONS


class Augmenting(Config):
    augment: tuple[slot(AUGMENTATIONS), ...] = ()


def batch(count=6, channels=3, height=12, width=18, dtype=torch.float32):
    torch.manual_seed(8)
    return torch.rand(count, channels, height, width, dtype=dtype), torch.eye(count, dtype=dtype)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", AUGMENTATIONS.names)
def test_every_kind_keeps_shape_dtype_range_and_the_mass_of_labels(kind, channels):
    augment = AUGMENTATIONS.parse(kind).build()
    inputs = batch(channels=channels, dtype=torch.float64)
    before = inputs[0].clone()
    torch.manual_seed(1)
    images, targets = augment(*inputs)
    assert images.shape[1:] == inputs[0].shape[1:] and images.dtype == targets.dtype == torch.float64
    assert images.min() >= 0 and images.max() <= 1
    assert len(images) == len(targets)
    assert_close(targets.sum(1), torch.ones(len(targets)).double())
    assert (inputs[0] == before).all()  # inputs are not changed in place
    torch.manual_seed(1)
    again = augment(*inputs)
    assert (again[0] == images).all() and (again[1] == targets).all()


@pytest.mark.parametrize("kind", sorted(set(AUGMENTATIONS.names) - {"copies"}))
def test_images_of_one_batch_have_independent_draws(kind):
    settings = {"grey": {"probability": 0.5}, "erase": {"probability": 0.9}}.get(kind, {})
    augment = AUGMENTATIONS.parse({"kind": kind, **settings}).build()
    image = batch(count=1, height=24, width=24)[0].expand(32, 3, 24, 24)
    images, targets = augment(image, torch.eye(32))
    varied = images if kind not in ("mixup", "cutmix", "mix") else targets.amax(1)
    assert len(varied.unique(dim=0)) > 1


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {"autocontrast", "equalise", "invert"}))
def test_an_operation_of_no_magnitude_changes_nothing(name):
    augment = AUGMENTATIONS.parse({"kind": "rand", "magnitude": 0, "noise": 0, "operations": [name]}).build()
    images, targets = batch(dtype=torch.float64)
    assert_close(augment(images, targets)[0], images, atol=1e-12, rtol=0)


def test_operations_are_drawn_uniformly_and_applied_to_their_images():
    assert len(PAPER_OPERATIONS) == 14
    names = ["identity", "invert", "translate-x"]
    augment = AUGMENTATIONS.parse(
        {"kind": "rand", "count": 1, "operations": names, "magnitude": 10, "noise": 0}
    ).build()
    images, targets = batch(count=900, height=4, width=20)
    augmented, _ = augment(images, targets)
    black = (augmented < 1e-5).all(2).all(1).sum(1)  # columns
    same = (augmented == images).all((1, 2, 3)), (augmented == 1 - images).all((1, 2, 3)), black == 9
    assert (sum(applied.int() for applied in same) == 1).all()
    assert all(abs(applied.float().mean() - 1 / 3) < 0.06 for applied in same)


def test_stronger_augmentation_changes_images_more():
    images, targets = batch(count=64, height=16, width=16)
    differences = []
    for magnitude in (1, 5, 9):
        torch.manual_seed(2)
        names = [name for name in PAPER_OPERATIONS if name not in ("autocontrast", "equalise")]
        settings = {"kind": "rand", "magnitude": magnitude, "noise": 0, "operations": names}
        augmented, _ = AUGMENTATIONS.parse(settings).build()(images, targets)
        differences.append(float((augmented - images).abs().mean()))
    assert differences == sorted(differences)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("flop", "augment.0.kind: no augmentation is called 'flop'; did you mean flip?"),
        ({"kind": "crop", "area": [1.0, 0.5]}, "augment.0.area: the least comes before the most: [0.5, 1.0]"),
        ({"kind": "erase", "probabilty": 1}, "augment.0.probabilty: unknown key; did you mean probability?"),
    ],
)
def test_errors_name_the_setting(settings, sentence):
    with pytest.raises(UserError) as error:
        validate(Augmenting, {"augment": [settings]})
    assert str(error.value) == sentence
