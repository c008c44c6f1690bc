"""Register tokens of image models (Darcet et al. 2024)."""

from __future__ import annotations

import torch

import headwise
from headwise.blocks.images import ImageStem, PatchEmbedding
from headwise.blocks.positions.grid import LearnedGridPositions, interpolate_positions


def test_registers_are_between_class_tokens_and_patches_without_positions() -> None:
    torch.manual_seed(0)
    positions = LearnedGridPositions(6, (2, 3), class_tokens=1)
    stem, plain = (ImageStem(PatchEmbedding(1, 6, 4), 6, 1, positions, registers=count) for count in (2, 0))
    plain.patches = stem.patches
    assert stem.registers is not None
    torch.nn.init.normal_(stem.registers)
    images = torch.randn(2, 1, 8, 12)
    stream, without = stem(images), plain(images)
    expected = torch.cat((without.x[:, :1], stem.registers.expand(2, -1, -1), without.x[:, 1:]), dim=1)
    assert torch.equal(stream.x, expected) and torch.equal(stream.pos, torch.arange(9)) and stream.grid == (2, 3)


def test_registers_of_a_vision_transformer_begin_apart_and_are_trained() -> None:
    """Equal ones would stay equal, as nothing distinguishes them."""
    model = headwise.build("vit-tiny", registers=3, outputs=5)
    registers = model.encoder.stem.registers
    assert len({tuple(row.tolist()) for row in registers}) == 3
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 5)
    model(torch.randn(2, 1, 16, 16)).sum().backward()
    assert registers.grad is not None and registers.grad.abs().amax(1).min() > 0


def test_an_antialiased_interpolation_is_smoother() -> None:
    """A smaller grid: with antialiasing each vector is a mean over all those that it replaces."""
    table = torch.eye(36)
    plain, smooth = (interpolate_positions(table, 0, (6, 6), (2, 2), antialias) for antialias in (False, True))
    assert (smooth.abs() > 1e-6).sum() > (plain.abs() > 1e-6).sum()
    assert torch.allclose(smooth.sum(1), torch.ones(4), atol=1e-5)
