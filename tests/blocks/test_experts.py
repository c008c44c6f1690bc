"""Mixture of experts: against a loop over tokens; capacity, losses and loads as in Fedus et al. (2022)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import headwise
from headwise import UserError
from headwise.blocks.experts import ExpertLoad, Experts, Router, summarise_loads
from headwise.blocks.feedforward import ACTIVATIONS, GATED_ACTIVATIONS, FeedForward
from headwise.blocks.norm import LayerNorm
from headwise.blocks.record import collect
from headwise.blocks.residual import PreNorm
from headwise.blocks.stream import Context, Stream
from headwise.testing import assert_independent
from headwise.train.optim import build_adam

WIDTH, HIDDEN, COUNT = 6, 8, 4
close = torch.testing.assert_close


def build_experts(top_k: int = 1, capacity: Any = None, count: int = COUNT, seed: int = 0, **settings: Any) -> Experts:
    torch.manual_seed(seed)
    routing = {key: settings.pop(key) for key in ("normalise", "jitter", "balance", "z_loss") if key in settings}
    part = Experts(Router(WIDTH, count, top_k, **routing), HIDDEN, capacity, **settings).double().eval()
    for parameter in part.parameters():
        nn.init.normal_(parameter)
    return part


def make_texts(rows: int = 3, length: int = 5, seed: int = 1) -> Tensor:
    return torch.randn(rows, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def run_expert(part: Experts, expert: int, x: Tensor) -> Tensor:
    """One expert's output for one token, (C,) -> (C,)."""
    biases = [0 if maps.bias is None else maps.bias.view(part.count, -1)[expert] for maps in (part.inner, part.outer)]
    hidden = part.inner.weight[expert] @ x + biases[0]
    if part.gated:
        gate, value = hidden.chunk(2)
        hidden = part.activation(gate) * value
    else:
        hidden = part.activation(hidden.clone())
    return part.outer.weight[expert] @ hidden + biases[1]


def run_loop(part: Experts, x: Tensor, keep: Tensor | None, capacity: int) -> Tensor:
    """The layer as a loop over positions, then choices, then rows."""
    rows, length, _ = x.shape
    out, assigned = torch.zeros_like(x), [0] * part.count
    for t in range(length):
        for choice in range(part.router.top_k):
            for row in range(rows):
                if keep is not None and not keep[row, t]:
                    continue
                p = (part.router.weight @ x[row, t]).softmax(-1)
                gates, chosen = p.sort(descending=True)
                gates = gates / gates[: part.router.top_k].sum() if part.router.normalise else gates
                expert = int(chosen[choice])
                if assigned[expert] < capacity:
                    out[row, t] += gates[choice] * run_expert(part, expert, x[row, t])
                assigned[expert] += 1
    return out


FORMS: dict[str, dict[str, Any]] = {
    "switch": {},
    "switch, cut": {"capacity": (9.0, 0.8)},
    "two of them, gates normalised": {"top_k": 2, "normalise": True},
    "two of them, cut": {"top_k": 2, "capacity": (9.0, 0.9)},
    "gated, no biases": {"activation": "swiglu", "bias": False, "top_k": 2},
    "more experts than tokens": {"count": 40, "capacity": (9.0, 2.0)},
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_equal_to_a_loop_over_tokens(form: str, padded: bool) -> None:
    part, x = build_experts(**FORMS[form]), make_texts()
    keep = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]) > 0 if padded else None
    factor = FORMS[form]["capacity"][1] if "capacity" in FORMS[form] else part.count
    tokens = 9 if padded else 15
    capacity = -(-round(tokens * factor * 10) // (10 * part.count))
    outputs = part(Stream.of(x, keep))
    close(outputs, run_loop(part, x, keep, capacity))
    if "cut" in form:
        assert (outputs[x[..., 0] == x[..., 0]].abs().sum(-1) == 0).any() or part.router.top_k > 1


@pytest.mark.parametrize("activation", [*ACTIVATIONS, *GATED_ACTIVATIONS])
def test_one_expert_is_a_feedforward_network(activation: str) -> None:
    part = build_experts(count=1, activation=activation)
    dense = FeedForward(WIDTH, HIDDEN, activation).double()
    with torch.no_grad():
        for ours, theirs in ((part.inner, dense.inner), (part.outer, dense.outer)):
            theirs.weight.copy_(ours.weight[0])
            theirs.bias.copy_(ours.bias)
    close(part(make_texts()), dense(make_texts()))  # p = 1


def test_the_load_balancing_loss_is_lowest_for_even_loads() -> None:
    router = Router(COUNT, COUNT, jitter=0.0, balance=0.01)
    nn.init.eye_(router.weight)
    even = router(torch.eye(COUNT).repeat(3, 1), None).loss
    close(even, torch.tensor(0.01))
    skewed = [router(torch.eye(COUNT)[[0, 0, 0, *others]], None).loss for others in ((1,), (0,), (1, 2, 3))]
    assert all(loss > even for loss in skewed)
    padding = torch.tensor([True] * COUNT + [False] * 2)
    close(router(torch.eye(COUNT)[[0, 1, 2, 3, 0, 0]], padding).loss, even)


def test_the_z_loss_is_the_squared_log_sum_exp() -> None:
    router, x = Router(WIDTH, COUNT, jitter=0.0, balance=0.0, z_loss=0.5).double(), make_texts()[0]
    expected = 0.5 * (x @ router.weight.T).logsumexp(-1).square().mean()
    close(router(x, None).loss, expected)


def test_router_inputs_have_multiplicative_jitter_in_training() -> None:
    """U(1 - jitter, 1 + jitter) for each channel (Fedus et al., appendix C): measured by log p0 / p1 of two experts."""
    router, tokens, jitter = Router(1, 2, top_k=2, jitter=0.2).double(), 4000, 0.2
    router.weight.data = torch.tensor([[3.0], [0.0]], dtype=torch.float64)
    x = torch.full((tokens, 1), 0.5, dtype=torch.float64)

    def noise() -> Tensor:
        routes = router(x, None)
        p = torch.zeros(tokens, 2, dtype=torch.float64).scatter(1, routes.chosen, routes.gates)
        return (p[:, 0] / p[:, 1]).log() / 1.5

    outputs = noise().detach().numpy()
    assert stats.kstest(outputs, stats.uniform(1 - jitter, 2 * jitter).cdf).statistic * tokens**0.5 < 2.6
    router.eval()
    close(noise(), torch.ones(tokens, dtype=torch.float64))


def test_a_capacity_factor_of_the_number_of_experts_drops_nothing() -> None:
    part = build_experts(capacity=(9.0, float(COUNT)))
    same = make_texts()[:1, :1].expand(3, 5, -1)
    with collect("load") as side:
        outputs = part(same)
    [load] = side.list_values("load")
    assert load.dropped == 0 and load.busiest == COUNT and load.evenness == 0
    close(outputs, part(same[:1, :1]).expand_as(outputs))
    assert part.properties.batch_independent and part.properties.steppable
    assert not build_experts(capacity=(9.0, 3.9)).properties.batch_independent


def test_capacity_is_larger_in_evaluation_than_in_training() -> None:
    """Factors of 1.25 and 2.0: of 16 tokens that choose one of 4 experts, 5 and 8 are processed."""
    part = Experts(Router(WIDTH, COUNT, jitter=0.0), HIDDEN).double()
    same = make_texts()[:1, :1].expand(2, 8, -1)
    processed = []
    for mode in (True, False):
        with collect("load") as side:
            part.train(mode)(same)
        processed.append(int(side.list_values("load")[0].processed.sum()))
    assert processed == [5, 8]


def test_dropped_tokens_pass_through_the_residual_path_unchanged() -> None:
    part = build_experts(capacity=(9.0, 0.5))
    layer = PreNorm([part], lambda: LayerNorm(WIDTH)).double()
    x = make_texts()[:1, :1].repeat(2, 4, 1)
    with collect("load") as side:
        outputs = layer(Stream.of(x), Context()).x
    [load] = side.list_values("load")
    assert load.assigned.sum() == 8 and load.processed.sum() == 1 and load.dropped == 7 / 8
    assert not torch.equal(outputs[0, 0], x[0, 0])
    assert torch.equal(outputs[1], x[1]) and torch.equal(outputs[0, 1:], x[0, 1:])


@pytest.mark.parametrize("length", [5, 90])
def test_no_token_is_dropped_because_of_a_later_one(length: int) -> None:
    part, x, half = build_experts(top_k=2, capacity=(9.0, 0.6)), make_texts(length=length), length // 2
    edited = x.clone()
    edited[:, half:] = make_texts(seed=2, length=length)[:, :1]  # which all choose one expert
    close(part(x)[:, :half], part(edited)[:, :half])
    assert_independent(part, x, (slice(None), slice(None, half)), (slice(None), slice(half, None)))
    # other rows do matter
    assert not torch.allclose(part(x)[1:, :half], part(x[1:])[:, :half])


def test_padding_takes_no_capacity() -> None:
    part, x = build_experts(capacity=(9.0, 0.6)), make_texts()
    longer = torch.cat((x, make_texts(seed=3)), dim=1)
    keep = torch.arange(10).expand(3, -1) < 5
    close(part(Stream.of(longer, keep))[:, :5], part(x))
    assert not part(Stream.of(longer, keep))[:, 5:].any()
    assert not part(Stream.of(x, torch.zeros(3, 5, dtype=torch.bool))).any()


@pytest.mark.parametrize("top_k", [1, 2])
def test_a_capacity_of_each_row_is_that_of_the_row_alone(top_k: int) -> None:
    """A loop over each row with a capacity of 2 tokens; neither other rows nor padding take any of it."""
    part = build_experts(top_k, (1.0, 1.0), row_capacity=2)
    x = make_texts(3, 7)
    keep = torch.ones(3, 7, dtype=torch.bool)
    keep[1, 4:] = False
    with collect("load") as side:
        actual = part.transform(Stream(x, torch.arange(7), keep), Context())
    alone = [run_loop(part, x[row : row + 1], keep[row : row + 1], capacity=2) for row in range(3)]
    close(actual[keep], torch.cat(alone)[keep])
    (load,) = side.list_values("load")
    kept = sum(int((part.router(row, None).chosen == expert).sum().clamp(max=2)) for row in (x[0], x[1, :4], x[2])
               for expert in range(COUNT))  # fmt: skip
    assert int(load.processed.sum()) == kept < int(load.assigned.sum())
    assert part.properties.batch_independent and not part.properties.steppable


def test_a_decoding_step_drops_no_token() -> None:
    part = build_experts(capacity=(0.1, 0.1))
    for rows in (2, 7):  # fewer than experts, and more
        same = make_texts()[:1, :1].expand(rows, 1, -1)
        assert part(same).abs().sum(-1).all()
        close(part(same), run_loop(part, same, None, capacity=rows))


@pytest.mark.parametrize("settings", [{}, {"activation": "geglu", "bias": False}])
def test_batched_and_separate_products_are_equal(settings: dict[str, Any]) -> None:
    """Batched on accelerators, separate on CPUs."""
    part, rows = build_experts(**settings), make_texts(rows=COUNT, length=7).flatten(0, 1)
    results = part.run_batched(rows), part.run_separately(rows.split(7))
    close(*results)
    close(*(torch.autograd.grad(out.square().sum(), list(part.inner.parameters())) for out in results))


def test_the_router_learns_from_its_gates_and_from_its_loss() -> None:
    part = build_experts().train()
    with collect("aux") as side:
        part(make_texts()).square().sum().backward(retain_graph=True)
    weight = part.router.weight
    assert weight.grad is not None and weight.grad.any()
    weight.grad = None
    [loss] = side.list_values("aux")
    loss.backward()
    assert weight.grad is not None and weight.grad.any()
    with collect("aux") as side:
        part.eval()(make_texts())
    assert not side.list_values("aux")  # nobody learns


def test_the_router_computes_in_float32_under_bfloat16() -> None:
    part, x = build_experts().float().train(), make_texts().float()
    part.router.jitter = 0.0
    exact = part.router(x.flatten(0, 1), None)
    with torch.autocast("cpu", torch.bfloat16):
        low = part.router(x.flatten(0, 1), None)
        assert part.inner(x[:1].expand(COUNT, -1, -1)).dtype == torch.bfloat16
        assert part(x).dtype == torch.float32
    assert (
        low.gates.dtype == torch.float32 and torch.equal(low.gates, exact.gates) and torch.equal(low.loss, exact.loss)
    )
    whole = part.bfloat16()
    assert whole.router(x.bfloat16().flatten(0, 1), None).gates.dtype == torch.float32
    assert whole(x.bfloat16()).dtype == torch.bfloat16


def test_jitter_and_dropout_only_in_training_and_by_the_seed() -> None:
    part, x = build_experts(dropout=0.4, jitter=0.3), make_texts()
    assert torch.equal(part(x), part(x))
    part.train()
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(part(x))
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def test_experts_read_inputs_without_jitter() -> None:
    part, x = build_experts(count=1, jitter=0.5).train(), make_texts()
    close(part(x), part(x))  # one expert: p = 1 whatever the router reads


def test_initial_weights_have_a_tenth_of_the_usual_variance() -> None:
    torch.manual_seed(0)
    part = (
        headwise.build("gpt2-tiny", vocab=9, width=256, feedforward={"kind": "experts"})
        .decoder.stack.layers[0]
        .parts[1]
    )
    for weight in (part.router.weight, part.inner.weight, part.outer.weight):
        # 0.774: variance of a normal truncated at two standard deviations
        assert weight.var().item() == pytest.approx(0.774 * 0.1 / weight.shape[-1], rel=0.06)


def test_biases_of_experts_are_not_decayed() -> None:
    part = build_experts()
    decayed, others = build_adam(part, (0.9, 0.98), 1e-9, weight_decay=0.1).param_groups
    assert {id(weight) for weight in others["params"]} == {id(part.inner.bias), id(part.outer.bias)}
    assert len(decayed["params"]) == 3


def test_summary_of_loads() -> None:
    even = ExpertLoad(torch.tensor([5, 5]), torch.tensor([5, 5]))
    uneven = ExpertLoad(torch.tensor([9, 1]), torch.tensor([5, 1]))
    assert (even + uneven).assigned.tolist() == [14, 6]
    summary = summarise_loads([even, uneven])
    assert summary == pytest.approx({"busiest": 1.8, "evenness": 0.468996, "dropped": 0.2}, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"capacity_factor": 0}, "feedforward.capacity_factor: leaves no expert any capacity"),
        ({"eval_capacity_factor": -1}, "feedforward.eval_capacity_factor: leaves no expert any capacity"),
        ({"count": 2, "top_k": 3}, "feedforward: 3 experts cannot be chosen among 2"),
        ({"count": 0}, "feedforward.count: "),
        ({"factor": 2}, "unknown key"),
    ],
)
def test_mistakes_are_one_sentence(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        headwise.build("gpt2-tiny", vocab=9, feedforward={"kind": "experts", **settings})
    assert "\n" not in str(caught.value)


def test_they_run_on_the_meta_device() -> None:
    part = headwise.build("t5-tiny", vocab=9, feedforward={"kind": "experts", "top_k": 2}, device="meta")
    ids = torch.zeros(2, 7, dtype=torch.long, device="meta")
    assert part(ids, ids).shape == (2, 7, 9)


@pytest.mark.parametrize("wiring", ["pre", "reversible"])
@pytest.mark.parametrize("learning", [False, True])
def test_padding_of_a_decoder_is_not_routed(wiring: str, learning: bool) -> None:
    """A decoder's attention needs no padding mask, but its experts do."""
    experts = {"kind": "experts", "count": 3, "capacity_factor": 4.0, "eval_capacity_factor": 4.0}
    model = headwise.build(
        "transformer-tiny", vocab=12, task="language-model", wiring=wiring, tie="none", feedforward=experts
    )
    ids = torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0], [5, 0, 0, 0]])
    with collect("load") as side:
        model.train(learning)(ids)
    loads = side.list_values("load")
    assert loads and all(int(load.assigned.sum()) == 7 for load in loads)
