"""Attention Agent: published size, the equations, and what it does not see."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headwise import build
from headwise.blocks.stack import count_parameters
from headwise.errors import UserError
from headwise.models.attention_agent import ENTRY, AttentionAgent


def make_agent(size: str = "tiny", **settings) -> AttentionAgent:
    torch.manual_seed(0)
    return ENTRY.configure(size, settings).build().eval()


def test_parameters_are_those_of_the_paper():
    patch, key, top, hidden, actions = 7 * 7 * 3, 4, 10, 16, 3
    attention = 2 * (patch * key + key)
    lstm = 4 * hidden * (2 * top + hidden) + 2 * 4 * hidden
    assert attention + lstm + hidden * actions + actions == 3667
    assert count_parameters(build("attention-agent", device="meta")) == 3667
    assert make_agent("base").config.patches_a_side ** 2 == 529


def step_by_hand(agent: AttentionAgent, frame: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Importance and the chosen patches of one frame (H, W, C), patch by patch."""
    config = agent.config
    starts = range(0, config.side - config.patch + 1, config.stride)
    patches = [frame[i : i + config.patch, j : j + config.patch].ravel() for i in starts for j in starts]
    projected = []
    for part in (agent.queries, agent.keys):
        weight = part.weight.detach().numpy().transpose(0, 2, 3, 1).reshape(config.key_width, -1)  # channels last
        projected.append(np.array(patches) @ weight.T + part.bias.detach().numpy())
    scores = projected[0] @ projected[1].T / np.sqrt(patches[0].size)
    attention = np.exp(scores - scores.max(1, keepdims=True))
    attention /= attention.sum(1, keepdims=True)
    importance = attention.sum(0)
    return importance, np.argsort(-importance)[: config.top].tolist()


@pytest.mark.parametrize("discrete", [False, True])
def test_a_step_is_the_equation(discrete):
    agent = make_agent(discrete=discrete)
    lstm = torch.nn.LSTM(8, 8)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(lstm, f"{name}_l0").data.copy_(getattr(agent.controller.cell, name))
    frames = torch.rand(5, 2, 3, 32, 32)  # steps, rows
    state, places, outputs = agent.start(2), [], []
    for frame in frames:
        look = agent.look(frame)
        for row in range(2):
            importance, chosen = step_by_hand(agent, frame[row].permute(1, 2, 0).numpy())
            np.testing.assert_allclose(look.importance[row].detach(), importance, rtol=1e-5)
            assert look.chosen[row].tolist() == chosen
            side = agent.config.patches_a_side
            places.append([[(3 + 4 * (n // side)) / 32, (3 + 4 * (n % side)) / 32] for n in chosen])
        output, state = agent(frame, state)
        outputs.append(output)
    hidden, _ = lstm(torch.tensor(places).view(5, 2, 8))
    expected = agent.controller.out(hidden)
    torch.testing.assert_close(torch.stack(outputs), expected if discrete else expected.tanh())


def test_importance_sums_to_the_number_of_patches():
    look = make_agent("small").look(torch.rand(3, 3, 64, 64))
    torch.testing.assert_close(look.importance.sum(-1), torch.full((3,), 225.0))


def test_choosing_patches_has_no_gradient():
    """What is drawn in a patch does not matter, only where it is."""
    agent, frame = make_agent(), torch.rand(1, 3, 32, 32, requires_grad=True)
    agent(frame, agent.start(1))[0].sum().backward()
    assert frame.grad is None and agent.queries.weight.grad is None
    assert agent.controller.out.weight.grad is not None


def test_other_frames_are_resized():
    agent = make_agent()
    torch.testing.assert_close(
        agent.look(torch.full((1, 3, 64, 64), 0.5)).importance, agent.look(torch.full((1, 3, 32, 32), 0.5)).importance
    )


def test_what_does_not_fit_is_refused():
    with pytest.raises(UserError, match="patches of 7 pixels do not fit into frames of 6; choose smaller ones"):
        make_agent(side=6)
    with pytest.raises(UserError, match="26 patches cannot be kept of 25; choose at most 25"):
        make_agent(side=23, top=26)
    assert make_agent(side=23, top=25).look(torch.rand(1, 3, 23, 23)).chosen.shape == (1, 25)
