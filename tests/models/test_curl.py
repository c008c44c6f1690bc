"""DQN, soft actor-critic, CURL and M-CURL: published shapes and counts, and what the policy consists of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from headwise.blocks.contrast import Views
from headwise.blocks.frames import FrameEncoder
from headwise.catalog import CATALOG
from headwise.errors import UserError
from headwise.models.agent_fields import init_orthogonal

PAIRS = [
    ("curl", "soft-actor-critic"),
    ("curl", "q-learning"),
    ("m-curl", "soft-actor-critic"),
    ("m-curl", "q-learning"),
]


def build(name: str, task: str = "", size: str = "tiny", **settings: Any) -> Any:
    torch.manual_seed(0)
    return CATALOG[name].configure(size, settings).build(0, 0, task)


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def test_published_sizes_have_the_parameters_of_their_layers() -> None:
    """CURL: four convolutions of 32 channels, 84 -> 41 -> 39 -> 37 -> 35 pixels a side, features of 50, networks of
    1,024; the policy has a projection of its own. M-CURL: a layer of width 50 with a network of 100."""
    convolutions = linear(9 * 9, 32) + 3 * linear(9 * 32, 32)
    projection = linear(32 * 35 * 35, 50) + 2 * 50
    critic = 2 * (linear(50 + 6, 1024) + linear(1024, 1024) + linear(1024, 1))
    actor = projection + linear(50, 1024) + linear(1024, 1024) + linear(1024, 12)
    agent = convolutions + projection + critic + actor + 1  # and the temperature
    transformer = linear(50, 150) + linear(50, 50) + linear(50, 100) + linear(100, 50) + 2 * 100
    nature = linear(4 * 64, 32) + linear(32 * 16, 64) + linear(64 * 9, 64) + linear(3136, 512) + linear(512, 18)
    wanted = {"curl": agent + 50 * 50, "m-curl": agent + transformer, "dqn": nature}
    for name, count in wanted.items():
        with torch.device("meta"):
            model = build(name, size="base")
        assert sum(weight.numel() for weight in model.parameters()) == count, name


@pytest.mark.parametrize("name", ["curl", "m-curl"])
def test_published_sizes_run(name: str) -> None:
    with torch.device("meta"):
        model = build(name, size="base")
        action = model(torch.zeros(2, 9, 84, 84))
        keep = torch.ones(64, 20, dtype=torch.bool)
        assert model.encoder.convolve(torch.zeros(1, 9, 84, 84)).shape == (1, 32 * 35 * 35)
    assert action.shape == (2, 6) and model.contrast.windows in (0, len(keep))


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_the_policy_has_no_parameter_of_the_contrastive_loss(name: str, task: str) -> None:
    """It is dropped for acting: no gradient of the policy reaches it, while its own reaches the encoder."""
    model = build(name, task)
    frames = torch.rand(3, 3, 42, 42)
    model(frames).sum().backward()
    auxiliary = list(model.contrast.parameters())
    assert auxiliary and all(weight.grad is None for weight in auxiliary)
    assert all(weight.grad is not None for weight in model.encoder.convolutions.parameters())
    with_others = model(frames)
    for weight in auxiliary:
        nn.init.normal_(weight)
    assert torch.equal(model(frames), with_others)
    model.zero_grad()
    windows = torch.randint(256, (4, 5, 3, 42, 42), dtype=torch.uint8)
    batch = torch.randint(256, (3, 3, 42, 42), dtype=torch.uint8)
    views = Views(
        model.encoder(frames), batch, windows, torch.ones(4, 5, dtype=torch.bool), lambda frames: frames.float() / 255
    )
    model.contrast_views(views).backward()
    assert all(weight.grad is not None for weight in (*auxiliary, *model.encoder.parameters()))
    assert not any(weight.requires_grad for weight in model.target_encoder.buffers())


@pytest.mark.parametrize(("name", "task"), [("dqn", ""), ("sac", ""), *PAIRS])
def test_targets_begin_as_copies(name: str, task: str) -> None:
    model = build(name, task)
    for network, target in ((model.encoder, model.target_encoder), (model.values, model.target_values)):
        tensors = dict(target.named_buffers())
        assert all(torch.equal(weight, tensors[key.replace(".", "_")]) for key, weight in network.named_parameters())


def test_orthogonal_weights() -> None:
    convolution, layer = nn.Conv2d(4, 8, 3), nn.Linear(6, 4)
    for module in (convolution, layer):
        init_orthogonal(module)
    torch.testing.assert_close(layer.weight @ layer.weight.T, torch.eye(4))
    middle = convolution.weight[:, :, 1, 1]
    torch.testing.assert_close(middle.T @ middle, 2 * torch.eye(4))
    assert float(convolution.weight.detach().abs().sum() - middle.detach().abs().sum()) == pytest.approx(0, abs=1e-4)


def test_a_frame_that_is_too_small_is_refused() -> None:
    with pytest.raises(UserError, match="frames of 20 x 20 pixels are too small; give 36 or more"):
        FrameEncoder((3, 20, 20), 8)
    with pytest.raises(UserError, match="frames of 14 x 14 pixels are too small; give 15 or more"):
        build("curl", observation=(3, 14, 14))


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("curl", {"observation": (7,)}, "compares crops of frames, and the environment shows numbers"),
        ("m-curl", {"features": 20}, "the Transformer has a width of 16, a frame 20 features"),
        ("dqn", {"observation": (3, 4)}, "is the number of numbers of a state"),
    ],
)
def test_mistakes_are_told(name: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises((UserError, ValueError), match=sentence):
        build(name, **settings)
