"""Decision Transformer: sizes, what each action sees, and the form for Atari."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context, Stream
from headwise.models.build import build
from headwise.models.decision_transformer import ENTRY, DecisionTransformer, Trajectory
from headwise.testing import assert_parity


def draw_trajectory(model: DecisionTransformer, rows: int = 2, length: int = 6) -> Trajectory:
    config, random = model.config, torch.Generator().manual_seed(1)
    continuous = torch.randn(rows, length, config.actions, generator=random)
    actions = torch.randint(config.actions, (rows, length), generator=random) if config.discrete else continuous
    observations = torch.randn(rows, length, *config.observation, generator=random)
    steps = 3 + torch.arange(length).expand(rows, length)
    return Trajectory(torch.randn(rows, length, generator=random), observations, actions, steps)


def make_tiny(**settings: Any) -> DecisionTransformer:
    torch.manual_seed(0)
    model = DecisionTransformer(ENTRY.configure("tiny", settings)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def test_parameters() -> None:
    """Gym's size is that of `transformers` without its tables of words and positions; Atari's is the sum of what the
    released code builds for Breakout."""
    assert count_parameters(build("decision-transformer", device="meta")) == 1_256_854 - (1024 + 1) * 128
    width, layer = 128, 12 * 128**2 + 13 * 128
    convolutions = (4 * 64 + 1) * 32 + (32 * 16 + 1) * 64 + (64 * 9 + 1) * 64 + (64 * 49 + 1) * width
    embeddings = 2 * width + convolutions + 4 * width + 4096 * width + 90 * width
    expected = embeddings + 6 * layer + 2 * width + 4 * width
    assert count_parameters(build("decision-transformer-atari", device="meta")) == expected


@pytest.mark.parametrize("discrete", [False, True])
def test_an_action_sees_its_observation_and_what_was_before(discrete: bool) -> None:
    """Neither itself nor anything later, by gradients."""
    model = make_tiny(discrete=discrete)
    trajectory = draw_trajectory(model)
    inputs: dict[str, Tensor] = {"returns": trajectory.returns, "observations": trajectory.observations}
    if not discrete:
        inputs["actions"] = trajectory.actions
    for tensor in inputs.values():
        tensor.requires_grad_(True)
    model(trajectory._replace(**inputs)).actions[0, 3].square().sum().backward()
    for name, tensor in inputs.items():
        seen = tensor.grad[0].flatten(1).abs().sum(1) if tensor.dim() > 2 else tensor.grad[0].abs()
        last = 3 if name == "actions" else 4  # the first step that is not seen
        assert (seen[:last] > 0).all() and (seen[last:] == 0).all(), name
        assert (tensor.grad[1] == 0).all()
    if discrete:
        changed = trajectory.actions.clone()
        changed[:, 3:] = (changed[:, 3:] + 1) % 3
        with torch.no_grad():
            before, after = (model(trajectory._replace(actions=each)).actions for each in (trajectory.actions, changed))
        assert_parity(after[:, :4], before[:, :4])
        assert not torch.allclose(after[:, 4:], before[:, 4:])


@pytest.mark.parametrize("frames", [False, True])
def test_padding_before_a_part_changes_nothing(frames: bool) -> None:
    model = make_tiny(**({"observation": (3, 40, 40), "discrete": True} if frames else {}))
    trajectory = draw_trajectory(model, rows=1)
    with torch.no_grad():
        alone = model(trajectory).actions
        padded = Trajectory(*(torch.cat((torch.ones_like(part[:, :2]), part), 1) for part in trajectory[:4]))
        keep = torch.tensor([[False] * 2 + [True] * 6])
        assert_parity(model(padded._replace(keep=keep)).actions[:, 2:], alone)
        assert not torch.allclose(model(padded).actions[:, 2:], alone)


def test_steps_after_the_last_vector_have_the_last() -> None:
    model = make_tiny(max_steps=5)
    trajectory = draw_trajectory(model)
    with torch.no_grad():
        assert_parity(
            model(trajectory).actions, model(trajectory._replace(steps=trajectory.steps.clamp(max=4))).actions
        )


def test_the_atari_form_is_the_equation() -> None:
    """tanh(embedding) + time step + position of the token, and no norm before the layers."""
    positions = {"kind": "learned", "max_length": 18}
    model = make_tiny(observation=(2, 36, 44), discrete=True, embedding="tanh", positions=positions)
    trajectory, embed = draw_trajectory(model), model.embed
    with torch.no_grad():
        frames = trajectory.observations.flatten(0, 1)
        for layer in embed.observations.convolutions:
            frames = layer(frames)
        seen = torch.tanh(embed.observations.out(frames.flatten(1))).view(2, 6, -1)
        asked = torch.tanh(trajectory.returns[..., None] * embed.returns.weight[:, 0] + embed.returns.bias)
        done = torch.tanh(embed.actions.weight[trajectory.actions])
        tokens = torch.zeros(2, 18, 32)
        for place, part in enumerate((asked, seen, done)):
            tokens[:, place::3] = part + embed.steps.weight[trajectory.steps]
        tokens = tokens + embed.positions.table
        x = model.stack(Stream(tokens, torch.arange(18)), Context()).x
        assert_parity(model(trajectory).actions, x[:, 1::3] @ model.predict_action.weight.T)
    assert model.predict_action.bias is None and model(trajectory).observations is None and model.max_length == 6


def test_continuous_actions_are_bounded_where_the_config_says_so() -> None:
    bounded, free = make_tiny(), make_tiny(action_tanh=False)
    with torch.no_grad():
        trajectory = draw_trajectory(bounded)
        assert_parity(bounded(trajectory).actions, free(trajectory).actions.tanh())


def test_small_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="frames of 20 x 40 pixels are too small"):
        make_tiny(observation=(3, 20, 40))
    with pytest.raises(ValueError, match="channels, rows and columns of a frame"):
        ENTRY.configure("tiny", {"observation": (3, 20)})
