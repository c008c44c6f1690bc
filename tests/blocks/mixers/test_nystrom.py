"""Nystrom attention: landmarks of real tokens, the iterative pseudo-inverse, padding, and where it is softmax
attention."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.blocks.mixers.nystrom import NystromAttention, NystromConfig, average_segments, invert
from headwise.blocks.part import BuildContext
from headwise.blocks.record import record
from headwise.blocks.stream import Stream
from headwise.config.base import validate
from headwise.errors import UserError
from headwise.testing import assert_parity


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build_mixer(**settings: Any) -> NystromAttention:
    torch.manual_seed(0)
    return NystromAttention(12, 3, **settings).double().eval()


def attend(part: NystromAttention, x: Tensor) -> Tensor:
    """Softmax attention with the projections of a mixer, then its convolution, written out."""
    q, k, v = (part.qkv.project(x).view(*x.shape[:2], 3, 3, 4)[:, :, i].transpose(1, 2) for i in range(3))
    mixed = (q @ k.mT / 2).softmax(-1) @ v
    if part.conv is not None:
        weight = part.conv.weight[:, 0, :, 0]  # (H, kernel)
        reach = weight.shape[1] // 2
        padded = torch.nn.functional.pad(v, (0, 0, reach, reach))
        for shift in range(weight.shape[1]):
            mixed = mixed + weight[:, shift, None, None] * padded[:, :, shift : shift + x.shape[1]]
    return part.out(mixed.transpose(1, 2).flatten(2))


@torch.no_grad()
def test_an_exact_pseudo_inverse_gives_softmax_attention() -> None:
    """Where each token is its own landmark the three factors are S, its pseudo-inverse and S."""
    part, x = build_mixer(landmarks=6, kernel=3, iterations=40), draw(2, 6, 12)
    q, k, v = (x.transpose(1, 2) for x in part.qkv.project(x).view(2, 6, 3, 3, 4).unbind(2))
    assert_parity(part.approximate(q / 2, k, v, None), (q @ k.mT / 2).softmax(-1) @ v, 1e-7)
    assert_parity(part(x), attend(part, x), 1e-12)  # and such a text is computed without the detour


@torch.no_grad()
def test_without_landmarks_it_is_softmax_attention_and_the_convolution_at_every_length() -> None:
    part = build_mixer(landmarks=0, kernel=5)
    for length in (1, 3, 19):
        assert_parity(part(draw(2, length, 12)), attend(part, draw(2, length, 12)), 1e-12)


@torch.no_grad()
def test_the_approximation_is_written_out_with_the_pseudo_inverse_of_lapack() -> None:
    part, x = build_mixer(landmarks=4, kernel=0, iterations=60), draw(2, 12, 12)
    q, k, v = (x.transpose(1, 2) for x in part.qkv.project(x).view(2, 12, 3, 3, 4).unbind(2))
    mean_q, mean_k = (x.view(2, 3, 4, 3, 4).mean(3) for x in (q, k))
    first, middle, last = ((a @ b.mT / 2).softmax(-1) for a, b in ((q, mean_k), (mean_q, mean_k), (mean_q, k)))
    expected = first @ torch.linalg.pinv(middle) @ last @ v
    assert_parity(part(x), part.out(expected.transpose(1, 2).flatten(2)), 1e-6)


@pytest.mark.parametrize("init", ["matrix", "batch"])
def test_iterations_converge_to_the_pseudo_inverse(init: Any) -> None:
    matrices = (torch.tensor([2.0, 3.0]).view(2, 1, 1, 1) * draw(2, 3, 8, 8)).softmax(-1)
    errors = [(invert(matrices, count, init) - torch.linalg.pinv(matrices)).abs().max() for count in (6, 12, 40)]
    assert errors[0] > errors[1] > errors[2] and errors[2] < 1e-6
    alone = torch.allclose(invert(matrices[:1], 6, init), invert(matrices, 6, init)[:1], rtol=1e-9)
    assert alone == (init == "matrix")  # each matrix starts from its own norm, or all from the largest


@torch.no_grad()
def test_landmarks_are_means_of_segments_of_the_real_tokens() -> None:
    x = draw(2, 1, 11, 3)
    keep = torch.arange(11) < torch.tensor([[11], [7]])
    means = average_segments(x, 3, keep)
    for row, borders in enumerate(((0, 4, 8, 11), (0, 3, 5, 7))):
        segments = [x[row, :, start:end].mean(1) for start, end in pairwise(borders)]
        assert_parity(means[row], torch.stack(segments, 1), 1e-12)
    assert_parity(average_segments(x, 3, None)[0], means[0], 1e-12)
    assert_parity(average_segments(x[:, :, :9], 3, None), x[:, :, :9].view(2, 1, 3, 3, 3).mean(3), 1e-12)


@torch.no_grad()
def test_short_and_long_texts_of_a_batch_have_the_outputs_they_have_alone() -> None:
    """At most as many tokens as landmarks: softmax attention; more: the approximation."""
    part, x = build_mixer(landmarks=4, kernel=3), draw(4, 13, 12)
    lengths = torch.tensor([13, 3, 4, 6])
    together = part(Stream.of(x, torch.arange(13) < lengths.unsqueeze(1)))
    for row, length in enumerate(lengths.tolist()):
        alone = part(x[row : row + 1, :length])
        assert_parity(together[row : row + 1, :length], alone, 1e-10)
        exact = attend(part, x[row : row + 1, :length])
        assert torch.allclose(alone, exact) == (length <= 4)


@torch.no_grad()
def test_its_map_gives_its_outputs() -> None:
    part, x = build_mixer(landmarks=3, kernel=3), draw(1, 8, 12)
    with record() as seen:
        out = part(x)
    v = part.qkv.project(x).view(1, 8, 3, 3, 4)[:, :, 2].transpose(1, 2)
    assert_parity(part.out((seen.select()[()] @ v).transpose(1, 2).flatten(2)), out, 1e-10)


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(UserError, match="nystromformer: would see the future in a decoder"):
        NystromConfig().build(BuildContext(8, 2, 8, causal=True))
    with pytest.raises(UserError, match="a kernel of 4 tokens has no middle; use an odd number"):
        validate(NystromConfig, {"kernel": 4})


def test_short_texts_are_found_without_reading_values() -> None:
    """The meta device has none."""
    part, x = build_mixer(landmarks=4).to("meta"), torch.zeros(2, 3, 9, 4, dtype=torch.float64, device="meta")
    keep = torch.ones(2, 9, dtype=torch.bool, device="meta")
    assert part.attend(x, x, x, keep).shape == x.shape
