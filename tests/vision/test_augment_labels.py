"""Mixing, erasing and copying: images and their labels."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import betainc
from torch.testing import assert_close

from headwise.vision.augment import Copies, Cutmix, Cutout, Erase, Mixup, Switch
from headwise.vision.augment.mixing import draw_lambda

LABELS = torch.eye(500, dtype=torch.float64)
PLAIN = torch.arange(500, dtype=torch.float64).div(500).view(500, 1, 1, 1).expand(500, 2, 12, 16)  # a tone an image


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(11)


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0])
def test_lambdas_follow_the_beta_distribution(alpha):
    lambdas = draw_lambda(torch.empty(4000, 1, 1, 1, dtype=torch.float64), alpha).sort().values
    differences = betainc(alpha, alpha, lambdas.numpy()) - (np.arange(4000) + 0.5) / 4000
    assert np.abs(differences).max() < 1.95 / 4000**0.5  # Kolmogorov and Smirnov: one seed in a thousand is further off


def test_mixup_gives_a_label_the_share_of_its_image():
    images, labels = Mixup(alpha=0.8)(PLAIN, LABELS)
    assert_close(labels.sum(1), torch.ones(500).double())
    tones = labels @ PLAIN[:, 0, 0, 0]  # what the labels say that there is to see
    assert_close(images, tones.view(500, 1, 1, 1).expand_as(images))


def test_cutmix_gives_a_label_the_share_of_its_pixels_also_where_the_box_was_clipped():
    images, labels = Cutmix()(PLAIN, LABELS)
    shares = (images == PLAIN).double().mean((1, 2, 3))
    assert_close(labels.sum(1), torch.ones(500).double())
    mixed = labels.diagonal() < 1
    assert_close(labels.diagonal()[mixed], shares[mixed])
    assert mixed.double().mean() > 0.9


def test_cutmix_replaces_one_box_of_the_images_aspect():
    holes = 1 - Cutmix().draw_mask(torch.empty(200, 1, 40, 80))  # (B, 1, H, W)
    tall, wide = holes.amax(3).sum((1, 2)), holes.amax(2).sum((1, 2))
    assert_close(holes.sum((1, 2, 3)), tall * wide)
    full = (holes[:, 0, 0].sum(1) + holes[:, 0, -1].sum(1) + holes[:, 0, :, 0].sum(1) + holes[:, 0, :, -1].sum(1)) == 0
    inside = full & (tall > 0)
    assert inside.any() and ((wide - 2 * tall)[inside].abs() <= 3).all()


def test_a_switch_applies_both_mixings():
    images, labels = Switch(Mixup(0.8), Cutmix(1.0), 0.5)(PLAIN, LABELS)
    assert_close(labels.sum(1), torch.ones(500).double())
    flat = (images.amax((1, 2, 3)) - images.amin((1, 2, 3))) < 1e-9
    assert 0.4 < flat.double().mean() < 0.65  # boxes that are empty or all are flat too


@pytest.mark.parametrize("probability", [0.0, 0.2, 0.9, 1.0])
def test_the_second_mixing_has_its_probability(probability):
    images = torch.zeros(4000, 1, 2, 2, dtype=torch.float64)
    first, second = (
        SimpleNamespace(draw_mask=lambda x, value=value: torch.full_like(x, value)) for value in (0.25, 0.75)
    )
    masks = Switch(first, second, probability).draw_mask(images)[:, 0, 0, 0]
    assert (
        abs(float((masks == 0.75).double().mean()) - probability) <= 5 * (probability * (1 - probability) / 4000) ** 0.5
    )


def test_erasing_fills_one_box_with_noise():
    images = torch.full((2000, 3, 20, 24), 2.0)  # a tone that no noise has
    augmented = Erase(probability=0.25).augment_images(images)
    erased = (augmented != 2).any(1)
    assert ((augmented != 2).all(1) == erased).all()
    hit = erased.any((1, 2))
    assert abs(hit.float().mean() - 0.25) < 0.035
    tall, wide = erased.any(2).sum(1), erased.any(1).sum(1)
    assert (erased.sum((1, 2)) == tall * wide).all()
    share = erased[hit].float().mean((1, 2))
    assert 0.01 < share.min() < 0.04 and 0.3 < share.max() < 0.36 and abs(share.mean() - 0.175) < 0.015
    noise = augmented[augmented != 2]
    assert noise.min() >= 0 and noise.max() <= 1 and abs(noise.mean() - 0.5) < 0.01


def test_cutout_is_a_black_square_clipped_at_the_edges():
    holes = Cutout(size=6).augment_images(torch.ones(300, 1, 12, 16)) == 0
    areas = holes.sum((1, 2, 3))
    assert (
        areas.max() == 36 and areas.min() == 9 and (holes.any(3).sum((1, 2)) * holes.any(2).sum((1, 2)) == areas).all()
    )


def test_copies_are_neighbours_and_keep_their_labels():
    images, labels = Copies(times=3)(PLAIN[:2], LABELS[:2])
    assert labels.argmax(1).tolist() == [0, 0, 0, 1, 1, 1]
    assert images.shape == (6, 2, 12, 16) and (images[2] == PLAIN[0]).all() and (images[3] == PLAIN[1]).all()
