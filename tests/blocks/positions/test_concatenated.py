"""Concatenated position embeddings: the equation, positions that cannot be concatenated, and decoding with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.positions.absolute import build_sinusoids
from headwise.blocks.tables import POSITIONS
from headwise.testing import check_model

LEARNED = {"kind": "concatenated", "width": 5, "positions": {"kind": "learned", "max_length": 64}}


@torch.no_grad()
def test_a_token_and_its_position_are_projected_together() -> None:
    positions: Any = POSITIONS.parse({"kind": "concatenated", "width": 6}).build_positions(8).double()
    x, weight = torch.randn(2, 4, 8, dtype=torch.float64), positions.project.weight
    sinusoids = build_sinusoids(torch.arange(3, 7), 6)
    expected = torch.stack(
        [torch.stack([weight @ torch.cat((x[row, t], sinusoids[t])) for t in range(4)]) for row in range(2)]
    )
    torch.testing.assert_close(positions(x, torch.arange(3, 7), 3), expected, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_two_identities_as_weights_add_positions() -> None:
    positions: Any = POSITIONS.parse("concatenated").build_positions(8)
    positions.project.weight.copy_(torch.cat((torch.eye(8), torch.eye(8)), dim=1))
    x = torch.randn(2, 4, 8)
    added = POSITIONS.parse("sinusoid").build_positions(8)
    torch.testing.assert_close(positions(x, torch.arange(4), 0), added(x, torch.arange(4), 0))


@pytest.mark.parametrize("positions", ["concatenated", LEARNED], ids=str)
@pytest.mark.parametrize("kind", ["transformer-tiny", "gpt-tiny"])
def test_models_keep_their_promises(kind: str, positions: Any) -> None:
    check_model(headwise.build(kind, vocab=12, dropout=0.0, positions=positions))


def test_the_length_is_limited_by_the_learned_table() -> None:
    assert headwise.build("gpt-tiny", vocab=12, positions=LEARNED).max_length == 64


@pytest.mark.parametrize("inner", ["rotary", "t5", "none", "concatenated"])
def test_positions_without_vectors_are_refused(inner: str) -> None:
    with pytest.raises(UserError, match=f"positions.positions: '{inner}' adds no vectors"):
        headwise.build("gpt-tiny", vocab=12, positions={"kind": "concatenated", "positions": inner})
