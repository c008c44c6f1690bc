"""Reformer: sizes and layers."""

from __future__ import annotations

import pytest

import headwise
from headwise.blocks.mixers.lsh import LSHAttention
from headwise.blocks.stack import count_parameters


@pytest.mark.parametrize(
    ("name", "vocab", "width", "inner", "hidden", "kinds", "grid"),
    [
        ("crime", 320, 256, 128, 512, "ch" * 3, (512, 64, 1024, 192)),
        ("enwik8", 258, 1024, 1024, 4096, "cchc" * 3, (128, 256, 512, 768)),
    ],
)
def test_parameter_counts_are_those_of_the_equations(
    name: str, vocab: int, width: int, inner: int, hidden: int, kinds: str, grid: tuple[int, int, int, int]
) -> None:
    """`c`: query, key, value and output of a local layer; `h`: a hashed layer's queries are its keys."""
    model = headwise.build(f"reformer-{name}", device="meta")
    mixing = sum({"c": 4, "h": 3}[kind] * width * inner for kind in kinds)
    rest = 2 * width * hidden + hidden + width + 4 * width  # feed-forward network and two norms
    rows, row_width, columns, column_width = grid
    tables = vocab * width + rows * row_width + columns * column_width
    ends = 2 * 2 * width + vocab * 2 * width + vocab  # norm and words over both halves
    assert count_parameters(model) == mixing + len(kinds) * rest + tables + ends
    assert model.max_length == rows * columns


@pytest.mark.parametrize(("name", "published"), [("crime", 3e6), ("enwik8", 149e6)])
def test_parameter_counts_are_the_published_ones(name: str, published: float) -> None:
    assert count_parameters(headwise.build(f"reformer-{name}", device="meta")) == pytest.approx(published, abs=0.5e6)


def test_local_and_lsh_layers_alternate() -> None:
    model = headwise.build("reformer-enwik8", device="meta")
    hashed = [isinstance(layer.parts[0], LSHAttention) for layer in model.decoder.stack.layers]
    assert hashed == 3 * [False, False, True, False]
