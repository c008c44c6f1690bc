"""Switch Transformers of `transformers` with copied weights: outputs, what is dropped, and the router's losses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import headwise
from headwise.blocks.record import collect
from headwise.blocks.stream import Context
from headwise.testing import assert_parity
from headwise.text import PAD

VOCAB, EXPERTS, LENGTH = 29, 4, 8
SIZE: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 32, "d_kv": 6, "d_ff": 48, "num_heads": 4, "num_experts": EXPERTS,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "dropout_rate": 0.0,
}  # fmt: skip
close = torch.testing.assert_close


def theirs(depth: int, sparse: int, capacity: int) -> Any:
    torch.manual_seed(0)
    layers = {"num_layers": depth, "num_decoder_layers": depth}
    layers |= {"num_sparse_encoder_layers": sparse, "num_sparse_decoder_layers": sparse}
    config = transformers.SwitchTransformersConfig(**SIZE, **layers, expert_capacity=capacity)
    model = transformers.SwitchTransformersForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def ours(model: Any, depth: int, every: int, **experts: Any) -> Any:
    stack = {"depth": depth}
    found = headwise.build(
        "switch-tiny", vocab=VOCAB, width=32, heads=4, head_width=6, hidden=48, dropout=0.0, hidden_dropout=0.0,
        encoder=stack, decoder=stack, expert_interval=every, positions={"kind": "t5", "buckets": 8, "max_distance": 12},
        experts={"count": EXPERTS, "jitter": 0.0, **experts},
    ).eval()  # fmt: skip
    with torch.no_grad():
        copy(model, found)
    return found


def copy(model: Any, found: Any) -> None:
    found.encoder.embed.table.weight.copy_(model.shared.weight)
    for side in ("encoder", "decoder"):
        their, our = getattr(model, side), getattr(found, side).stack
        our.final.weight.copy_(their.final_layer_norm.weight)
        our.layers[0].parts[0].score_mods[0].table.weight.copy_(
            their.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        )
        for block, layer in zip(their.block, our.layers, strict=True):
            for sub, norm in zip(block.layer, layer.norms, strict=True):
                norm.weight.copy_(sub.layer_norm.weight)
            attention = block.layer[0].SelfAttention
            layer.parts[0].qkv.project.weight.copy_(torch.cat([getattr(attention, name).weight for name in "qkv"]))
            layer.parts[0].out.weight.copy_(attention.o.weight)
            if side == "decoder":
                across = block.layer[1].EncDecAttention
                layer.parts[1].qkv.query.weight.copy_(across.q.weight)
                layer.parts[1].qkv.project.weight.copy_(torch.cat([across.k.weight, across.v.weight]))
                layer.parts[1].out.weight.copy_(across.o.weight)
            network(block.layer[-1].mlp, layer.parts[-1])


def network(their: Any, our: Any) -> None:
    if not hasattr(their, "router"):
        our.inner.weight.copy_(their.wi.weight)
        our.outer.weight.copy_(their.wo.weight)
        return
    our.router.weight.copy_(their.router.classifier.weight)
    for number in range(EXPERTS):
        expert = their.experts[f"expert_{number}"]
        our.inner.weight[number].copy_(expert.wi.weight)
        our.outer.weight[number].copy_(expert.wo.weight)


def ids(rows: int, seed: int) -> Tensor:
    return torch.randint(4, VOCAB, (rows, LENGTH), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("depth", "sparse", "every"), [(4, 2, 2), (6, 2, 3), (2, 2, 1)])
@torch.no_grad()
def test_outputs_are_equal_where_every_token_finds_a_place(depth: int, sparse: int, every: int) -> None:
    model = theirs(depth, sparse, capacity=64)
    found, source, target = ours(model, depth, every), ids(2, 1), ids(2, 2)
    source[1, 5:] = PAD
    keep = source != PAD
    expected = model(input_ids=source, attention_mask=keep.long(), decoder_input_ids=target)
    assert_parity(found(source, target), expected.logits)
    own = found.encoder(source, Context())
    assert_parity(own.x[keep], expected.encoder_last_hidden_state[keep])


@torch.no_grad()
def test_the_same_tokens_are_dropped_from_one_text() -> None:
    """DISCREPANCY: there each row has places of its own, a fixed number of them, and padding takes some; here they are
    the batch's, by its number of real tokens. In one row without padding the two agree."""
    model = theirs(depth=4, sparse=2, capacity=2)
    found = ours(model, 4, 2, drop=True, eval_capacity_factor=1.0)  # of 8 tokens for 4 experts: 2
    source, target = ids(1, 1), ids(1, 2)
    with collect("load") as side:
        logits = found(source, target)
    assert min(load.dropped for load in side.list_values("load")) > 0
    assert_parity(logits, model(input_ids=source, decoder_input_ids=target).logits)


def test_the_losses_of_routers_are_equal() -> None:
    """DISCREPANCY: there the shares of all layers of a stack are taken together before they are multiplied, for each
    row alone; in the paper, and here, each layer has a loss, for the batch. One layer and one row agree."""
    model = theirs(depth=2, sparse=1, capacity=64)
    source, target = ids(1, 1), ids(1, 2)
    with torch.no_grad():
        expected = model(input_ids=source, decoder_input_ids=target, output_router_logits=True)
    for name, settings in (
        ("aux_loss", {"balance_loss": 0.01, "z_loss": 0.0}),
        ("z_loss", {"balance_loss": 0.0, "z_loss": 0.01}),
    ):
        found = ours(model, 2, 2, **settings).train()
        with collect("aux") as side:
            found(source, target)
        both = [0.01 * expected[f"{stack}_{name}"] for stack in ("encoder", "decoder")]
        close(torch.stack(side.list_values("aux")), torch.stack(both), atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_its_sparse_layer_alone_is_equal() -> None:
    model = theirs(depth=2, sparse=1, capacity=3)
    part = ours(model, 2, 2, drop=True, eval_capacity_factor=1.5).encoder.stack.layers[1].parts[1]
    x = torch.randn(1, LENGTH, 32)
    assert_parity(part(x), model.encoder.block[1].layer[-1].mlp(x))
