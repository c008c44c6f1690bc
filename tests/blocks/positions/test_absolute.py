"""Sinusoidal and learned positions, with the requirements that simpler encodings do not meet."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headwise.blocks.positions.absolute import LearnedPositions, SinusoidalPositions, build_sinusoids
from headwise.blocks.positions.base import NoPositions
from headwise.errors import UserError

WIDTH, LONGEST = 32, 4096
close = torch.testing.assert_close


def encode_positions(count: int) -> Tensor:
    return build_sinusoids(torch.arange(count), WIDTH)


# Encodings that fail: what each gives for positions 0 ... count - 1.
COUNTER_EXAMPLES = {
    "integers": lambda count: torch.arange(count, dtype=torch.float32).unsqueeze(-1).expand(count, WIDTH),
    "sigmoid": lambda count: torch.sigmoid(torch.arange(count, dtype=torch.float32)).unsqueeze(-1).expand(count, WIDTH),
    "slow sine": lambda count: torch.sin(torch.arange(count) / 10_000).float().unsqueeze(-1).expand(count, WIDTH),
}


def is_bounded(table: Tensor) -> bool:
    return bool(table.abs().max() <= 1)


def is_distinct(table: Tensor) -> bool:
    return len(table.unique(dim=0)) == len(table)


def tells_neighbours_apart(table: Tensor) -> bool:
    """The nearest two places differ by more than rounding would swallow beside an embedding of unit variance."""
    return bool((table[1:] - table[:-1]).norm(dim=-1).min() > 0.1)


def test_formula() -> None:
    table = encode_positions(100)
    for place in (0, 1, 7, 99):
        for i in range(WIDTH // 2):
            angle = place / 10_000 ** (2 * i / WIDTH)
            assert table[place, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[place, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)
    assert table[1, 0].item() == pytest.approx(0.841471, abs=1e-6)


def test_halves_hold_the_same_numbers_in_the_released_order() -> None:
    interleaved, halves = encode_positions(50), build_sinusoids(torch.arange(50), WIDTH, halves=True)
    close(halves, torch.cat((interleaved[:, 0::2], interleaved[:, 1::2]), dim=-1))


def test_a_shift_is_a_rotation_that_does_not_depend_on_the_position() -> None:
    """PE(p + k) = R_k PE(p)."""
    rates = 10_000 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    table = encode_positions(600)
    for shift in (1, 5, 100):
        cos, sin = (shift * rates).cos(), (shift * rates).sin()
        blocks = [torch.stack((torch.stack((c, s)), torch.stack((-s, c)))) for c, s in zip(cos, sin, strict=True)]
        rotation = torch.block_diag(*blocks)
        close(rotation @ rotation.t(), torch.eye(WIDTH, dtype=torch.float64))
        close(table[:500] @ rotation.t(), table[shift : 500 + shift])


def test_sinusoids_meet_all_requirements() -> None:
    table = encode_positions(LONGEST).float()
    assert is_bounded(table) and is_distinct(table) and tells_neighbours_apart(table)
    close(table.norm(dim=-1), torch.full((LONGEST,), math.sqrt(WIDTH / 2)))  # no place outweighs the others


@pytest.mark.parametrize(
    ("name", "fails"), [("integers", is_bounded), ("sigmoid", is_distinct), ("slow sine", tells_neighbours_apart)]
)
def test_simpler_encodings_fail_one(name: str, fails: object) -> None:
    table = COUNTER_EXAMPLES[name](LONGEST)
    checks = (is_bounded, is_distinct, tells_neighbours_apart)
    assert not fails(table)
    assert any(check(table) for check in checks)


def test_position_vectors_do_not_depend_on_length_or_content() -> None:
    part = SinusoidalPositions(WIDTH, cached=16)
    short, long = torch.randn(1, 5, WIDTH), torch.randn(3, 40, WIDTH)  # the second is beyond the ready table
    added = part(long, torch.arange(40), 0) - long
    close(added[0, :5], (part(short, torch.arange(5), 0) - short)[0])
    close(added[1], encode_positions(40).float())


@pytest.mark.parametrize(
    "make", [lambda: SinusoidalPositions(8, cached=16), lambda: LearnedPositions(8, 32), NoPositions]
)
def test_positions_one_by_one_equal_those_at_once(make: object) -> None:
    part, x, pos = make(), torch.randn(2, 20, 8), torch.arange(20)
    whole = part(x, pos, 0)
    for start in range(20):
        close(part(x[:, start : start + 1], pos[start : start + 1], start), whole[:, start : start + 1])
    close(part(x, pos.expand(2, 20), -1), whole)


def test_odd_widths_end_with_a_sine() -> None:
    assert build_sinusoids(torch.arange(3), 5).shape == (3, 5)
    assert build_sinusoids(torch.arange(3), 5, halves=True).shape == (3, 5)


def test_positions_after_a_learned_table_are_refused() -> None:
    part, x = LearnedPositions(8, max_length=10), torch.zeros(1, 1, 8)
    part(x, torch.tensor([9]), 9)
    for start in (10, -1):
        with pytest.raises(
            UserError, match=r"11 tokens does not fit the learned table of 10; shorten it, or .* positions\.max_length"
        ):
            part(x, torch.tensor([10]), start)
