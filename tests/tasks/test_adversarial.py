"""HAT: what is learnt from images that the model's own gradient made harder."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from headwise.blocks.losses import Loss
from headwise.blocks.record import collect
from headwise.inspect.frequency import compute_energy_above
from headwise.models.vit import ViTConfig
from headwise.tasks.adversarial import AdversarialConfig, adversarial_loss
from headwise.vision.config import ImagesConfig
from headwise.vision.corpora import load_images

HAT = AdversarialConfig(steps=3)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Images (32, 1, 8, 8) in 0..1 and their labels (32, 10), in float64."""
    found = load_images(ImagesConfig(name="digits", cache=str(tmp_path_factory.mktemp("cache")))).train
    images = torch.from_numpy(np.array(found.pixels[:32])).double() / 255
    return images, F.one_hot(torch.tensor([int(label) for label in found.targets[:32]]), 10).double()


def model(**settings):
    torch.manual_seed(3)
    config = ViTConfig(image=8, channels=1, patch=2, width=16, heads=2, depth=2, **settings)
    return config.build(0, 10, "classify-images").double()


def cross_entropy(model, images, targets):
    """Plain cross-entropy, in sums."""
    logits = model.ensemble(model.head_logits(2 * images - 1))
    total = -(targets * logits.log_softmax(-1)).sum()
    return Loss(total, total.detach(), torch.tensor(len(images)))


def gradients(net, loss):
    net.zero_grad()
    loss.backward()
    return [weight.grad.clone() for weight in net.parameters()]


def test_one_look_is_the_plain_loss(digits):
    net = model()
    plain, one = cross_entropy(net, *digits), adversarial_loss(cross_entropy, net, *digits, HAT, passes=1)
    assert one.total == plain.total and one.nll == plain.nll
    for ours, theirs in zip(gradients(net, one.total), gradients(net, plain.total), strict=True):
        assert_close(ours, theirs, atol=0, rtol=0)


def test_gradients_add_up_to_those_of_the_written_out_objective(digits):
    images, targets = digits
    net = model()
    net.zero_grad()
    loss = adversarial_loss(cross_entropy, net, images, targets, HAT, passes=3)
    loss.total.backward()
    ours = [weight.grad.clone() for weight in net.parameters()]

    def said(x):
        return net(2 * x - 1).log_softmax(-1)

    def objective(deltas):
        clean = said(images).detach()
        total = -(targets * said(images)).sum()
        for delta in deltas:
            log_q = said(images + delta)
            both = F.kl_div(log_q, clean.exp(), reduction="sum") + F.kl_div(clean, log_q.exp(), reduction="sum")
            total = total + (-3 * (targets * log_q).sum() + 0.01 * both / 2) / 2
        return total

    deltas = []
    for step in range(2):
        delta = (deltas[-1] if deltas else torch.zeros_like(images)).clone().requires_grad_()
        log_q = said(images + delta)
        clean = said(images).detach()
        both = F.kl_div(log_q, clean.exp(), reduction="sum") + F.kl_div(clean, log_q.exp(), reduction="sum")
        value = -(3 if step else 1) * (targets * log_q).sum() + (0.005 * both if step else 0)
        (slope,) = torch.autograd.grad(value, delta)
        deltas.append((delta + slope.sign() / 255).clamp(-2 / 255, 2 / 255).detach())
    total = objective(deltas)
    assert_close(loss.total, total)
    for mine, other in zip(ours, gradients(net, total), strict=True):
        assert_close(mine, other, atol=1e-9, rtol=1e-6)


def test_pixels_move_against_the_model_within_the_radius_and_in_high_frequencies(digits):
    images, targets = digits
    looks = []

    def watched(net, seen, labels):
        looks.append((seen - images).detach())
        return cross_entropy(net, seen, labels)

    net = model()
    adversarial_loss(watched, net, images, targets, AdversarialConfig(steps=4), passes=4)
    assert looks[0].abs().max() == 0
    assert_close(looks[1].abs().max(), torch.tensor(1 / 255).double())
    assert max(delta.abs().max() for delta in looks) < 2 / 255 + 1e-9
    losses = [float(cross_entropy(net, images + delta, targets).nll) for delta in looks]
    assert losses[0] < losses[1] < losses[2]
    assert compute_energy_above(looks[2], 2).mean() > 1.5 * compute_energy_above(images, 2).mean()


def test_the_attack_ends_with_its_share_of_the_budget():
    assert [HAT.passes(progress) for progress in (0.0, 0.6, 0.7, 1.0)] == [3, 3, 1, 1]


def test_routers_are_balanced_once_a_step(digits):
    net = model(feedforward={"kind": "experts", "count": 2})
    with collect("aux") as side:
        loss = adversarial_loss(cross_entropy, net, *digits, HAT, passes=3)
    assert len(side.list_values("aux")) == 2  # one for each layer, of the last look
    (loss.total + sum(side.list_values("aux"))).backward()
