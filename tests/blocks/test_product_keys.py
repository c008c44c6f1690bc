"""Product-key memory: against brute force over all keys; batch norm of real tokens; one layer of a decoder."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise
from headwise import UserError
from headwise.blocks.norm import LayerNorm
from headwise.blocks.product_keys import MaskedTokenNorm, ProductKeyMemory
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Stream
from headwise.testing import assert_parity
from headwise.train.optim import build_adam

WIDTH = 6
SMALL = {"kind": "product_keys", "sub_keys": 4, "heads": 2, "nearest": 3, "key_width": 6}


def build_memory(seed: int = 0, **settings: Any) -> ProductKeyMemory:
    torch.manual_seed(seed)
    part = ProductKeyMemory(WIDTH, **{"sub_keys": 5, "heads": 3, "nearest": 4, "key_width": 8, **settings})
    return part.double().eval()


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def read_memory(part: ProductKeyMemory, token: Tensor) -> Tensor:
    """The memory's output for one token, (C,) -> (C,): each of the n^2 keys is written out and scored."""
    query = part.query(token)
    if isinstance(part.norm, MaskedTokenNorm):
        query = part.norm(query.view(1, 1, -1)).flatten()
    total = torch.zeros_like(token)
    for head in range(part.heads):
        first, second = query.view(part.heads, 2, -1)[head]
        if isinstance(part.norm, LayerNorm):
            first, second = part.norm(first), part.norm(second)
        pairs = [torch.cat((one, two)) for one in part.keys[head, 0] for two in part.keys[head, 1]]
        scores = torch.stack([torch.cat((first, second)) @ key for key in pairs])
        best = scores.argsort(descending=True)[: part.nearest]
        total = total + scores[best].softmax(0) @ part.values.weight[best]
    return total


@pytest.mark.parametrize("settings", [{}, {"nearest": 1}, {"nearest": 11}, {"nearest": 25}], ids=str)
@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_the_nearest_keys_are_those_of_brute_force(norm: str, settings: dict[str, int]) -> None:
    part = build_memory(query_norm=norm, **settings)
    x = draw(2, 5, WIDTH)
    expected = torch.stack([read_memory(part, token) for token in x.flatten(0, 1)])
    assert_parity(part(x), expected.view_as(x))


def test_gradients_reach_queries_keys_and_the_values_that_are_read() -> None:
    part = build_memory(query_norm="layer", nearest=2, heads=1)
    x = draw(1, 2, WIDTH).requires_grad_()
    part(x).square().sum().backward()
    assert x.grad is not None and part.keys.grad is not None and part.values.weight.grad is not None
    assert (x.grad != 0).any() and (part.keys.grad != 0).any()
    assert 2 <= int((part.values.weight.grad != 0).any(1).sum()) <= 4


def test_batch_norm_of_training_counts_real_tokens_alone() -> None:
    keep = torch.tensor([[True, True, True], [True, False, False]])
    x = draw(2, 3, WIDTH)
    part, reference = build_memory(), nn.BatchNorm1d(24).double()
    queries = part.train().compute_queries(x, keep)  # (H, 2, N, D / 2)
    expected = reference(part.query(x)[keep])  # (N real, H * D)
    assert_parity(queries.permute(2, 0, 1, 3).flatten(1)[keep.flatten()], expected)
    assert isinstance(part.norm, MaskedTokenNorm) and part.norm.running_var is not None
    assert reference.running_var is not None
    assert_parity(part.norm.running_var, reference.running_var)
    stream = Stream.of(x, keep)
    outputs = part(stream)[keep]
    changed = Stream.of(torch.where(keep.unsqueeze(-1), x, x + 5), keep)
    assert_parity(part(changed)[keep], outputs)


def test_values_are_embeddings_for_weight_decay() -> None:
    part = build_memory()
    groups = build_adam(part, (0.9, 0.98), 1e-9, weight_decay=0.1).param_groups
    decayed = {id(weight) for group in groups if group["weight_decay"] for weight in group["params"]}
    assert id(part.values.weight) not in decayed and id(part.keys) in decayed


def list_memory_layers(side: Any) -> list[int]:
    return [n for n, layer in enumerate(side.stack.layers, 1) if isinstance(layer.parts[-1], ProductKeyMemory)]


def test_one_layer_of_a_stack_has_another_feed_forward_part() -> None:
    settings = {"overrides": [{"layers": [3], "feedforward": SMALL}]}
    model = headwise.build("t5-tiny", vocab=9, decoder={"depth": 4, **settings})
    assert [list_memory_layers(side) for side in (model.encoder, model.decoder)] == [[], [3]]
    model = headwise.build("gpt-tiny", vocab=9, depth=4, **settings)
    assert list_memory_layers(model.decoder) == [3]


def test_the_size_of_narang() -> None:
    memory = {"kind": "product_keys", "sub_keys": 512, "heads": 8, "nearest": 32, "key_width": 128}
    override = {"layers": [11], "feedforward": {**memory, "query_norm": "layer"}}
    model = headwise.build("t5-base", device="meta", decoder={"depth": 12, "overrides": [override]})
    assert list_memory_layers(model.decoder) == [11]
    weights = {id(weight): (name, weight) for name, weight in model.named_parameters()}.values()
    others = sum(weight.numel() for name, weight in weights if weight.dim() > 1 and "score_mods" not in name)
    keys = 8 * (768 * 128 + 2 * 512 * 64)  # queries and sub-keys
    assert (others - keys) / 1e6 == pytest.approx(419.46, abs=0.005)
    assert count_parameters(model) == pytest.approx(421e6, rel=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nearest": 17}, r"nearest: 17 keys cannot be chosen among 4\^2 = 16; lower nearest or raise sub_keys"),
        ({"key_width": 7}, "key_width: 7 cannot be halved for two sub-keys; use an even number"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        headwise.build("t5-tiny", vocab=9, feedforward={**SMALL, **settings})


def test_an_override_needs_a_layer() -> None:
    override = [{"layers": [3], "feedforward": SMALL}]
    with pytest.raises(UserError, match="overrides: there is no layer 3 among 2 with weights of their own"):
        headwise.build("gpt-tiny", vocab=9, depth=2, overrides=override)
    with pytest.raises(UserError, match="overrides: there is no layer 3 among 1 with weights of their own"):
        headwise.build("gpt-tiny", vocab=9, depth=4, shared=True, overrides=override)
