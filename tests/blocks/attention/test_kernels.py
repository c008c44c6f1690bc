"""Attention kernels against the plain one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headwise.blocks.attention.kernels import KERNELS, chunked, compute_weights, get_kernel, plain, sdpa
from headwise.blocks.attention.multihead import Attention
from headwise.blocks.attention.score_mods import (
    AttentionInputs,
    AttentionLayout,
    Causal,
    Padding,
    ScoreMod,
    Segments,
    SoftCap,
    Window,
)
from headwise.blocks.cache import DecodingCache
from headwise.blocks.positions.alibi import Alibi
from headwise.blocks.positions.grid_bias import GridBias
from headwise.blocks.positions.relative import ShawRelative, T5Bias
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError
from headwise.testing import assert_causal

ROWS, HEADS, HEAD_WIDTH = 2, 2, 4
SCORE_MODS: dict[str, Callable[[], ScoreMod]] = {
    "causal": Causal,
    "window": lambda: Window(2, 1),
    "alibi": lambda: Alibi(HEADS),
    "t5": lambda: T5Bias(HEADS, buckets=8, max_distance=16),
    "softcap": lambda: SoftCap(0.5),
    "grid_bias": lambda: GridBias(HEADS, 6, 9),
    "shaw": lambda: ShawRelative(HEAD_WIDTH, max_distance=3),
}


@st.composite
def draw_inputs(draw: st.DrawFn, score_mods: list[str]) -> AttentionInputs:
    """Queries that stand at the end of the keys, as in decoding, with random masks and score mods, in float64."""
    queries, before = draw(st.integers(1, 9)), draw(st.integers(0, 40))
    chosen = [SCORE_MODS[name]() for name in score_mods if draw(st.booleans())]
    torch.manual_seed(draw(st.integers(0, 2**16)))
    keys = queries + before
    q, k, v = (
        torch.randn(ROWS, HEADS, n, HEAD_WIDTH, dtype=torch.float64, requires_grad=True) for n in (queries, keys, keys)
    )
    pos = torch.arange(keys)
    segment = torch.randint(0, 2, (ROWS, keys)).cumsum(1) if draw(st.booleans()) else None
    layout = AttentionLayout(
        queries,
        keys,
        pos[before:],
        pos,
        torch.rand(ROWS, keys) < 0.7 if draw(st.booleans()) else None,
        None if segment is None else segment[:, before:],
        segment,
    )
    return AttentionInputs(q, k, v, 0.5, layout, (*(mod.double() for mod in chosen), Padding(), Segments()))


def run_with_gradients(kernel: Callable[[AttentionInputs], Tensor], inputs: AttentionInputs) -> list[Tensor]:
    """Output and gradients in queries, keys, values and the score mods' own parameters."""
    out = kernel(replace(inputs, shared={}))
    leaves = [inputs.q, inputs.k, inputs.v, *(p for mod in inputs.score_mods for p in mod.parameters())]
    return [out, *torch.autograd.grad(out.sin().sum(), leaves)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(draw_inputs(["causal", "window", "alibi", "t5"]))
def test_the_fused_kernel_equals_the_plain_one(inputs: AttentionInputs) -> None:
    torch.testing.assert_close(run_with_gradients(sdpa, inputs), run_with_gradients(plain, inputs))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(draw_inputs([*SCORE_MODS]), st.integers(1, 5))
def test_the_chunked_kernel_equals_the_plain_one(inputs: AttentionInputs, rows: int) -> None:
    whole = run_with_gradients(plain, inputs)
    torch.testing.assert_close(run_with_gradients(lambda inputs: chunked(inputs, rows), inputs), whole)
    torch.testing.assert_close(run_with_gradients(KERNELS["auto"], inputs), whole)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(draw_inputs([*SCORE_MODS]))
def test_weights_are_a_distribution_over_unmasked_keys(inputs: AttentionInputs) -> None:
    """Every output lies in the convex hull of the values, so between their smallest and largest."""
    found, hidden = compute_weights(inputs), inputs.build_mask()
    seen = torch.ones_like(found, dtype=torch.bool) if hidden is None else ~hidden.expand_as(found)
    assert (found >= 0).all() and (found[~seen] == 0).all()
    torch.testing.assert_close(found.sum(-1), seen.any(-1).double())
    if not any(isinstance(mod, ShawRelative) for mod in inputs.score_mods):
        out, lively = plain(inputs), seen.any(-1)
        assert (out <= inputs.v.amax(2, keepdim=True) + 1e-9)[lively].all()
        assert (out >= inputs.v.amin(2, keepdim=True) - 1e-9)[lively].all()


BLIND = {
    "padding": (
        AttentionLayout(6, 6, torch.arange(6), torch.arange(6), torch.zeros(2, 6, dtype=torch.bool)),
        (Padding(),),
    ),
    "padding and bias": (
        AttentionLayout(6, 6, torch.arange(6), torch.arange(6), torch.zeros(2, 6, dtype=torch.bool)),
        (Padding(), Alibi(HEADS)),
    ),
    "left padding and causal": (
        AttentionLayout(6, 6, torch.arange(6), torch.arange(6), torch.tensor([[False] * 3 + [True] * 3] * 2)),
        (Padding(), Causal()),
    ),
    "window out of reach": (AttentionLayout(6, 6, torch.arange(6) + 50, torch.arange(6)), (Window(1, 1),)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("case", BLIND)
def test_a_fully_masked_query_gives_zeros(
    case: str, kernel: Callable[[AttentionInputs], Tensor], dtype: torch.dtype
) -> None:
    layout, score_mods = BLIND[case]
    q, k, v = (torch.randn(2, HEADS, 6, HEAD_WIDTH, dtype=dtype, requires_grad=True) for _ in range(3))
    out = kernel(AttentionInputs(q, k, v, 0.5, layout, score_mods))
    blind = slice(0, 3 if case == "left padding and causal" else 6)
    assert (out[:, :, blind] == 0).all()
    for gradient in torch.autograd.grad(out.square().sum(), (q, k, v)):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("kernel", ["plain", "sdpa", "chunked"])
def test_dropout_keeps_the_expectation_and_only_acts_in_training(kernel: str) -> None:
    torch.manual_seed(0)
    attention = Attention(8, heads=2, kernel=kernel, dropout=0.5)
    x = torch.randn(1, 5, 8).expand(4000, 5, 8)
    exact = attention.eval()(x[:1])
    noisy = attention.train()(x)
    assert not torch.allclose(noisy[0], noisy[1])
    torch.testing.assert_close(noisy.mean(0, keepdim=True), exact, atol=0.03, rtol=0)


def test_the_causal_flag_of_sdpa_is_not_used_with_cached_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch aligns the flag at the top left: with a cache the first query would see the first key alone."""
    flags = []
    fused = F.scaled_dot_product_attention

    def record_flag(*arguments: Tensor, is_causal: bool, **rest: float) -> Tensor:
        flags.append(is_causal)
        return fused(*arguments, is_causal=is_causal, **rest)

    monkeypatch.setattr(F, "scaled_dot_product_attention", record_flag)
    attention = Attention(8, heads=2, score_mods=[Causal()], kernel="sdpa").eval()
    x = torch.randn(2, 6, 8)
    whole = attention(x)
    ctx = Context(cache=DecodingCache(rows=2))
    parts = [attention(Stream.of(x[:, start:end], start=start), ctx) for start, end in ((0, 2), (2, 5), (5, 6))]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)
    assert flags == [True, True, False, False]


def test_long_sequences_are_causal_in_the_fused_kernel() -> None:
    attention = Attention(16, heads=2, score_mods=[Causal()], kernel="sdpa").eval()
    assert_causal(attention, torch.randn(1, 300, 16), step=50)


def test_kernels_use_another_mask_of_a_causal_subclass() -> None:
    class BandedCausal(Causal):
        causal = True

        def mask(self, layout: AttentionLayout) -> Tensor | None:
            later = super().mask(layout)
            assert later is not None
            return later | torch.ones_like(later).tril(layout.offset - 2)  # attends to itself and one token before

    q, k, v = torch.randn(3, 1, 2, 6, 4).unbind(0)
    inputs = AttentionInputs(q, k, v, 0.5, AttentionLayout(6, 6), (BandedCausal(),))
    torch.testing.assert_close(sdpa(inputs), plain(inputs))
    torch.testing.assert_close(chunked(inputs, 2), plain(inputs))


def test_masks_are_built_once_for_all_layers_of_a_call() -> None:
    made = []

    class Counted(Causal):
        def mask(self, layout: AttentionLayout) -> Tensor | None:
            made.append(layout)
            return super().mask(layout)

    layers = [Attention(8, heads=2, score_mods=[Counted()], kernel=kernel) for kernel in ("plain", "sdpa", "plain")]
    stream, ctx = Stream.of(torch.randn(1, 4, 8)), Context()
    for layer in layers:
        layer(stream, ctx)
    assert len(made) == 2  # once to see whether it hides anything, once for the mask


def test_a_wrong_name_lists_the_near_ones() -> None:
    with pytest.raises(UserError, match="did you mean chunked"):
        get_kernel("chunk")
