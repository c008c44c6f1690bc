"""Multi-scale retention: its parallel, recurrent and chunkwise forms, decays, gate and group norm, packed documents."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.blocks.cache import DecodingCache
from headwise.blocks.mixers.retention import Retention, compute_decay
from headwise.blocks.positions.rotary import Rotary
from headwise.blocks.record import record
from headwise.blocks.stream import Context, Stream
from headwise.testing import assert_parity

LENGTH = 23


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build_mixer(**settings: Any) -> Retention:
    torch.manual_seed(0)
    return Retention(12, 3, **{"causal": True, **settings}).double().eval()


def project(part: Retention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, (B, T, H, D) x 2 and (B, T, H, V), from the rows of the fused matrix."""
    fused = x @ part.qkv.project.weight.T + part.qkv.project.bias
    q, k, v = fused.split(part.qkv.rows, -1)
    return q.unflatten(-1, (3, 4)), k.unflatten(-1, (3, 4)), v.unflatten(-1, (3, -1))


def finish(part: Retention, x: Tensor, heads: Tensor) -> Tensor:
    """W_o (swish(W_g x) * group_norm(heads)), of heads (B, T, H, V)."""
    centred = heads - heads.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    gate = part.gate(x)
    return part.out(gate * gate.sigmoid() * normed.flatten(2))


def run_recurrence(part: Retention, x: Tensor) -> Tensor:
    """Eq. 6, a token after the other in float64: S = g S + k^T v, head = q S / sqrt(D)."""
    q, k, v = project(part, x)
    state, heads = torch.zeros(len(x), 3, 4, v.shape[-1], dtype=x.dtype), []
    decays = torch.tensor([31 / 32, 63 / 64, 127 / 128], dtype=x.dtype).view(3, 1, 1)
    for t in range(x.shape[1]):
        state = decays * state + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
        heads.append((q[:, t].unsqueeze(-2) @ state).squeeze(-2) / 2)
    return finish(part, x, torch.stack(heads, 1))


def run_parallel(part: Retention, x: Tensor, both_ways: bool = False) -> Tensor:
    """Eq. 5: (Q K^T / sqrt(D) * G) V with G_ts = g^(t-s)."""
    q, k, v = (y.transpose(1, 2) for y in project(part, x))
    length = x.shape[1]
    decay = torch.zeros(3, length, length, dtype=x.dtype)
    for head in range(3):
        for t in range(length):
            for s in range(length if both_ways else t + 1):
                decay[head, t, s] = (1 - 2.0 ** (-5 - head)) ** abs(t - s)
    return finish(part, x, (q @ k.mT / 2 * decay @ v).transpose(1, 2))


@torch.no_grad()
def test_parallel_recurrent_and_chunkwise_forms_agree() -> None:
    x = draw(2, LENGTH, 12)
    expected = run_recurrence(build_mixer(), x)
    assert_parity(run_parallel(build_mixer(), x), expected, 1e-10)
    for chunk in (1, 4, LENGTH, 128):
        assert_parity(build_mixer(chunk=chunk)(x), expected, 1e-10)


@torch.no_grad()
def test_decoding_in_steps_of_any_size_equals_one_pass_and_its_state_has_one_size() -> None:
    part, x = build_mixer(chunk=5), draw(2, LENGTH, 12)
    cache, outs, start = DecodingCache(2), [], 0
    for size in (9, 1, 1, 5, 7):
        outs.append(part(Stream.of(x[:, start : start + size], start=start), Context(cache=cache)))
        assert [state.shape for state in cache.states.values()] == [(2, 3, 4, 8)] and not cache.growing
        start += size
    assert_parity(torch.cat(outs, 1), run_recurrence(part, x), 1e-10)


@torch.no_grad()
def test_an_encoder_decays_with_the_distance_both_ways() -> None:
    part, x = build_mixer(causal=False), draw(2, 9, 12)
    assert_parity(part(x), run_parallel(part, x, both_ways=True), 1e-10)


@torch.no_grad()
def test_rotation_makes_scores_depend_on_the_distance() -> None:
    """Eq. 3: queries and keys rotated by e^(i n theta). The same words later in a text have the same outputs."""
    part, x = build_mixer(score_mods=[Rotary(4)]), draw(1, 8, 12)
    moved = part(Stream.of(x, start=1000))
    assert_parity(moved, part(Stream.of(x)), 1e-4)  # angles are rounded to 32 bits
    assert not torch.allclose(part(Stream.of(x)), build_mixer()(x))


@pytest.mark.parametrize("chunk", [4, 128])
@torch.no_grad()
def test_packed_documents_do_not_mix(chunk: int) -> None:
    part, x = build_mixer(chunk=chunk), draw(1, LENGTH, 12)
    lengths = (3, 1, 8, 5, 6)  # the third ends with a chunk, the fourth begins with the next
    segment = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).unsqueeze(0)
    together = part(Stream(x, torch.arange(LENGTH), segment=segment))
    assert_parity(together, torch.cat([part(document) for document in x.split(lengths, dim=1)], 1), 1e-9)


@torch.no_grad()
def test_padded_prompts_leave_the_state_of_their_last_word() -> None:
    part, x = build_mixer(chunk=4), draw(2, 9, 12)
    keep = torch.arange(9) < torch.tensor([[9], [5]])
    padded, alone = DecodingCache(2), DecodingCache(1)
    part(Stream.of(x, keep), Context(cache=padded))
    part(Stream.of(x[1:, :5]), Context(cache=alone))
    assert_parity(padded.states[()][1:], alone.states[()], 1e-10)


@torch.no_grad()
def test_its_map_gives_its_heads() -> None:
    part, x = build_mixer(chunk=3), draw(1, 8, 12)
    with record() as seen:
        out = part(x)
    heads = seen.select()[()] @ project(part, x)[2].transpose(1, 2)
    assert_parity(finish(part, x, heads.transpose(1, 2)), out, 1e-10)


def test_decays_of_a_range_do_not_depend_on_the_number_of_heads() -> None:
    assert compute_decay(4).tolist() == [31 / 32, 63 / 64, 127 / 128, 255 / 256]
    for heads in (2, 16):
        first, *_, last = compute_decay(heads, "range").tolist()
        assert first == pytest.approx(31 / 32, rel=1e-6) and last == pytest.approx(511 / 512, rel=1e-6)
