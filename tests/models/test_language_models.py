"""GPT, BERT, T5, LLaMA: published sizes and properties of each."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

import headwise
from headwise import UserError
from headwise.blocks.attention.projections import GroupedQueryProjection
from headwise.blocks.stack import TaskTypes, TokenTypes, count_parameters
from headwise.blocks.stream import Context
from headwise.testing import assert_causal_in_embeddings

COUNTS = {
    "gpt-base": 116_534_784,
    "gpt2-small": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
    "albert-base": 11_813_810,
    "albert-xxlarge": 223_158_450,
    "bart-base": 139_420_416,
    "bart-large": 406_291_456,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-v1.1-base": 247_577_856,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-135m": 134_515_008,
}


def build_tiny(name: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    return headwise.build(f"{name}-tiny", **{"vocab": 12, "dropout": 0.0, **settings}).eval()


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameter_counts_are_those_of_the_released_models(name: str, count: int) -> None:
    assert count_parameters(headwise.build(name, device="meta")) == count


def test_the_largest_gpt_3_has_175_billion_parameters() -> None:
    model: Any = headwise.build("gpt3-175b", device="meta")
    assert count_parameters(model) == pytest.approx(174.6e9, rel=1e-4)
    matrices = sum(m.weight.numel() for m in model.decoder.stack.modules() if isinstance(m, nn.Linear))
    assert matrices == 12 * 96 * 12288**2


def test_gpt_3_alternates_dense_and_banded_layers() -> None:
    model = build_tiny("gpt3", depth=4, window=2)
    hides = [[type(mod).__name__ for mod in layer.parts[0].score_mods] for layer in model.decoder.stack.layers]
    assert hides == [["Causal"], ["Window", "Causal"]] * 2
    # Two banded layers of two tokens reach two tokens back, one dense layer all of them.
    banded = [[{"kind": "attention", "score_mods": [{"kind": "window", "left": 1, "right": 0}]}]]
    model, ids = build_tiny("gpt3", layers=banded), torch.tensor([[5, 6, 7, 8, 9]])
    edited = ids.clone()
    edited[0, 0] = 10
    changed = (model(ids) - model(edited)).abs().amax(-1)[0] > 0
    assert changed.tolist() == [True, True, True, False, False]


def test_residual_projections_of_gpt_2_are_initialised_smaller() -> None:
    torch.manual_seed(0)
    layer = headwise.build("gpt2-tiny", vocab=12, width=128, depth=8).decoder.stack.layers[0]
    spreads = [layer.parts[0].out.weight.std(), layer.parts[1].outer.weight.std()]
    assert [spread.item() for spread in spreads] == pytest.approx([0.02 / math.sqrt(16)] * 2, rel=0.05)
    assert layer.parts[1].inner.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_a_second_text_has_another_token_type() -> None:
    types = TokenTypes(1, 2, end=2)
    with torch.no_grad():
        types.table.weight.copy_(torch.tensor([[10.0], [20.0]]))
    ids = torch.tensor([[1, 5, 6, 2, 7, 2, 0], [1, 5, 2, 0, 0, 0, 0]])
    found = types(torch.zeros(2, 7, 1), ids)[..., 0].tolist()
    assert found[0] == [10, 10, 10, 10, 20, 20, 20] and found[1][:3] == [10, 10, 10]


def test_every_token_has_the_first_task_type() -> None:
    tasks = TaskTypes(1, 3)
    with torch.no_grad():
        tasks.table.weight.copy_(torch.tensor([[10.0], [20.0], [30.0]]))
    assert tasks(torch.ones(1, 4, 1), torch.tensor([[5, 2, 6, 2]]))[0, :, 0].tolist() == [11, 11, 11, 11]


def test_the_head_of_a_masked_language_model_has_its_own_activation() -> None:
    ids, outputs = torch.tensor([[5, 6, 7]]), {}
    for activation, head in (("relu", ""), ("relu", "relu"), ("relu", "gelu")):
        torch.manual_seed(0)
        transform = {"activation": head}
        model = headwise.build("bert-tiny", vocab=12, activation=activation, head_transform=transform).eval()
        outputs[head] = model(ids)
        x = model.encoder.drop_prefix(model.encoder(ids, Context()))
        function = torch.nn.functional.gelu if head == "gelu" else torch.relu
        expected = model.head.transform.norm(function(model.head.transform.dense(x))) @ model.head.table.weight.T
        torch.testing.assert_close(outputs[head], expected)
    assert torch.equal(outputs[""], outputs["relu"]) and not torch.allclose(outputs["relu"], outputs["gelu"])


def test_bert_is_bidirectional_and_gpt_is_causal() -> None:
    ids, edited = torch.tensor([[5, 6, 7]]), torch.tensor([[5, 6, 8]])
    assert not torch.allclose(build_tiny("bert")(ids)[:, 0], build_tiny("bert")(edited)[:, 0])
    torch.testing.assert_close(build_tiny("gpt2")(ids)[:, :2], build_tiny("gpt2")(edited)[:, :2])
    for name, expected in (("bert", pytest.raises(AssertionError, match="looks ahead")), ("gpt2", nullcontext())):
        model = build_tiny(name)
        with expected:
            assert_causal_in_embeddings(model, lambda model=model: model(ids), ids)


def test_the_loss_is_over_masked_tokens_plus_next_sentence_prediction() -> None:
    model, ids = build_tiny("bert", pool="pooler"), torch.tensor([[5, 11, 2, 7, 2], [6, 11, 2, 11, 2]])
    labels = torch.tensor([[0, 6, 0, 0, 0], [0, 7, 0, 9, 0]])
    loss = model(ids, labels=labels)
    logits = model(ids)
    expected = nn.functional.cross_entropy(logits[labels != 0], labels[labels != 0], reduction="sum")
    torch.testing.assert_close(loss.total, expected)
    assert loss.count == 3 and model.mask_id == 11
    chosen = model(ids, labels=labels, positions=torch.tensor([1, 6, 8]))
    torch.testing.assert_close(chosen.total, expected)
    assert chosen.count == 3
    both = model(ids, labels=labels, next_sentence_labels=torch.tensor([0, 1]))
    stream = model.encoder(ids, headwise.blocks.stream.Context())
    order = nn.functional.cross_entropy(model.next_sentence_head(stream), torch.tensor([0, 1]))
    torch.testing.assert_close(both.total / 3, expected / 3 + order)


def test_albert_has_one_layer_for_all() -> None:
    assert count_parameters(build_tiny("albert", depth=2)) == count_parameters(build_tiny("albert", depth=9))


def test_grouped_query_attention_is_attention_with_repeated_keys() -> None:
    model = build_tiny("llama", depth=1)
    qkv = model.decoder.stack.layers[0].parts[0].qkv
    assert isinstance(qkv, GroupedQueryProjection) and qkv.project.out_features == (4 + 2 + 2) * 8
    full = build_tiny("llama", depth=1, key_value_heads=4)
    full.load_state_dict({k: v for k, v in model.state_dict().items() if "qkv" not in k}, strict=False)
    q, k, v = qkv.project.weight.split(qkv.rows)
    copied = [part.view(2, 8, -1).repeat_interleave(2, dim=0).flatten(0, 1) for part in (k, v)]
    full.decoder.stack.layers[0].parts[0].qkv.project.weight.data = torch.cat([q, *copied])
    ids = torch.tensor([[5, 6, 7, 8]])
    torch.testing.assert_close(full(ids), model(ids))


def test_heads_of_keys_must_divide_those_of_queries() -> None:
    with pytest.raises(UserError, match="key_value_heads: 4 heads cannot share 3 heads of keys"):
        build_tiny("llama", key_value_heads=3)


@torch.no_grad()
def test_the_decoder_of_bart_reads_the_end_mark_before_the_start_mark() -> None:
    model, source, target = build_tiny("bart"), torch.tensor([[5, 6, 2]]), torch.tensor([[1, 7, 8]])
    memory = headwise.blocks.stream.Context(model.encoder.read(source))
    found = model(source, target)
    model.decoder.prefix_id = None
    by_hand = model.decoder(torch.tensor([[2, 1, 7, 8]]), memory).x[:, 1:]
    torch.testing.assert_close(found, model.decoder.head(by_hand))
    assert model.max_length == 64 and build_tiny("bart").max_length == 63


def test_initial_scores_of_t5_have_unit_variance_without_a_scale() -> None:
    torch.manual_seed(0)
    model = headwise.build("t5-tiny", vocab=12, width=128, heads=2, head_width=64)
    attention = model.encoder.stack.layers[0].parts[0]
    x = torch.randn(1, 400, 128)
    q, k, _ = attention.qkv.split(attention.qkv.project(x))
    assert attention.scale == 1.0
    assert (q @ k.transpose(-1, -2)).var().item() == pytest.approx(1, rel=0.3)


def test_version_1_1_of_t5_unties_its_outputs() -> None:
    model = build_tiny("t5", tie="inputs", scale_outputs=False)
    assert model.encoder.embed.table is model.decoder.embed.table is not model.decoder.head.table
    assert type(model.decoder.head.transform) is nn.Identity
