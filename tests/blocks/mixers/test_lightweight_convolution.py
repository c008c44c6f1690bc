"""Lightweight and dynamic convolution against loops over windows, and the parameter counts of Narang et al. 2021."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.mixers.lightweight_convolution import DynamicConvolution, LightweightConvolution
from headwise.blocks.part import BuildContext
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context, Stream
from headwise.blocks.tables import PARTS

CONTEXT = BuildContext(width=8, heads=2, hidden=8)
SETTINGS: tuple[dict[str, Any], ...] = ({}, {"per_channel": True, "pointwise": True}, {"heads": 4})


def convolve_by_loops(part: LightweightConvolution, x: Tensor, real: int) -> Tensor:
    """The equations of one row, (T, C), of which the first `real` tokens are no padding: a loop over tokens, channels
    and taps."""
    values, gates = part.inner(x).chunk(2, dim=-1)
    u = values * torch.sigmoid(gates)
    length, width = x.shape
    first = part.kernel - 1 if part.causal else (part.kernel - 1) // 2
    mixed = torch.zeros_like(u)
    for t in range(length):
        for channel in range(width):
            head = channel // (width // part.heads)
            if isinstance(part, DynamicConvolution):
                rows = slice(head * part.kernel, (head + 1) * part.kernel)
                logits = part.weight_linear.weight[rows] @ u[t]
            else:
                logits = part.weight[head]
            taps = logits.exp() / logits.exp().sum()
            for k in range(part.kernel):
                if 0 <= t + k - first < real:
                    mixed[t, channel] = mixed[t, channel] + taps[k] * u[t + k - first, channel]
    return part.out(part.pointwise(mixed))


@pytest.mark.parametrize("kind", ["lightweight_conv", "dynamic_conv"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(("kernel", "causal"), [(5, False), (5, True), (4, True)])
@torch.no_grad()
def test_outputs_equal_a_loop_over_windows(kind: str, settings: dict[str, Any], kernel: int, causal: bool) -> None:
    torch.manual_seed(0)
    build_ctx = BuildContext(width=8, heads=2, hidden=8, causal=causal)
    part: Any = PARTS.parse({"kind": kind, "kernel": kernel, **settings}).build(build_ctx).double()
    for parameter in part.parameters():
        parameter.normal_()
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    lengths = torch.tensor([7, 5])
    keep = torch.arange(7) < lengths.unsqueeze(1)
    outputs = part(Stream.of(x, keep), Context())
    for row, length in enumerate(lengths):
        expected = convolve_by_loops(part, x[row], int(length))[:length]
        torch.testing.assert_close(outputs[row, :length], expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_a_packed_document_is_convolved_as_it_is_alone() -> None:
    part: Any = PARTS.parse({"kind": "dynamic_conv", "kernel": 5}).build(CONTEXT).double()
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    segment = torch.tensor([[1, 1, 1, 1, 2, 2, 3, 3, 3]])
    packed = part(Stream(x, torch.arange(9), segment=segment), Context())
    for document in (slice(0, 4), slice(4, 6), slice(6, 9)):
        torch.testing.assert_close(packed[:, document], part(x[:, document]))


def test_taps_are_dropped_in_training_alone() -> None:
    part: Any = PARTS.parse({"kind": "lightweight_conv", "kernel": 3, "weight_dropout": 0.5}).build(CONTEXT)
    x = torch.randn(1, 6, 8)
    plain = part.eval()(x)
    assert torch.equal(part(x), plain)
    assert any(not torch.allclose(part.train()(x), plain) for _ in range(8))


@pytest.mark.parametrize("kind", ["lightweight_conv", "dynamic_conv"])
def test_an_even_kernel_is_refused_in_an_encoder(kind: str) -> None:
    with pytest.raises(UserError, match=f"{kind}: a kernel of 4 tokens has no centre in an encoder; use an odd number"):
        PARTS.parse({"kind": kind, "kernel": 4}).build(CONTEXT)


def test_kernels_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(UserError, match="heads: a width of 8 cannot be divided among 3 kernels"):
        PARTS.parse({"kind": "dynamic_conv", "heads": 3}).build(CONTEXT)


def test_parameter_counts_in_t5_are_those_of_narang_et_al() -> None:
    """Matrices alone: 255.89M and 223.02M; the baseline's norms are counted apart."""
    form = {"kernel": 9, "per_channel": True, "pointwise": True}
    for kind, hidden, expected in (("dynamic_conv", 512, 255_885_312), ("lightweight_conv", 3072, 223_021_056)):
        model = headwise.build("t5-base", device="meta", mixer={"kind": kind, **form}, hidden=hidden)
        norms = sum(parameter.numel() for name, parameter in model.named_parameters() if parameter.dim() == 1)
        assert count_parameters(model) - norms == expected


def test_flops_are_counted() -> None:
    from headwise.models.cost import count_cost

    costs = [
        count_cost(headwise.build("t5-tiny", device="meta", mixer=kind)).flops_per_token
        for kind in ("attention", "dynamic_conv", "lightweight_conv")
    ]
    assert min(costs) == costs[2] > 0
