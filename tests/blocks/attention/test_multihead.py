"""Multi-head attention: a worked example, permutations, variance of scores, heads, packed texts, cross-attention."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headwise.blocks.attention.kernels import compute_weights, plain
from headwise.blocks.attention.multihead import Attention, CrossProjection
from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout, Causal, ScoreMod, Window
from headwise.blocks.cache import DecodingCache
from headwise.blocks.positions.absolute import SinusoidalPositions
from headwise.blocks.positions.alibi import Alibi
from headwise.blocks.positions.relative import ShawRelative, T5Bias
from headwise.blocks.positions.rotary import Rotary
from headwise.blocks.stream import Context, Recorder, Stream
from headwise.errors import UserError

close = torch.testing.assert_close


def test_worked_example() -> None:
    """B9: three tokens of width four through matrices small enough to check by hand."""
    x = torch.tensor([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]).double()
    queries = torch.tensor([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]).double()
    keys = torch.tensor([[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]).double()
    values = torch.tensor([[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]).double()
    attention = Attention(4, heads=1, head_width=3, bias=False, scale=1.0, kernel="plain").double()
    recorded: list[AttentionInputs] = []

    class Eye(Recorder):
        def observe(self, place: object, inputs: AttentionInputs) -> None:
            recorded.append(inputs)

    with torch.no_grad():
        attention.qkv.project.weight.copy_(torch.cat((queries, keys, values), dim=1).t())
        attention.out.weight.copy_(torch.eye(4, 3))
    out = attention(x.unsqueeze(0), Context(record=Eye()))
    scores = recorded[0].q @ recorded[0].k.transpose(-2, -1)
    assert scores[0, 0].tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    expected = [[1.936621, 6.683105, 1.595068], [1.999994, 7.963992, 0.053976], [1.999705, 7.759892, 0.358389]]
    close(out[0, :, :3], torch.tensor(expected).double(), atol=1e-6, rtol=0)
    scaled = plain(AttentionInputs(recorded[0].q, recorded[0].k, recorded[0].v, 3**-0.5, recorded[0].layout))
    expected = [[1.863874, 6.319371, 1.704189], [1.999110, 7.814124, 0.273472], [1.992555, 7.479636, 0.735877]]
    close(scaled[0, 0], torch.tensor(expected).double(), atol=1e-6, rtol=0)


def test_without_positions_a_permutation_of_the_input_permutes_the_output() -> None:
    attention, x, order = Attention(8, heads=2).double(), torch.randn(2, 6, 8).double(), torch.randperm(6)
    close(attention(x[:, order]), attention(x)[:, order])


@pytest.mark.parametrize(
    "make", [Causal, lambda: Window(1, 1), lambda: Rotary(4), lambda: Alibi(2), lambda: ShawRelative(4, 2)]
)
def test_position_score_mods_break_the_symmetry(make: type[ScoreMod]) -> None:
    attention, x, order = (
        Attention(8, heads=2, score_mods=[make()]).double(),
        torch.randn(2, 6, 8).double(),
        [1, 0, 2, 5, 4, 3],
    )
    assert not torch.allclose(attention(x[:, order]), attention(x)[:, order])


def test_sinusoids_break_the_symmetry() -> None:
    attention, positions, order = Attention(8, heads=2), SinusoidalPositions(8), [1, 0, 2, 5, 4, 3]

    def add_positions(x: Tensor) -> Tensor:
        return attention(positions(x, torch.arange(6), 0))

    x = torch.randn(2, 6, 8)
    assert not torch.allclose(add_positions(x[:, order]), add_positions(x)[:, order], atol=1e-4)


@pytest.mark.parametrize("head_width", [4, 64, 256])
def test_dot_products_have_the_variance_of_their_width_and_scaled_scores_one(head_width: int) -> None:
    """B8, over so many pairs that the estimate is within a few percent."""
    q, k = torch.randn(2, 30_000, head_width).unbind(0)
    variance = (q * k).sum(-1).var().item()
    assert variance == pytest.approx(head_width, rel=0.05)
    scale = Attention(2 * head_width, heads=2).scale
    assert scale == 1 / math.sqrt(head_width)
    assert variance * scale**2 == pytest.approx(1, rel=0.05)


def test_one_head_is_softmax_of_scaled_dot_products() -> None:
    attention, x = Attention(6, heads=1).double(), torch.randn(1, 5, 6).double()
    q, k, v = attention.qkv.project(x)[0].chunk(3, dim=-1)
    expected = attention.out((q @ k.t() / math.sqrt(6)).softmax(-1) @ v)
    close(attention(x)[0], expected)


def test_heads_attend_independently() -> None:
    """B6: several heads are several attentions whose outputs stand side by side."""
    attention, x = Attention(6, heads=3).double(), torch.randn(1, 5, 6).double()
    q, k, v = attention.qkv.project(x)[0].view(5, 3, 3, 2).permute(1, 2, 0, 3)  # (T, 3, H, D) -> 3 x (H, T, D)
    heads = [(q[h] @ k[h].t() / math.sqrt(2)).softmax(-1) @ v[h] for h in range(3)]
    close(attention(x)[0], attention.out(torch.cat(heads, dim=-1)))


def test_a_cold_softmax_is_a_lookup() -> None:
    """B3: as the scale grows, a query finds the value of the key that equals it."""
    keys = torch.eye(4).view(1, 1, 4, 4)
    values = torch.randn(1, 1, 4, 4)
    found = plain(AttentionInputs(keys[:, :, [2, 0]], keys, values, 1000.0, AttentionLayout(2, 4)))
    close(found, values[:, :, [2, 0]])


def test_packed_documents_do_not_attend_to_one_another() -> None:
    attention, one, two = Attention(8, heads=2, score_mods=[Causal()]), torch.randn(1, 4, 8), torch.randn(1, 3, 8)
    segment = torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
    packed = attention(Stream(torch.cat((one, two), dim=1), torch.arange(7), segment=segment))
    close(packed, torch.cat((attention(one), attention(two)), dim=1))


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(UserError, match="a width of 10 cannot be divided among 4 heads"):
        Attention(10, heads=4)
    assert Attention(10, heads=4, head_width=3)(torch.zeros(1, 2, 10)).shape == (1, 2, 10)


@pytest.mark.parametrize(
    "make", [lambda: Window(1, 1), lambda: Rotary(4), lambda: Alibi(2), lambda: T5Bias(2), lambda: ShawRelative(4, 2)]
)
def test_position_score_mods_in_cross_attention(make: type[ScoreMod]) -> None:
    """Beams folded into the queries keep their positions: each row gives what it gives alone and at once."""
    attention = Attention(8, heads=2, qkv=CrossProjection(8, 2, 4), score_mods=[make()]).double().eval()
    memory, x = torch.randn(2, 5, 8).double(), torch.randn(6, 4, 8).double()  # three beams a source
    alone = attention(Stream.of(x), Context({"encoder": Stream.of(memory.repeat_interleave(3, 0))}))
    ctx = Context({"encoder": Stream.of(memory)}, DecodingCache(rows=6, beams=3))
    steps = [attention(Stream.of(x[:, t : t + 1], start=t), ctx) for t in range(4)]
    close(torch.cat(steps, dim=1), alone)
    repeated = memory.repeat_interleave(3, 0)
    moved = attention(Stream.of(x, start=2), Context({"encoder": Stream.of(repeated)}))
    assert not torch.allclose(moved, alone)
    both_moved = attention(Stream.of(x, start=2), Context({"encoder": Stream.of(repeated, start=2)}))
    close(both_moved, alone, atol=1e-6, rtol=1e-6)  # rotary's rates are float32


def test_rows_of_weights_sum_to_one() -> None:
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    close(compute_weights(AttentionInputs(q, k, k, 0.5, AttentionLayout(3, 5))).sum(-1), torch.ones(1, 2, 3))
