"""Outlook attention: its algorithm written as loops, its map, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.attention.score_mods import ApproximateMap
from headwise.blocks.mixers.outlook import OutlookAttention
from headwise.blocks.stream import Context, Recorder, Stream


def make_stream(rows: int, columns: int, width: int = 6, images: int = 2) -> Stream:
    x = torch.randn(images, rows * columns, width, dtype=torch.float64)
    return Stream(x, torch.arange(rows * columns), grid=(rows, columns))


def run_algorithm(part: OutlookAttention, stream: Stream) -> Tensor:
    """Algorithm 1, one window, head, token and neighbour at a time."""
    assert stream.grid is not None
    (rows, columns), heads, side = stream.grid, part.heads, part.window
    around = range(-(side // 2), side // 2 + 1)
    offsets = [(down, right) for down in around for right in around]
    x = stream.x.unflatten(1, stream.grid)
    values = part.value(x).unflatten(-1, (heads, -1))
    out = torch.zeros_like(values)
    for row in range(0, rows, part.stride):
        for column in range(0, columns, part.stride):
            centre = x[:, row : row + part.stride, column : column + part.stride].mean((1, 2))
            scores = part.weigh(centre).view(-1, heads, side**2, side**2) / part.head_width**0.5
            for number, (down, right) in enumerate(offsets):
                if not (0 <= row + down < rows and 0 <= column + right < columns):
                    continue
                weights = scores[:, :, number].softmax(-1)
                for neighbour, (lower, further) in enumerate(offsets):
                    if 0 <= row + lower < rows and 0 <= column + further < columns:
                        share = weights[:, :, neighbour, None] * values[:, row + lower, column + further]
                        out[:, row + down, column + right] += share
    return part.out(out.flatten(3).flatten(1, 2))


@pytest.mark.parametrize(("grid", "window", "stride"), [((4, 4), 3, 2), ((5, 3), 3, 2), ((3, 4), 3, 1), ((6, 5), 5, 3)])
@torch.no_grad()
def test_it_is_its_algorithm_token_by_token(grid: tuple[int, int], window: int, stride: int) -> None:
    torch.manual_seed(0)
    part = OutlookAttention(6, 2, window=window, stride=stride).double()
    stream = make_stream(*grid)
    torch.testing.assert_close(part(stream), run_algorithm(part, stream))


@torch.no_grad()
def test_the_recorded_map_gives_the_outputs() -> None:
    class MapRecorder(Recorder):
        def observe(self, place: object, inputs: ApproximateMap) -> None:  # type: ignore[override]
            self.weights = inputs.weights()

    part, stream, recorder = OutlookAttention(6, 2).double(), make_stream(5, 4), MapRecorder()
    out = part(stream, Context(record=recorder))
    values = part.value(stream.x).unflatten(-1, (2, 3)).transpose(1, 2)  # (B, T, HD) -> (B, H, T, D)
    torch.testing.assert_close(part.out((recorder.weights @ values).transpose(1, 2).flatten(2)), out)


def test_gradients_pass_gradcheck() -> None:
    part, stream = OutlookAttention(4, 2).double(), make_stream(3, 3, width=4, images=1)
    assert torch.autograd.gradcheck(lambda x: part(stream.with_x(x)), stream.x.requires_grad_())


def test_a_vision_transformer_has_it_without_class_tokens() -> None:
    model = headwise.build("vit-tiny", outputs=3, class_tokens=0, mixer={"kind": "outlook", "heads": 2})
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 3)
    with pytest.raises(UserError, match=r"outlook attention has no class tokens; use class_tokens = 0"):
        headwise.build("vit-tiny", outputs=3, mixer="outlook")(torch.randn(1, 1, 16, 16))


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="no grid"):
        OutlookAttention(4, 2)(torch.randn(1, 9, 4))
    with pytest.raises(UserError, match="odd side of at least the stride of 2, not 4"):
        OutlookAttention(4, 2, window=4)
    with pytest.raises(UserError, match="cannot be divided among 3 heads"):
        OutlookAttention(4, 3)
    with pytest.raises(UserError, match="outlook: would see the future in a decoder"):
        headwise.build("gpt2-tiny", vocab=12, mixer="outlook")
