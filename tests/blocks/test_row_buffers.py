"""Buffers with slots: rows join and leave, and no other row is copied."""

import torch

from headwise.blocks.row_buffers import GrowingBuffer, PaddedRows, RowMoves


def test_rows_end_in_the_last_column_and_joining_copies_the_new_ones_alone() -> None:
    buffer, first, later = GrowingBuffer(2), torch.randn(2, 3, 4, 5), torch.randn(1, 3, 2, 5)
    buffer.join((first,), 4, capacity=8)
    buffer.join((later,), 2, capacity=8)
    place, before = buffer.buffers[0].data_ptr(), buffer.read()[0].clone()
    assert buffer.total == 4
    assert torch.equal(before[:2], first) and torch.equal(before[2:, :, 2:], later) and not before[2:, :, :2].any()
    buffer.join((later + 1,), 2, capacity=8)
    assert buffer.buffers[0].data_ptr() == place and torch.equal(buffer.read()[0][:3], before)
    (grown,) = buffer.extend((torch.ones(4, 3, 1, 5),), capacity=8)
    assert grown.shape == (4, 3, 5, 5) and bool((grown[:, :, -1] == 1).all()) and buffer.total == 5


def test_a_longer_row_makes_room_on_the_left() -> None:
    buffer, short, long = GrowingBuffer(1), torch.randn(1, 2, 3), torch.randn(1, 50, 3)
    buffer.join((short,), 2, capacity=4)
    buffer.join((long,), 50, capacity=4)
    (tensor,) = buffer.read()
    assert torch.equal(tensor[0, 48:], short[0]) and torch.equal(tensor[1], long[0]) and tensor.isfinite().all()
    buffer.move(RowMoves.from_order(torch.tensor([0])))
    buffer.forget(2)
    assert torch.equal(buffer.read()[0], short) and buffer.total == 2


def test_the_last_row_moves_into_a_gap_and_rows_may_be_repeated() -> None:
    buffer = GrowingBuffer(1)
    buffer.join((torch.arange(4.0).view(4, 1),), 1, capacity=4)
    moves = RowMoves.from_order(torch.tensor([0, 3, 2]))
    assert moves.to.tolist() == [1]
    buffer.move(moves)
    assert buffer.read()[0].flatten().tolist() == [0, 3, 2]
    buffer.move(RowMoves.from_order(torch.tensor([1, 1, 0, 2, 2, 0])))
    assert buffer.read()[0].flatten().tolist() == [3, 3, 0, 2, 2, 0]


def test_sources_are_padded_at_their_end_with_zeros_whatever_was_there() -> None:
    rows = PaddedRows(1, torch.ones(2, 3))
    rows.join((torch.full((1, 5), 2.0),))
    assert rows.read()[0].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [2, 2, 2, 2, 2]]
    rows.move(RowMoves.from_order(torch.tensor([2])))
    rows.move(RowMoves.from_order(torch.tensor([0])))
    rows.narrow(2)
    rows.join((torch.full((1, 4), 3.0),))
    assert rows.read()[0].tolist() == [[2, 2, 0, 0], [3, 3, 3, 3]]
