"""Axial position embedding, and the chunked feed-forward network."""

from __future__ import annotations

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.positions.absolute import AxialPositions
from headwise.blocks.stack import count_parameters

close = torch.testing.assert_close


def test_an_axial_position_is_its_row_and_its_column() -> None:
    part = AxialPositions((3, 4), (2, 6))
    added = part(torch.zeros(1, 12, 8), torch.arange(12), 0)[0]
    for place in range(12):
        close(added[place], torch.cat((part.rows[place // 4], part.columns[place % 4])))
    assert len(added.unique(dim=0)) == 12 and count_parameters(part) == 3 * 2 + 4 * 6


def test_axial_positions_one_by_one_or_by_row_equal_those_at_once() -> None:
    part, x, pos = AxialPositions((3, 4), (2, 6)), torch.randn(2, 12, 8), torch.arange(12)
    whole = part(x, pos, 0)
    for start in range(12):
        close(part(x[:, start : start + 1], pos[start : start + 1], start), whole[:, start : start + 1])
    close(part(x, pos.expand(2, 12), -1), whole)


def test_positions_after_an_axial_grid_are_refused_and_limit_generation() -> None:
    part = AxialPositions((3, 4), (2, 6))
    with pytest.raises(
        UserError, match=r"13 tokens does not fit the learned table of 12; shorten it, or .* higher positions\.shape"
    ):
        part(torch.zeros(1, 13, 8), torch.arange(13), 0)
    model = headwise.build("gpt-tiny", vocab=12, positions={"kind": "axial", "shape": (3, 4)})
    assert model.max_length == 12


def test_axial_widths_must_add_up_to_the_width() -> None:
    with pytest.raises(UserError, match=r"positions\.widths: 8 and 8 do not add up to the width of 32"):
        headwise.build("gpt-tiny", vocab=12, positions={"kind": "axial", "widths": (8, 8)})


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_a_chunked_feed_forward_has_the_same_outputs_and_gradients(activation: str) -> None:
    torch.manual_seed(0)
    whole, x = FeedForward(8, 12, activation).double(), torch.randn(2, 7, 8, dtype=torch.float64)
    parts = FeedForward(8, 12, activation, chunk=3).double()
    parts.load_state_dict(whole.state_dict())
    for network in (whole, parts):
        network(x).square().sum().backward()
    close(parts(x), whole(x))
    for found, expected in zip(parts.parameters(), whole.parameters(), strict=True):
        close(found.grad, expected.grad)


def test_a_chunked_feed_forward_stores_no_hidden_channels() -> None:
    """What a pass keeps for the gradient: inputs and outputs, not the hidden channels, which are many more."""

    def count_stored(chunk: int) -> int:
        sizes = []
        network = FeedForward(8, 512, "gelu", chunk=chunk)
        own = {weight.data_ptr() for weight in network.parameters()}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(0 if tensor.data_ptr() in own else tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            network(torch.randn(1, 64, 8, requires_grad=True))
        return sum(sizes)

    assert count_stored(16) < count_stored(0) / 10


def test_recomputation_uses_the_same_dropout() -> None:
    """Dropout inside a chunk: the gradient is that of the outputs that were given."""
    torch.manual_seed(0)
    network, x = FeedForward(8, 64, "identity", bias=False, dropout=0.5, chunk=2).double(), torch.ones(1, 6, 8).double()
    out = network(x.requires_grad_())
    out.sum().backward()
    close((x.grad * x).sum(), out.sum().detach())  # linear: the slope along x is the value
