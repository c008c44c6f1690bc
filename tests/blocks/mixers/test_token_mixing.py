"""Token mixing: its equation, texts shorter and longer than its limit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headwise
from headwise import UserError
from headwise.blocks.mixers.token_mixing import TokenMixing
from headwise.blocks.stream import Stream


def test_it_is_an_mlp_along_the_tokens_shared_by_all_channels() -> None:
    part, x = TokenMixing(5, 7).double(), torch.randn(2, 5, 3, dtype=torch.float64)
    network = nn.Sequential(part.inner, nn.GELU(), part.outer)
    expected = torch.stack([network(channel) for channel in x.unbind(-1)], dim=-1)
    torch.testing.assert_close(part(x), expected)


def test_a_shorter_text_equals_one_padded_with_zeros() -> None:
    part, x = TokenMixing(6, 7), torch.randn(2, 4, 3)
    whole = torch.cat((x, torch.zeros(2, 2, 3)), dim=1)
    torch.testing.assert_close(part(x), part(whole)[:, :4])
    noise = torch.cat((x, torch.randn(2, 2, 3)), dim=1)
    keep = torch.tensor([[True] * 4 + [False] * 2] * 2)
    torch.testing.assert_close(part(Stream.of(noise, keep))[:, :4], part(x))


def test_a_text_beyond_the_limit_is_refused() -> None:
    mixer = {"kind": "tokens", "max_length": 4}
    model = headwise.build("transformer-tiny", vocab=12, outputs=6, task="classify", mixer=mixer)
    assert model(torch.full((1, 4), 5)).shape == (1, 6)
    with pytest.raises(
        UserError, match=r"a sequence of 5 tokens does not fit token mixing over 4; shorten it, or .* mixer\.max_length"
    ):
        model(torch.full((1, 5), 5))


def test_a_decoder_refuses_it() -> None:
    with pytest.raises(UserError, match="tokens: would see the future in a decoder"):
        headwise.build("gpt2-tiny", vocab=12, mixer="tokens")
