"""Synthesizer's scores: their formulas, what they do not read, their limits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.attention.multihead import Attention, AttentionConfig
from headwise.blocks.attention.score_mods import Causal, Scaled, Score
from headwise.blocks.attention.synthesizer import Dense, Factorised, FactorisedDense, Gated, Mixture, Random
from headwise.blocks.tables import SCORES
from headwise.config.base import validate

ROWS, HEADS, LENGTH, WIDTH, LIMIT = 2, 3, 5, 4, 7
close = torch.testing.assert_close


def draw_vectors(length: int = LENGTH) -> Tensor:
    return torch.randn(ROWS, HEADS, length, WIDTH, dtype=torch.float64)


@torch.no_grad()
def test_a_factorised_dense_score_multiplies_two_short_ones() -> None:
    score, q = FactorisedDense(WIDTH, HEADS, LIMIT).double(), draw_vectors()
    far, near = torch.einsum("bhqd,hdn->bhqn", q.relu(), score.weight).chunk(2, -1)
    assert far.shape[-1] == 3  # of which nine products are made, for seven places
    expected = torch.stack([far[..., j // 3] * near[..., j % 3] for j in range(LENGTH)], dim=-1)
    close(score(q, draw_vectors()), expected)
    assert FactorisedDense(WIDTH, HEADS, 9).weight.shape == (HEADS, WIDTH, 6)


@torch.no_grad()
def test_a_factorised_score_is_a_random_one_of_low_rank() -> None:
    factors, whole = Factorised(HEADS, LIMIT, 2).double(), Random(HEADS, LIMIT).double()
    whole.table.copy_(torch.einsum("hik,hjk->hij", factors.queries, factors.keys))
    q, k = draw_vectors(), draw_vectors()
    close(factors(q, k), whole(q, k))
    assert int(torch.linalg.matrix_rank(factors.get_scores(0, LIMIT)).max()) == 2


@torch.no_grad()
def test_random_maps_are_the_softmax_of_their_table_whatever_the_text() -> None:
    score = Random(2, LIMIT)
    part = Attention(8, 2, score=score, score_mods=[Causal()]).double()
    one, two = torch.randn(2, 1, LENGTH, 8, dtype=torch.float64)
    with headwise.record() as maps:
        outs = part(one), part(two)
    first, second = maps.weights[()]
    assert torch.equal(first, second) and not torch.allclose(*outs)
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    close(first[0], score.table[:, :LENGTH, :LENGTH].masked_fill(hidden, -math.inf).softmax(-1))


@torch.no_grad()
def test_dense_maps_depend_on_the_query_and_not_on_keys() -> None:
    part, x = Attention(8, 2, score=Dense(4, 2, LIMIT)).double(), torch.randn(1, LENGTH, 8, dtype=torch.float64)
    edited = x.clone()
    edited[:, 2] += 1
    with headwise.record() as maps:
        part(x), part(edited)
    first, second = maps.weights[()]
    others = [0, 1, 3, 4]
    assert torch.equal(first[:, :, others], second[:, :, others])
    assert not torch.allclose(first[:, :, 2], second[:, :, 2])


@torch.no_grad()
def test_mixtures_are_sums_or_gated_sums() -> None:
    parts = [Scaled(WIDTH), Random(HEADS, LIMIT).double(), Dense(WIDTH, HEADS, LIMIT).double()]
    q, k = draw_vectors(), draw_vectors()
    one, two, three = (score(q, k) for score in parts)
    close(Mixture(parts)(q, k), one + two + three)
    gated = Gated(parts[:2]).double()
    close(gated(q, k), (one + two) / 2)
    gated.gate.copy_(torch.tensor([0.5, 2.0]))
    share = torch.tensor(1.5, dtype=torch.float64).sigmoid()
    close(gated(q, k), (1 - share) * one + share * two)
    assert not Mixture(parts).length_free and Mixture([Scaled(WIDTH)]).length_free


def build_model(mixer: dict[str, Any], name: str = "bert-tiny", **settings: Any) -> Any:
    model = headwise.build(name, vocab=12, task="tag", outputs=9, mixer={"kind": "attention", **mixer}, **settings)
    return model.encoder.stack.layers[0].parts[0]


PROJECTED = [  # what is read by a score, and by score mods beside it
    ("scaled", {}, ("queries", "keys", "values")),
    ({"kind": "random", "max_length": 9}, {}, ("values",)),
    ({"kind": "factorised", "max_length": 9}, {}, ("values",)),
    ({"kind": "dense", "max_length": 9}, {}, ("queries", "values")),
    ({"kind": "location", "max_length": 9}, {}, ("queries", "values")),
    ({"kind": "mixture", "scores": [{"kind": "random", "max_length": 9}]}, {}, ("values",)),
    ({"kind": "mixture", "scores": ["scaled", {"kind": "random", "max_length": 9}]}, {}, ("queries", "keys", "values")),
    ({"kind": "random", "max_length": 9}, {"positions": "shaw"}, ("queries", "values")),
    ({"kind": "random", "max_length": 9}, {"positions": "rotary"}, ("values",)),
    ({"kind": "dense", "max_length": 9}, {"positions": "rotary"}, ("queries", "values")),
]


@pytest.mark.parametrize(("score", "settings", "roles"), PROJECTED)
def test_only_operands_that_are_read_are_projected(
    score: Any, settings: dict[str, Any], roles: tuple[str, ...]
) -> None:
    part = build_model({"score": score}, **settings)
    assert part.qkv.roles == roles and part.qkv.project.out_features == 32 * len(roles)
    out = part(torch.randn(2, 5, 32))
    assert out.shape == (2, 5, 32) and out.isfinite().all()
    out.sum().backward()
    for role, gradient in zip(roles, part.qkv.project.weight.grad.chunk(len(roles)), strict=True):
        assert gradient.any(), role


@torch.no_grad()
def test_a_random_synthesizer_has_only_values_and_a_table() -> None:
    """Tay et al. (2020), section 3.2: Y = softmax(R) G(X), head by head, then one output projection."""
    part = build_model({"score": {"kind": "random", "max_length": 9}}).double()
    x = torch.randn(2, 5, 32, dtype=torch.float64)
    values = part.qkv.project(x).unflatten(-1, (4, 8)).transpose(1, 2)  # (B, T, HD) -> (B, H, T, D)
    mixed = part.score.table[:, :5, :5].double().softmax(-1) @ values
    close(part(x), part.out(mixed.transpose(1, 2).flatten(2)))


def test_window_and_cross_attention_project_what_is_read() -> None:
    model = headwise.build("swin-tiny", outputs=3)
    windows = {"kind": "windows", "window": 4, "score": {"kind": "random", "max_length": 16}}
    swapped = headwise.swap(model, windows)
    parts = [part for part in swapped.modules() if isinstance(part, Attention)]
    assert parts and all(part.qkv.roles == ("values",) for part in parts)
    across = {"kind": "attention", "attend_to": "memory", "score": {"kind": "location", "max_length": 9}}
    model = headwise.build("transformer-tiny", vocab=12, cross_attention=across)
    memory = model.decoder.stack.layers[0].parts[1].qkv
    assert memory.roles == ("values",) and memory.project.out_features == 32
    ids = torch.randint(4, 12, (2, 6))
    model(ids, ids, labels=ids).total.backward()
    assert memory.project.weight.grad.any() and memory.query.weight.grad.any()


@pytest.mark.parametrize("kind", ["random", "dense"])
def test_heads_may_share_values(kind: str) -> None:
    part = build_model({"key_value_heads": 2, "score": {"kind": kind, "max_length": 9}})
    assert part.qkv.rows == ((16,) if kind == "random" else (32, 16))
    assert part(torch.randn(2, 5, 32)).shape == (2, 5, 32)


def test_segment_recurrence_needs_a_score_that_compares_tokens() -> None:
    with pytest.raises(UserError, match="memory_length and score: one attention cannot have both; leave one out"):
        build_model({"memory_length": 4, "score": {"kind": "dense", "max_length": 9}})


def test_weight_transfer_may_drop_projections_but_not_add_them() -> None:
    model = headwise.build("bert-tiny", vocab=12, task="tag", outputs=9)
    said: list[str] = []
    random_scores = {"kind": "attention", "score": {"kind": "random", "max_length": 9}}
    without = headwise.swap(model, random_scores, announce=said.append)
    old, new = (each.encoder.stack.layers[0].parts[0].qkv.project.weight for each in (model, without))
    assert torch.equal(new, old.chunk(3)[2])
    again = headwise.swap(without, "attention", announce=said.append)
    qkv = "encoder.stack.layers.0.parts.0.qkv"
    assert again.get_parameter(f"{qkv}.project.weight").shape == old.shape
    assert qkv in said[1].partition("newly initialised:")[2].partition("unused:")[0]


def test_a_fixed_matrix_stays_and_is_saved() -> None:
    score = {"kind": "random", "max_length": 9, "learned": False}
    model = headwise.build("bert-tiny", vocab=12, task="tag", outputs=9, mixer={"kind": "attention", "score": score})
    tables = [name for name in model.state_dict() if name.endswith("score.table")]
    assert len(tables) == 2
    model(torch.tensor([[5, 6, 7]])).sum().backward()
    grown = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert grown and not grown & set(tables)


@pytest.mark.parametrize(
    ("score", "sentence"),
    [
        (Dense(4, 2, 5), "'dense' has 5 positions, too few for 6 keys; raise its max_length"),
        (Random(2, 5), "'random' has 5 positions, too few for 6 keys; raise its max_length"),
        (
            Mixture([Scaled(4), Factorised(2, 5)]),
            "'factorised' has 5 positions, too few for 6 keys; raise its max_length",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_text_over_max_length_is_refused(score: Score, sentence: str) -> None:
    part = Attention(8, 2, score=score)
    assert not part.properties.length_free
    with pytest.raises(UserError, match=sentence):
        part(torch.zeros(1, 6, 8))


def test_queries_without_a_position_are_refused() -> None:
    with pytest.raises(
        UserError, match="'random' needs all queries of a text at once, not 4 of 6; use it with attend_to ="
    ):
        Random(HEADS, LIMIT)(draw_vectors(4), draw_vectors(6))


def test_a_mixture_in_a_file_is_a_table_of_names_or_tables() -> None:
    score = {"kind": "mixture", "scores": ["scaled", {"kind": "dense", "max_length": 9}], "gated": True}
    config = validate(AttentionConfig, {"score": score})
    assert config == AttentionConfig.model_validate(config.model_dump(mode="json"))
    kinds = [type(part) for part in config.score.build(4, 4, 2).scores]
    assert kinds == [Scaled, Dense]
    plain = [type(part) for part in SCORES.parse("mixture").build(4, 4, 2).scores]
    assert plain == [Scaled, Random]
    with pytest.raises(UserError, match=r"score.scores.1.kind: no score is called 'densely'; did you mean dense"):
        validate(AttentionConfig, {"score": {"kind": "mixture", "scores": ["scaled", "densely"]}})
