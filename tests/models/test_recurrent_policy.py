"""Recurrent policies: the size beside the Attention Agent, and an episode as torch computes it."""

from __future__ import annotations

import pytest
import torch

from headwise import build
from headwise.blocks.stack import count_parameters
from headwise.errors import UserError
from headwise.models.recurrent_policy import RecurrentPolicy, RecurrentPolicyConfig


def test_it_is_as_large_as_the_attention_agent():
    policy = build("recurrent-policy")
    assert count_parameters(policy) == 3664
    assert policy.controller.cell.input_size == 20  # ten places of two numbers there


@pytest.mark.parametrize("observation", [(7,), (3, 64, 64)])
def test_an_episode_is_that_of_torch(observation):
    torch.manual_seed(0)
    policy = RecurrentPolicy(RecurrentPolicyConfig(observation=observation)).eval()
    lstm = torch.nn.LSTM(policy.controller.cell.input_size, 16)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(lstm, f"{name}_l0").data.copy_(getattr(policy.controller.cell, name))
    seen = torch.rand(6, 2, *observation)
    state, outputs = policy.start(2), []
    for each in seen:
        output, state = policy(each, state)
        outputs.append(output)
    features = seen
    if len(observation) == 3:
        first, second, third = (policy.convolutions[number] for number in (0, 2, 4))
        features = torch.stack([third(second(first(each).relu()).relu()).relu().flatten(1) for each in seen])
    torch.testing.assert_close(torch.stack(outputs), policy.controller.out(lstm(features)[0]).tanh())


def test_small_frames_are_refused():
    with pytest.raises(UserError, match="leave nothing of frames of 16 x 16 pixels"):
        RecurrentPolicyConfig(observation=(3, 16, 16)).build()
