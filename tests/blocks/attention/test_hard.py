"""Hard and local attention: samples, expectations, and REINFORCE against exact gradients."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from headwise import build
from headwise.blocks.attention.hard import HardAttention, LocalAttention, compute_baseline, reinforce_loss
from headwise.blocks.attention.kernels import chunked, compute_weights, plain
from headwise.blocks.attention.multihead import Attention, CrossProjection
from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout, Padding
from headwise.blocks.cache import DecodingCache
from headwise.blocks.part import BuildContext
from headwise.blocks.record import Collector, collect, record
from headwise.blocks.stream import Context, Stream
from headwise.blocks.tables import SCORE_MODS
from headwise.errors import UserError

SAMPLES, ERRORS = 20_000, 4  # a mean of so many samples lies within so many standard errors
close = torch.testing.assert_close


def make_inputs(
    rows: int, *score_mods: torch.nn.Module, queries: int = 2, keys: int = 4, keep: Tensor | None = None
) -> AttentionInputs:
    """The same random queries, keys and values in every row, in float64."""
    q, k, v = (torch.randn(1, 1, n, 3, dtype=torch.float64).expand(rows, -1, -1, -1) for n in (queries, keys, keys))
    return AttentionInputs(q, k, v, 1.0, AttentionLayout(queries, keys, keep=keep), score_mods)


def is_near(samples: Tensor, expected: Tensor) -> bool:
    """Whether the mean over rows is the expected one, by its own standard error."""
    error = samples.std(0) / math.sqrt(len(samples))
    return bool(((samples.mean(0) - expected).abs() <= ERRORS * error + 1e-12).all())


def test_the_expectation_of_hard_attention_is_soft_attention() -> None:
    inputs = make_inputs(SAMPLES, HardAttention())
    soft = plain(replace(inputs, score_mods=()))[0]
    hard = plain(inputs)
    assert is_near(hard, soft)
    assert not is_near(hard, soft + 0.1)  # so many samples tell


def test_training_samples_one_key_and_evaluation_takes_the_largest_weight() -> None:
    hard = HardAttention()
    inputs = make_inputs(500, hard)
    soft = compute_weights(replace(inputs, score_mods=()))
    sampled = compute_weights(inputs)
    assert set(sampled.unique().tolist()) == {0.0, 1.0}
    close(sampled.sum(-1), torch.ones(500, 1, 2).double())
    assert (sampled.mean(0) > 0).all(), "some key was never chosen"
    hard.eval()
    assert torch.equal(compute_weights(inputs).argmax(-1), soft.argmax(-1))
    assert torch.equal(compute_weights(inputs), compute_weights(inputs))


@pytest.mark.parametrize("training", [True, False])
def test_masked_keys_are_never_sampled_and_a_fully_masked_query_gives_zeros(training: bool) -> None:
    keep = torch.tensor([[True, False, True, False]] * 300 + [[False] * 4])
    side = Collector()
    inputs = replace(make_inputs(301, Padding(), HardAttention().train(training), keep=keep), side=side)
    chosen = compute_weights(inputs)
    assert not chosen[..., ~keep[0]].any()
    assert chosen[:300].sum() == 600 and not chosen[300].any()
    assert all(torch.isfinite(p).all() for p in side.list_values("hard"))


def test_log_probabilities_are_those_of_the_sampled_keys() -> None:
    side = Collector("hard")
    inputs = replace(make_inputs(50, HardAttention()), side=side, path=("here", 1))
    chosen = compute_weights(inputs)
    soft = compute_weights(replace(inputs, score_mods=()))
    (log_prob,) = side.values["hard"]["here", 1]
    close(log_prob, (soft * chosen).sum(-1).log())
    chunked(inputs, chunk=1)  # each chunk of queries adds side outputs
    assert [p.shape for p in side.list_values("hard")[1:]] == [(50, 1, 1)] * 2


def test_log_probabilities_are_collected_once_while_maps_are_recorded() -> None:
    score_mods = [{"kind": "hard"}]
    layer = [["attention", {"attend_to": "memory", "score_mods": score_mods}, "mlp"]]
    model = build("transformer-tiny", vocab=20, decoder={"depth": 2, "layers": layer})
    source, target = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 5, 6]])
    with collect("hard") as side, record():
        model(source, target)
    assert [p.shape for p in side.list_values("hard")] == [(1, 4, 3)] * 2
    assert all(p.requires_grad for p in side.list_values("hard"))
    with collect("hard") as side:
        close(model.eval()(source, target), model(source, target))
    assert not side.list_values("hard")


def estimate_gradients(informed: bool) -> tuple[Tensor, Tensor]:
    """REINFORCE's gradient in the queries from each of many samples, and the exact one by enumeration."""
    side = Collector()
    inputs = replace(make_inputs(SAMPLES, HardAttention()), side=side)
    aim = torch.randn(3, dtype=torch.float64)

    def compute_nll(out: Tensor) -> Tensor:
        return 5 + (out @ aim - 1) ** 2  # far from zero, as a likelihood is

    q = inputs.q.clone().requires_grad_()
    losses = compute_nll(plain(replace(inputs, q=q))).squeeze(1)  # (B, 1, Tq) -> (B, T)
    rows = losses.sum(1)
    baseline = compute_baseline(rows, torch.full((SAMPLES,), 2)) if informed else torch.zeros(())
    loss = reinforce_loss(rows, side.list_values("hard"), baseline)
    close(loss, rows)
    (sampled,) = torch.autograd.grad(loss.sum(), q)
    single = inputs.q[:1].clone().requires_grad_()
    every = compute_weights(replace(inputs, q=single, k=inputs.k[:1], v=inputs.v[:1], score_mods=()))
    expected = (every * compute_nll(inputs.v[:1]).unsqueeze(2)).sum()  # sum_i w_i nll(v_i): a query takes one value
    (exact,) = torch.autograd.grad(expected, single)
    return sampled, exact[0]


def test_reinforce_is_unbiased_and_a_baseline_lowers_its_variance() -> None:
    spread = []
    for informed in (False, True):
        torch.manual_seed(3)
        sampled, exact = estimate_gradients(informed)
        assert exact.abs().max() > 0.1
        assert is_near(sampled, exact)
        spread.append(sampled.var(0).sum())
    assert spread[1] < 0.5 * spread[0]


def test_values_learn_through_the_sample_and_weights_through_its_probability() -> None:
    side = Collector()
    inputs = replace(make_inputs(4, HardAttention()), side=side)
    q, v = inputs.q.clone().requires_grad_(), inputs.v.clone().requires_grad_()
    out = plain(replace(inputs, q=q, v=v)).square().sum((1, 3))  # (B, H, Tq, D) -> (B, Tq)
    assert torch.autograd.grad(out.sum(), q, retain_graph=True, allow_unused=True) == (None,)
    loss = reinforce_loss(out.sum(1), side.list_values("hard"), torch.zeros(4)).sum()
    by_value, by_query = torch.autograd.grad(loss, (v, q))
    assert by_value.any() and by_query.any()


def test_the_baseline_of_a_row_does_not_depend_on_its_loss() -> None:
    losses, counts = torch.tensor([1.0, 5.0, 3.0]), torch.tensor([2, 4, 6])
    before = compute_baseline(losses, counts)
    losses[1] = 50.0
    after = compute_baseline(losses, counts)
    assert after[1] == before[1] and (after[[0, 2]] > before[[0, 2]]).all()
    alone = compute_baseline(torch.tensor([7.0]), torch.tensor([3]))
    assert torch.equal(alone, torch.zeros(1))  # there is no other row


def build_local_attention(mode: str, half_window: int = 2) -> torch.nn.Module:
    mod = SCORE_MODS.parse({"kind": "local", "mode": mode, "half_window": half_window})
    return mod.build(BuildContext(width=8, heads=2, hidden=8), 4).double()


def test_predictive_local_attention_is_its_formula() -> None:
    """Luong et al. 2015, eq. 9 and 10, one query at a time, over sources of different lengths."""
    mod, reach, lengths = build_local_attention("predictive"), 2, (9, 5)
    q, k = torch.randn(2, 2, 3, 4).double(), torch.randn(2, 2, 9, 4).double()
    keep = torch.arange(9) < torch.tensor(lengths)[:, None]
    found = compute_weights(AttentionInputs(q, k, k, 1.0, AttentionLayout(3, 9, keep=keep), (mod, Padding())))
    for row, length in enumerate(lengths):
        for head in range(2):
            for t in range(3):
                place = length * torch.sigmoid((q[row, head, t] @ mod.inner[head]).tanh() @ mod.outer[head]).item()
                window = [s for s in range(length) if abs(s - place) <= reach]
                align = (k[row, head, window] @ q[row, head, t]).softmax(0)
                bell = torch.tensor([math.exp(-((s - place) ** 2) / (2 * (reach / 2) ** 2)) for s in window])
                expected = torch.zeros(9).double()
                expected[window] = align * bell
                close(found[row, head, t], expected)


def test_monotonic_local_attention_follows_the_target_position() -> None:
    q = torch.zeros(1, 1, 4, 4)
    k = torch.zeros(1, 1, 9, 4)
    found = compute_weights(
        AttentionInputs(
            q,
            k,
            k,
            1.0,
            AttentionLayout(4, 9, torch.tensor([0, 3, 9, 20]), torch.arange(9)),
            (build_local_attention("monotonic"),),
        )
    )
    expected = [[1 / 3] * 3 + [0] * 6, [0] + [0.2] * 5 + [0] * 3, [0] * 7 + [0.5] * 2, [0] * 9]
    close(found[0, 0], torch.tensor(expected))


@pytest.mark.parametrize("mode", ["monotonic", "predictive"])
def test_local_attention_to_a_source_works_step_by_step_and_for_beams(mode: str) -> None:
    mod = build_local_attention(mode)
    attention = Attention(8, heads=2, qkv=CrossProjection(8, 2, 4), score_mods=[mod]).double().eval()
    memory, x = torch.randn(2, 9, 8).double(), torch.randn(6, 4, 8).double()  # three beams a source
    keep = torch.arange(9) < torch.tensor([[9], [6]])
    repeated = Stream.of(memory.repeat_interleave(3, 0), keep.repeat_interleave(3, 0))
    alone = attention(Stream.of(x), Context({"encoder": repeated}))
    ctx = Context({"encoder": Stream.of(memory, keep)}, DecodingCache(rows=6, beams=3))
    close(torch.cat([attention(Stream.of(x[:, t : t + 1], start=t), ctx) for t in range(4)], dim=1), alone)


def test_the_predicted_window_is_learned() -> None:
    mod = LocalAttention(1, 3, 2).double()
    plain(make_inputs(1, mod, keys=9)).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in mod.parameters())


def test_predictive_local_attention_is_refused_in_causal_self_attention() -> None:
    score_mods = [{"kind": "local", "mode": "predictive"}]
    with pytest.raises(UserError, match="not causal and would see the future"):
        build(
            "transformer-tiny",
            vocab=20,
            decoder={"layers": [[{"score_mods": score_mods}, {"attend_to": "memory"}, "mlp"]]},
        )
