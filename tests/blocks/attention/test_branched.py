"""Branched attention of the Weighted Transformer: against a loop over heads; its weights are frozen late."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise.blocks.attention.branched import BranchedAttention, BranchedConfig, BranchWeights
from headwise.blocks.losses import Loss
from headwise.blocks.part import BuildContext
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context, Stream
from headwise.models.cost import count_flops
from headwise.testing import assert_parity, check_model, perturb_parameters
from headwise.train.config import TrainConfig
from headwise.train.learner import Learner
from headwise.train.state import LossState

CROSS = {"kind": "branched", "attend_to": "memory"}
WEIGHTED: dict[str, Any] = {"encoder": {"layers": [["branched"]]}, "decoder": {"layers": [["branched", CROSS]]}}


def build_attention(attend_to: str) -> BranchedAttention:
    torch.manual_seed(0)
    ctx = BuildContext(width=6, heads=3, hidden=5, head_width=4, memory_width=6, causal=True)
    part = BranchedConfig(attend_to=attend_to).build(ctx)
    assert isinstance(part, BranchedAttention)
    return perturb_parameters(part)  # in float64


def run_loop(part: BranchedAttention, x: Tensor, memory: Tensor) -> Tensor:
    """sum_i α_i FFN(κ_i softmax(q_i k_i^T / sqrt(D)) v_i W_O,i), head by head and query by query."""
    heads, width = 3, 4
    if part.qkv.is_cross:
        queries, (keys, values) = part.qkv.query(x), part.qkv.project(memory).chunk(2, -1)
    else:
        queries, keys, values = part.qkv.project(x).chunk(3, -1)
    kappa, alpha = (weights.logits.exp() / weights.logits.exp().sum() for weights in (part.kappa, part.alpha))
    outputs = torch.zeros_like(x)
    for head in range(heads):
        columns = slice(head * width, (head + 1) * width)
        for t in range(len(x)):
            seen = len(memory) if part.qkv.is_cross else t + 1
            weights = (keys[:seen, columns] @ queries[t, columns] / width**0.5).softmax(0)
            branch = kappa[head] * (part.out.weight[:, columns] @ (weights @ values[:seen, columns]))
            ffn = part.feedforward
            hidden = (ffn.inner.weight @ branch + ffn.inner.bias).clamp(min=0)
            outputs[t] += alpha[head] * (ffn.outer.weight @ hidden + ffn.outer.bias)
    return outputs


@pytest.mark.parametrize("attend_to", ["self", "memory"])
@torch.no_grad()
def test_branches_are_the_equation(attend_to: str) -> None:
    part = build_attention(attend_to)
    generator = torch.Generator().manual_seed(2)
    x, memory = (torch.randn(length, 6, dtype=torch.float64, generator=generator) for length in (5, 4))
    outputs = part(Stream.of(x[None]), Context({"encoder": Stream.of(memory[None])}))
    assert_parity(outputs[0], run_loop(part, x, memory))


@torch.no_grad()
def test_branch_weights_are_on_the_simplex_and_equal_at_first() -> None:
    weights = BranchWeights(4)
    assert weights().tolist() == pytest.approx([0.25] * 4)
    weights.logits.copy_(torch.tensor([-30.0, 2.0, 5.0, 0.0]))
    assert float(weights().sum()) == pytest.approx(1) and bool((weights() >= 0).all())


def test_a_weighted_transformer_decodes_with_a_cache() -> None:
    torch.manual_seed(0)
    check_model(headwise.build("transformer-tiny", vocab=12, width=8, heads=2, hidden=8, dropout=0.0, **WEIGHTED))


class Text:
    tokens = 4

    def to(self, device: Any) -> Text:
        return self


class Copying:
    """A task that copies a text."""

    def init_state(self, model: Any) -> LossState:
        return LossState()

    def loss(self, model: Any, batch: Text, state: LossState) -> Loss:
        ids = torch.tensor([[4, 5, 6, 7]])
        loss: Loss = model(ids, ids, labels=ids)
        return loss


@pytest.mark.parametrize("optimizer", ["adam", "adafactor"])
def test_branch_weights_are_frozen_at_the_end_of_training(optimizer: str) -> None:
    torch.manual_seed(0)
    stacks = {
        side: {"depth": 1, "layers": [[{**part, "freeze_at": 0.5} for part in parts]]}
        for side, parts in (("encoder", [{"kind": "branched"}]), ("decoder", [{"kind": "branched"}, CROSS]))
    }
    model = headwise.build("transformer-tiny", vocab=9, dropout=0.0, **stacks)
    config = TrainConfig(steps=4, optimizer=optimizer, schedule={"kind": "constant", "lr": 0.01})
    learner = Learner(model, Copying(), config, seed=0)
    names = [name for name, _ in model.named_parameters() if "kappa" in name or "alpha" in name]
    assert len(names) == 6
    changes = []
    for step in range(1, 5):
        old = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        learner.step([Text()], step, progress=(step - 1) / 4)
        moved = {name: bool((weight != old[name]).any()) for name, weight in model.named_parameters()}
        changes.append(all(moved[name] for name in names))
        assert any(moved[name] for name in names) == changes[-1]
        assert any(moved[name] for name in moved if name not in names)
    assert changes == [True, True, False, False]


def test_the_size_of_narang() -> None:
    """Each attention of each layer has its feed-forward network; there is no other."""
    stacks = {side: {"depth": 12, **settings} for side, settings in WEIGHTED.items()}
    model = headwise.build("t5-base", device="meta", **stacks)
    weights = {id(weight): (name, weight) for name, weight in model.named_parameters()}.values()
    matrices = sum(weight.numel() for name, weight in weights if weight.dim() > 1 and "score_mods" not in name)
    assert matrices / 1e6 == pytest.approx(279.48, abs=0.005)
    assert count_parameters(model) == pytest.approx(280e6, rel=0.01)


def test_each_head_costs_a_pass_through_the_feed_forward_network() -> None:
    settings: dict[str, Any] = {"vocab": 9, "task": "masked", "device": "meta", "hidden": 512}
    plain, branched = (
        count_flops(headwise.build("bert-tiny", layers=layers, **settings), 8, ())
        for layers in ([["attention", "mlp"]], [["branched"]])
    )
    feedforward = 9 * 2 * 2 * 32 * 512  # 8 tokens after BOS, 2 matrices, 2 operations for each weight
    weighted_sum = 9 * 2 * 4 * 32
    assert branched - plain == 2 * ((4 - 1) * feedforward + weighted_sum)  # 2 layers of 4 heads
