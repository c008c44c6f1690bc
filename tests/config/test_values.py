"""Configs as values: checked, frozen, equal by content, merged by rule."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from headwise import UserError
from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.score_mods import WindowConfig
from headwise.blocks.feedforward import MlpConfig
from headwise.blocks.norm import LayerNormConfig, RMSNormConfig
from headwise.blocks.tables import NORMS, OUTPUT_LAYERS, PARTS, POSITIONS, SCORE_MODS, TOKEN_EMBEDDINGS, WIRINGS
from headwise.config.base import Config, merge, validate
from headwise.models.layers import StackConfig
from headwise.models.transformer import TransformerConfig

TABLES = (NORMS, WIRINGS, POSITIONS, SCORE_MODS, PARTS, TOKEN_EMBEDDINGS, OUTPUT_LAYERS)


def kinds(table: Any) -> st.SearchStrategy[Config]:
    return st.sampled_from(sorted(table.names)).map(table.parse)


parts = st.one_of(
    st.builds(
        AttentionConfig,
        attend_to=st.sampled_from(["self", "memory"]),
        heads=st.integers(0, 8),
        score_mods=st.lists(kinds(SCORE_MODS), max_size=2).map(tuple),
        kernel=st.sampled_from(["auto", "plain", "sdpa", "chunked"]),
    ),
    st.builds(
        MlpConfig, expand=st.floats(0, 8, allow_subnormal=False), activation=st.sampled_from(["", "swiglu", "relu"])
    ),
)
stacks = st.builds(
    StackConfig,
    depth=st.integers(1, 6),
    shared=st.booleans(),
    layers=st.lists(st.lists(parts, max_size=3).map(tuple), max_size=2).map(tuple),
)
models = st.builds(
    TransformerConfig,
    width=st.integers(1, 512),
    encoder=stacks,
    decoder=stacks,
    positions=kinds(POSITIONS),
    norm=st.one_of(kinds(NORMS), st.builds(LayerNormConfig, eps=st.floats(1e-8, 1))),
    wiring=kinds(WIRINGS),
    dropout=st.floats(0, 0.9, allow_subnormal=False),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(models)
def test_round_trip_through_json(config: TransformerConfig) -> None:
    again = validate(TransformerConfig, json.loads(json.dumps(config.model_dump(mode="json"))))
    assert again == config and hash(again) == hash(config)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.what)
def test_every_kind_is_a_name_a_table_and_itself(table: Any) -> None:
    for name in table.names:
        config = table.parse(name)
        assert config == table.parse({"kind": name}) == table.parse(config) == table.parse(config.model_dump())
        assert config.kind == name
    assert table.parse({}).kind == table.default


def test_values_are_frozen() -> None:
    config = TransformerConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.width = 3
    assert len({config, TransformerConfig(), TransformerConfig(width=256)}) == 2


def test_changes_make_a_checked_copy() -> None:
    config = TransformerConfig()
    assert config.replace(width=256, norm="rms").norm == RMSNormConfig() and config.width == 512
    with pytest.raises(ValidationError):
        config.replace(dropout=1.0)


MERGES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
    ({"encoder": {"depth": 3, "shared": True}}, {"encoder": {"depth": 4}}, {"encoder": {"depth": 4, "shared": True}}),
    ({"norm": {"kind": "layer", "eps": 1.0}}, {"norm": {"eps": 2.0}}, {"norm": {"kind": "layer", "eps": 2.0}}),
    ({"norm": {"kind": "layer", "eps": 1.0}}, {"norm": {"kind": "rms"}}, {"norm": {"kind": "rms"}}),
    ({"norm": {"kind": "layer", "eps": 1.0}}, {"norm": "rms"}, {"norm": "rms"}),
    ({"layers": [[1], [2]]}, {"layers": [[3]]}, {"layers": [[3]]}),
    ({}, {"train": {"steps": 1}}, {"train": {"steps": 1}}),
]


@pytest.mark.parametrize(("base", "over", "expected"), MERGES)
def test_merging(base: dict[str, Any], over: dict[str, Any], expected: dict[str, Any]) -> None:
    before = json.dumps([base, over])
    assert merge(base, over) == expected
    assert json.dumps([base, over]) == before  # neither is changed


def error(data: dict[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        validate(TransformerConfig, data, "x.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"widht": 5}, "x.toml: widht: unknown key; did you mean width?"),
        ({"norm": "layr"}, "x.toml: norm.kind: no norm is called 'layr'; did you mean layer?"),
        ({"norm": {"kind": "rms", "epsilon": 1}}, "x.toml: norm.epsilon: unknown key; did you mean eps?"),
        ({"positions": "zzz"}, "x.toml: positions.kind: no position is called 'zzz'; known: alibi, axial, concat"),
        ({"encoder": {"dept": 3}}, "x.toml: encoder.dept: unknown key; did you mean depth?"),
        ({"encoder": {"layers": [[{"kind": "mpl"}]]}}, "x.toml: encoder.layers.0.0.kind: no part is called 'mpl'; did"),
        ({"norm": 3}, "x.toml: norm: a norm is a name or a table with `kind`, not 3"),
        ({"width": "wide"}, "x.toml: width: input should be a valid integer"),
        ({"width": 0}, "x.toml: width: input should be greater than or equal to 1 (it is 0)"),
        ({"dropout": float("nan")}, "x.toml: dropout: input should be a finite number"),
        ({"encoder": {"layers": [[{"kind": "attention", "score_mods": [{"kind": "window", "left": -1}]}]]}},
         "x.toml: encoder.layers.0.0.score_mods.0.left: input should be greater than or equal to 0 (it is -1)"),
    ],
)  # fmt: skip
def test_errors_name_file_and_key_and_the_nearest_names(data: dict[str, Any], sentence: str) -> None:
    message = error(data)
    assert message.startswith(sentence) and "pydantic" not in message


def test_several_mistakes_are_told_at_once() -> None:
    assert len(error({"width": 0, "heads": 0}).splitlines()) == 2


def test_another_kind_replaces_its_table_whole() -> None:
    """What belonged to the old kind would be an unknown key of the new one."""
    base = TransformerConfig(positions={"kind": "learned", "max_length": 99}).model_dump(mode="json")
    config = validate(TransformerConfig, merge(base, {"positions": {"kind": "shaw", "max_distance": 4}}))
    assert config.positions == POSITIONS.parse({"kind": "shaw", "max_distance": 4})


def test_terms_nest() -> None:
    config = AttentionConfig(score_mods=["alibi", {"kind": "window", "left": 3}])
    assert config.score_mods == (SCORE_MODS.parse("alibi"), WindowConfig(left=3))
