"""Fourier mixing: its matrix product, padding, gradients and map."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.mixers.fourier import FourierMixing, Symmetric, group_by_length, transform_2d, transform_by_length
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context, Stream

KEEP = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [False] * 5, [True] * 3 + [False] * 2])


def dft_matrix(n: int) -> Tensor:
    """F_n[j, k] = exp(-2 pi i j k / n)."""
    places = torch.arange(n, dtype=torch.float64)
    return torch.polar(torch.ones(n, n, dtype=torch.float64), -2 * math.pi / n * places.outer(places))


@pytest.mark.parametrize("length", [1, 2, 7, 8])
@pytest.mark.parametrize("width", [1, 2, 9, 16])
def test_it_is_the_real_part_of_a_product_with_both_matrices(length: int, width: int) -> None:
    x = torch.randn(3, length, width, dtype=torch.float64)
    expected = (dft_matrix(length) @ x.to(torch.complex128) @ dft_matrix(width)).real
    torch.testing.assert_close(FourierMixing()(x), expected)


def test_it_has_no_parameters_and_saves_nothing() -> None:
    saved: list[Tensor] = []
    x = torch.randn(2, 5, 4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        FourierMixing()(x)
    assert count_parameters(FourierMixing()) == 0 and not saved


def test_every_text_is_transformed_over_its_own_length() -> None:
    x, part = torch.randn(4, 5, 6, dtype=torch.float64), FourierMixing()
    outputs = part(Stream.of(x, KEEP))
    for row, length in enumerate(KEEP.sum(1).tolist()):
        if length:
            torch.testing.assert_close(outputs[row, :length], part(x[row : row + 1, :length])[0])
        assert not outputs[row, length:].any()


def test_gradients_with_and_without_padding() -> None:
    x = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)
    for function in (transform_2d, partial(transform_by_length, groups=group_by_length(KEEP))):
        assert torch.autograd.gradcheck(lambda x, function=function: Symmetric.apply(x, function), x)
        assert torch.autograd.gradgradcheck(lambda x, function=function: Symmetric.apply(x, function), x)


def test_layers_of_a_call_group_rows_once() -> None:
    ctx, stream = Context(), Stream.of(torch.randn(4, 5, 6), KEEP)
    FourierMixing()(stream, ctx.at(0))
    (groups, _) = next(iter(ctx.shared.values()))
    assert [(rows.tolist(), length) for rows, length in groups] == [([1, 3], 3), ([0], 5)]
    FourierMixing()(stream, ctx.at(1))
    assert len(ctx.shared) == 1


def test_its_map_is_a_signed_cosine() -> None:
    with headwise.record() as maps:
        FourierMixing()(Stream.of(torch.randn(4, 5, 6), KEEP))
    (weights,) = maps.select().values()
    assert weights.shape == (4, 1, 5, 5) and not maps.exact
    torch.testing.assert_close(weights[0, 0].double(), dft_matrix(5).real, atol=1e-6, rtol=0)
    torch.testing.assert_close(weights[1, 0, :3, :3].double(), dft_matrix(3).real, atol=1e-6, rtol=0)
    assert not weights[1, 0, 3:].any() and not weights[1, 0, :, 3:].any() and not weights[2].any()


def test_bfloat16_and_the_meta_device() -> None:
    x = torch.randn(2, 8, 6)
    half = FourierMixing()(x.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), FourierMixing()(x), atol=0.2, rtol=0.05)
    model = headwise.build("fnet-tiny", vocab=12, device="meta")
    assert model(torch.zeros(2, 6, dtype=torch.long, device="meta")).shape == (2, 6, 12)


def test_a_decoder_refuses_it() -> None:
    with pytest.raises(UserError, match="fourier: would see the future in a decoder; use it in an encoder"):
        headwise.build("gpt2-tiny", vocab=12, mixer="fourier")
