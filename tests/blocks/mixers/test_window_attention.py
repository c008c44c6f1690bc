"""Window attention: masks, cost, relative position bias; patch merging."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import headwise
from headwise import UserError
from headwise.blocks.attention.score_mods import AttentionLayout
from headwise.blocks.attention.scores import BoundedCosine
from headwise.blocks.grid import NetworkPositionBias, PatchMerging, TablePositionBias, WindowPartition
from headwise.blocks.mixers.window_attention import WindowAttention
from headwise.blocks.stream import Context, Stream

WIDTH, HEADS = 4, 2
close = torch.testing.assert_close


def make_stream(rows: int, columns: int, width: int = WIDTH, **settings: Any) -> Stream:
    x = torch.randn(2, rows * columns, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return replace(Stream.of(x), grid=(rows, columns), **settings)


def build_attention(window: int, shift: int = 0, **settings: Any) -> WindowAttention:
    torch.manual_seed(0)
    table = TablePositionBias(HEADS, window)
    nn.init.normal_(table.table)
    return WindowAttention(WIDTH, HEADS, window=window, shift=shift, score_mods=[table], **settings).double()


def test_the_grid_of_the_paper_has_64_windows_of_which_15_are_masked() -> None:
    plain, shifted = WindowPartition.of((56, 56), 7, 0), WindowPartition.of((56, 56), 7, 3)
    assert len(plain.compute_order()) == len(shifted.compute_order()) == 64
    assert plain.compute_regions(plain.compute_order()) is None
    regions = shifted.compute_regions(shifted.compute_order())
    assert regions is not None
    assert (regions.amin(1) != regions.amax(1)).sum() == 15


@pytest.mark.parametrize(
    ("grid", "window", "shift"), [((4, 6), 2, 0), ((6, 6), 3, 1), ((4, 8), 4, 2), ((3, 3), 5, 2)], ids=str
)
@torch.no_grad()
def test_a_rolled_grid_masks_tokens_that_were_no_neighbours(grid: tuple[int, int], window: int, shift: int) -> None:
    """No token attends across the border; the bias depends on the offset."""
    part, inputs = build_attention(window, shift), make_stream(*grid)
    places = torch.tensor(list(product(*map(range, grid))))
    moved, side = (0, min(grid)) if min(grid) <= window else (shift, window)
    window_of = (places - moved).div(side, rounding_mode="floor")
    visible = (window_of[:, None] == window_of[None]).all(-1)
    offset = places[:, None] - places[None] + window - 1
    rows = (offset[..., 0] * (2 * window - 1) + offset[..., 1]).where(visible, 0)
    table = part.score_mods[0].get_parameter("table")
    q, k, v = part.qkv.split(part.qkv.project(inputs.x))
    scores = q @ k.mT * (WIDTH / HEADS) ** -0.5 + table[rows].movedim(-1, 0)
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    close(part(inputs), part.out((weights @ v).transpose(1, 2).flatten(2)))


@torch.no_grad()
def test_without_clamp_a_smaller_grid_is_padded_and_shifted() -> None:
    part, inputs = build_attention(4, 2, clamp=False), make_stream(3, 7)
    assert part.partition((3, 7)) == WindowPartition((3, 7), (4, 4), (2, 2))
    cells = nn.functional.pad(inputs.x.unflatten(1, (3, 7)), (0, 0, 0, 1, 0, 1)).flatten(1, 2)
    whole = part(replace(Stream.of(cells), grid=(4, 8))).unflatten(1, (4, 8))
    close(part(inputs), whole[:, :3, :7].flatten(1, 2))


@torch.no_grad()
def test_padding_is_zeros_below_and_to_the_right() -> None:
    part, inputs = build_attention(4, 2), make_stream(6, 7)
    cells = nn.functional.pad(inputs.x.unflatten(1, (6, 7)), (0, 0, 0, 1, 0, 2)).flatten(1, 2)
    whole = part(replace(Stream.of(cells), grid=(8, 8))).unflatten(1, (8, 8))
    close(part(inputs), whole[:, :6, :7].flatten(1, 2))


def test_gradients_pass_gradcheck() -> None:
    part, inputs = build_attention(2, 1), make_stream(3, 4)
    x = inputs.x[:1].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: part(inputs.with_x(x)), x)


@torch.no_grad()
def test_layers_with_the_same_windows_share_their_mask() -> None:
    ctx, inputs = Context(), make_stream(6, 6)
    for _ in range(2):
        build_attention(3, 1)(inputs, ctx)
    assert sum("additive mask" in key[0] for key in ctx.shared) == 1


@pytest.mark.parametrize("pixels", [8, 16, 32])
def test_the_cost_is_linear_in_the_pixels(pixels: int) -> None:
    """Section 3.2, equation 2: 4hwC^2 + 2M^2hwC products."""
    window, area = 4, pixels**2
    part = build_attention(window, 2, kernel="plain").to("meta")
    inputs = replace(Stream.of(torch.zeros(1, area, WIDTH, dtype=torch.float64, device="meta")), grid=(pixels, pixels))
    with FlopCounterMode(display=False) as counter:
        part(inputs)
    assert counter.get_total_flops() == 2 * (4 * area * WIDTH**2 + 2 * window**2 * area * WIDTH)


def test_it_needs_a_grid_without_class_tokens() -> None:
    part = build_attention(2)
    with pytest.raises(UserError, match="grid"):
        part(torch.zeros(1, 4, WIDTH, dtype=torch.float64))
    with pytest.raises(UserError, match="class_tokens = 0"):
        part(replace(make_stream(1, 5), grid=(2, 2)))


def test_window_attention_in_a_vision_transformer() -> None:
    windows = {"kind": "windows", "window": 2, "shift": 1}
    model = headwise.build("vit-tiny", outputs=3, class_tokens=0, mixer=windows)
    model(torch.randn(2, 1, 16, 16)).sum().backward()
    assert model.encoder.stack.layers[0].parts[0].score_mods[0].table.grad.any()
    with pytest.raises(UserError, match="class_tokens"):
        headwise.build("vit-tiny", outputs=3, mixer=windows)(torch.randn(2, 1, 16, 16))
    with pytest.raises(UserError, match="shift"):
        headwise.build("vit-tiny", mixer={**windows, "shift": 2})
    with pytest.raises(UserError, match="future"):
        headwise.build("gpt-tiny", vocab=9, mixer=windows)


def compute_biases(mod: NetworkPositionBias, side: int) -> Tensor:
    """From one corner of a window to all its tokens, (H, side, side)."""
    places = (torch.arange(side)[:, None] * mod.window + torch.arange(side)).flatten()
    return mod.bias(AttentionLayout(side**2, side**2, places, places))[:, 0].unflatten(-1, (side, side))


@torch.no_grad()
def test_the_network_bias_extends_to_larger_windows() -> None:
    torch.manual_seed(0)
    small, large = NetworkPositionBias(HEADS, 4), NetworkPositionBias(HEADS, 12, reach=4)
    nn.init.normal_(small.outer.weight)
    large.load_state_dict(small.state_dict())
    close(compute_biases(large, 12)[:, :4, :4], compute_biases(small, 4))
    values = compute_biases(large, 12)
    assert values.min() > 0 and values.max() < 16 and values.flatten(1).unique(dim=1).shape[1] == 144
    wide = NetworkPositionBias(HEADS, 12)  # offsets in units of its own window: the same at the corners
    wide.load_state_dict(small.state_dict())
    close(compute_biases(wide, 12)[:, -1, -1], compute_biases(small, 4)[:, -1, -1])


@torch.no_grad()
def test_cosine_scores_are_bounded() -> None:
    score = BoundedCosine(HEADS).double()
    q, k = torch.randn(2, 3, HEADS, 5, 4, dtype=torch.float64).unbind(0)
    cosine = nn.functional.cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), dim=-1)
    close(score(1000 * q, k), 10 * cosine)
    score.log_factor.fill_(50.0)
    close(score(q, k), 100 * cosine)


@torch.no_grad()
def test_patch_merging_concatenates_four_neighbours() -> None:
    inputs = make_stream(3, 4, width=1)
    merged = PatchMerging(nn.Identity())(inputs, Context())
    grid = inputs.x[0, :, 0].view(3, 4)
    assert merged.grid == (2, 2) and merged.x.shape == (2, 4, 4)
    close(merged.x[0, 1], torch.stack((grid[0, 2], grid[1, 2], grid[0, 3], grid[1, 3])))  # column by column
    close(merged.x[0, 2], torch.stack((grid[2, 0], grid[2, 0] * 0, grid[2, 1], grid[2, 1] * 0)))
