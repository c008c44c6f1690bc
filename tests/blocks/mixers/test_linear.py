"""Linear attention: sums over chunks in encoders, decoders and packed rows; decoding state and memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.cache import DecodingCache
from headwise.blocks.mixers.favor import Performer
from headwise.blocks.mixers.linear import (
    CHUNK,
    ENCODER_CHUNK,
    EluFeatures,
    LinearAttention,
    attend_all,
    attend_causally,
    init_state,
)
from headwise.blocks.stream import Context, Stream
from headwise.testing import assert_causal, assert_independent

LENGTH = 2 * CHUNK + 44  # two and a half chunks of a decoder
LONG = ENCODER_CHUNK + 70  # more than a chunk of an encoder
close = torch.testing.assert_close


def build_mixer(kind: str, causal: bool = True, **settings: Any) -> Any:
    torch.manual_seed(0)
    if kind == "linear":
        return LinearAttention(8, 2, causal=causal).double().eval()
    return Performer(8, 2, causal=causal, features=12, kernel=kind, **settings).double().eval()


KINDS = ("linear", "softmax", "relu", "trig")


def make_texts(rows: int = 2, length: int = LENGTH, seed: int = 1) -> Tensor:
    return torch.randn(rows, length, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_heads(length: int = LENGTH, seed: int = 2) -> tuple[Tensor, ...]:
    """Queries, keys and values, 3 x (2, 3, length, 4)."""
    qkv = torch.randn(3, 2, 3, length, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return qkv.unbind(0)


def elu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x + 1, x.exp())


def test_a_decoder_is_the_recurrence_of_the_paper() -> None:
    q, k, v = make_heads()
    s, z, outs = torch.zeros(2, 3, 4, 4, dtype=q.dtype), torch.zeros(2, 3, 4, dtype=q.dtype), []
    for t in range(LENGTH):  # eqs. 18-20
        s = s + elu(k[:, :, t]).unsqueeze(-1) * v[:, :, t].unsqueeze(-2)
        z = z + elu(k[:, :, t])
        query = elu(q[:, :, t]).unsqueeze(-2)
        outs.append((query @ s).squeeze(-2) / (query @ z.unsqueeze(-1)).squeeze(-1))
    out, state = attend_causally(EluFeatures(), q, k, v, Stream.of(make_texts()), init_state(EluFeatures(), k, v))
    close(out, torch.stack(outs, dim=2), rtol=1e-10, atol=1e-10)
    close(state, torch.cat((s, z.unsqueeze(-1)), dim=-1), rtol=1e-10, atol=1e-10)


def test_an_encoder_is_a_weighted_mean_without_padding() -> None:
    q, k, v = make_heads(LONG)
    keep = torch.arange(LONG) < torch.tensor([[LONG], [CHUNK + 3]])
    weights = (elu(q) @ elu(k).mT) * keep[:, None, None]
    expected = weights @ v / weights.sum(-1, keepdim=True)
    close(attend_all(EluFeatures(), q, k, v, keep), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_no_output_depends_on_later_tokens(kind: str) -> None:
    part, x = build_mixer(kind), make_texts()
    for token in (1, CHUNK - 1, CHUNK, LENGTH - 1):
        assert_independent(part, x, (slice(None), slice(token)), (slice(None), slice(token, None)))
    assert_causal(part, x, step=LENGTH // 3)


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_in_steps_of_any_size_equals_one_forward_pass(kind: str) -> None:
    part, x = build_mixer(kind), make_texts()
    ctx = Context(cache=DecodingCache(2))
    sizes = (CHUNK + 9, 1, 1, 7, LENGTH - CHUNK - 18)
    steps, start = [], 0
    for size in sizes:
        steps.append(part(Stream.of(x[:, start : start + size], start=start), ctx))
        start += size
    close(torch.cat(steps, dim=1), part(x), rtol=1e-9, atol=1e-9)


def test_the_state_has_constant_size_and_its_rows_can_be_selected() -> None:
    part, x = build_mixer("softmax"), make_texts()
    cache = DecodingCache(2)
    part(Stream.of(x[:, :5]), Context(cache=cache))
    first = [value.shape for value in cache.states.values()]
    part(Stream.of(x[:, 5:-1], start=5), Context(cache=cache))
    assert [value.shape for value in cache.states.values()] == first == [(2, 2, 12, 5)] and not cache.growing
    cache.select(torch.tensor([1, 1]))
    last = part(Stream.of(x[[1, 1], -1:], start=LENGTH - 1), Context(cache=cache))
    close(last, part(x)[[1, 1], -1:])


@pytest.mark.parametrize("kind", KINDS)
def test_packed_documents_do_not_mix(kind: str) -> None:
    part, x = build_mixer(kind), make_texts(rows=1)
    lengths = (3, 5, CHUNK - 8, CHUNK + 20, LENGTH - 2 * CHUNK - 20)  # one ends with a chunk, one spans the next
    segment = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).unsqueeze(0)
    together = part(Stream(x, torch.arange(LENGTH), segment=segment))
    close(together, torch.cat([part(document) for document in x.split(lengths, dim=1)], dim=1), rtol=1e-9, atol=1e-9)


def test_an_encoder_refuses_packed_documents() -> None:
    x = make_texts()
    with pytest.raises(UserError, match="packed documents: in an encoder LinearAttention would mix"):
        build_mixer("linear", causal=False)(Stream(x, torch.arange(LENGTH), segment=torch.zeros(2, LENGTH)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_recorded_map_gives_the_outputs(kind: str, causal: bool) -> None:
    part, x = build_mixer(kind, causal), make_texts(length=CHUNK + 5)
    keep = torch.arange(CHUNK + 5) < torch.tensor([[CHUNK + 5], [9]])
    with headwise.record() as maps:
        out = part(Stream.of(x, keep))
    ((weights,),) = maps.weights.values()
    _, _, v = part.qkv.split(part.qkv.project(x))
    close(part.out((weights @ v).transpose(1, 2).flatten(2)), out)
    close(weights.sum(-1), torch.ones(2, 2, CHUNK + 5, dtype=x.dtype))
    assert not weights[1, :, :, 9:].any() and (not causal or not weights.triu(1).any())
    ((exact,),) = maps.exact.values()
    assert exact.shape == weights.shape


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_through_chunks_are_those_of_the_whole_map(causal: bool) -> None:
    part, x = build_mixer("linear", causal), make_texts(length=LONG).requires_grad_()
    part(x).square().sum().backward()
    chunked, x.grad = x.grad, None
    q, k, v = part.qkv.split(part.qkv.project(x))
    weights = elu(q) @ elu(k).mT
    weights = weights.tril() if causal else weights
    mixed = weights @ v / weights.sum(-1, keepdim=True)
    part.out(mixed.transpose(1, 2).flatten(2)).square().sum().backward()
    close(chunked, x.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_less_than_the_features_is_saved_for_the_backward_pass(causal: bool) -> None:
    part, x = Performer(32, 4, causal=causal, features=256), torch.randn(1, 2 * ENCODER_CHUNK, 32)
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        part(x)
    assert sum(saved.values()) < 0.5 * 4 * 2 * ENCODER_CHUNK * 256


@pytest.mark.parametrize("causal", [False, True])
def test_sums_stay_in_float32_under_autocast(causal: bool) -> None:
    part, x = Performer(32, 4, causal=causal).eval(), torch.randn(1, LENGTH, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = part(x)
    assert low.dtype == torch.bfloat16
    assert (low - part(x)).abs().max() < 0.05 * part(x).abs().max()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["linear", "softmax", "relu"])
def test_outputs_and_gradients_are_finite_for_inputs_of_any_scale(kind: str, causal: bool) -> None:
    part, x = build_mixer(kind, causal).float(), make_texts().float().requires_grad_()
    for scale in (0.0, 1e-4, 1e4):
        out = part(scale * x)
        out.sum().backward()
        assert out.isfinite().all() and x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize("positions", ["alibi", "t5"])
def test_positions_that_need_scores_are_refused(positions: str) -> None:
    with pytest.raises(UserError, match=r"positions: Performer forms no scores that \w+ could change; use sinusoid"):
        headwise.build("gpt-tiny", vocab=12, mixer="performer", positions=positions)
