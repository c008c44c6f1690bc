"""Keys as other libraries call them: refused with ours, and with the table where it belongs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

import headwise
from headwise.catalog import CATALOG, MODELS
from headwise.config.base import Config, Table, validate
from headwise.config.suggestions import KEY_REMARKS, LABEL_COUNTS, NAME_REMARKS, ROWS, SUGGESTED_KEYS
from headwise.errors import UserError
from headwise.experiment.config import KINDS, Experiment, parse_experiment
from headwise.tasks.tables import TASKS
from headwise.train.config import TrainConfig

WHOLE: dict[str, Any] = {"data": {"train": "pairs.tsv"}, "train": {"steps": 1}}


def kinds_of(field: Any) -> list[type[Config]]:
    """The classes of the tables that a field may hold: all kinds of its slot, or its own class."""
    tables = [getattr(getattr(each, "func", None), "__self__", None) for each in field.metadata]
    found = [kind for table in tables if isinstance(table, Table) for kind in map(table.__getitem__, table.names)]
    own = field.annotation
    return found or ([own] if isinstance(own, type) and issubclass(own, Config) else [])


def holders(key: str) -> list[type[Config]]:
    """All classes that have the last part of a dotted key, on the way from the experiment's root."""
    classes: list[type[Config]] = [Experiment]
    *tables, leaf = key.split(".")
    for part in tables:
        fields = [cls.model_fields[part] for cls in classes if part in cls.model_fields]
        classes = [kind for field in fields for kind in kinds_of(field)]
    return [cls for cls in classes if leaf in cls.model_fields]


def sentence(tables: dict[str, Any]) -> str:
    with pytest.raises(UserError) as told:
        parse_experiment({**WHOLE, **tables}, "own.toml")
    return str(told.value)


@pytest.mark.parametrize("key", sorted({key for keys in SUGGESTED_KEYS.values() for key in keys} | set(KEY_REMARKS)))
def test_every_key_that_is_named_exists(key):
    assert holders(key)
    for kind in re.findall(r'with kind = "(\w+)"', KEY_REMARKS.get(key, "")):
        assert kind in {cls.model_fields["kind"].default for cls in holders(key)}


def test_a_name_has_one_row_and_remarks_are_about_names_and_keys_of_the_rows():
    names = [name for row, _ in ROWS for name in row.split()] + [*LABEL_COUNTS]
    assert len(names) == len(set(names))
    assert all(key in SUGGESTED_KEYS[name] for name, remarks in NAME_REMARKS.items() for key in remarks)


def written_in(place: str, name: str, model: str = "transformer") -> dict[str, Any]:
    if not place:
        return {name: 1}
    head, _, rest = place.partition(".")
    inner: dict[str, Any] = {rest: {name: 1}} if rest else {name: 1}
    kind = {"kind": model} if head == "model" else {}
    return {head: {**WHOLE.get(head, {}), **kind, **inner}}


PLACES = ["", "model", "train", "decode", "task", "data", "train.schedule", "train.optimizer", "tuning"]


@pytest.mark.parametrize("place", PLACES)
def test_every_name_is_told_in_every_table_with_its_key_and_table(place):
    count = 0
    for name, keys in SUGGESTED_KEYS.items():
        prefix = f"{place}." if place else ""
        if prefix + name in keys or holders(prefix + name):
            continue  # it is a key here, of one kind or another
        told = sentence(written_in(place, name))
        assert told.startswith(f"own.toml: {prefix}{name}: unknown key; ")
        if "Headwise calls it" not in told:
            lacking = tuple(f"{table}." for table in KINDS) if place == "" else prefix  # this kind does not have it
            assert all(key.startswith(lacking) for key in keys), told
            continue
        called = re.findall(r"Headwise calls it ([\w.]+)", told)
        assert len(called) == 1 and called[0] in keys, told
        table = called[0].rpartition(".")[0]
        where = f"it belongs in [{table}]" if table else "it belongs before all tables"
        assert (where in told) == (table != place), told
        count += 1
    assert count > 100


@pytest.mark.parametrize("kind", CATALOG)
def test_a_model_is_told_only_keys_that_it_has(kind):
    config = CATALOG[kind].config
    for name in SUGGESTED_KEYS:
        if name in config.known_keys():
            continue
        with pytest.raises(UserError) as told:
            validate(config, {name: 1})
        for key in re.findall(r"Headwise calls it model\.(\w+)", str(told.value)):
            assert key in config.known_keys(), (name, key)


@pytest.mark.parametrize("kind", TASKS.names)
def test_at_the_top_a_task_is_told_only_keys_that_it_has(kind):
    for name, keys in SUGGESTED_KEYS.items():
        if any(key.startswith("task.") for key in keys):
            with pytest.raises(UserError) as told:
                validate(Experiment, {"task": kind, **WHOLE, name: 1})
            for key in re.findall(r"Headwise calls it task\.(\w+)", str(told.value)):
                assert key in TASKS[kind].model_fields


# what is written, and what the sentence says after "unknown key; Headwise calls it "
TOLD = [
    ("learning_rate=1", "train.schedule.lr; it belongs in [train.schedule]"),
    ("d_model=64", "model.width; it belongs in [model]"),
    ("max_length=64", "decode.max_length; it belongs in [decode]"),
    ("seq_len=64", "data.max_length; it belongs in [data]"),
    ("output_dir=out", "name (the folder of all runs is --runs)"),
    ("model.d_model=64", "model.width"),
    ("model.n-embd=64", "model.width"),
    ("model.nhead=4", "model.heads"),
    ("model.layers=4", "model.depth"),
    ("model.num_encoder_layers=4", "model.encoder.depth; it belongs in [model.encoder]"),
    ("model.intermediate_size=4", "model.hidden"),
    ("model.mlp_ratio=4", "model.hidden (in units: mlp_ratio times model.width)"),
    ("model.rope_theta=1", 'model.positions.base (with kind = "rotary"); it belongs in [model.positions]'),
    ("model.vocab_size=9", "tokeniser.size (headwise.build takes it as vocab); it belongs in [tokeniser]"),
    ("model.lr=9", "train.schedule.lr; it belongs in [train.schedule]"),
    ("model.encoder.num_layers=4", "depth"),
    ("model.mixer.num_heads=4", "heads"),
    ("train.learning_rate=1", "train.schedule.lr; it belongs in [train.schedule]"),
    ("train.width=1", "model.width; it belongs in [model]"),
    ("train.max_grad_norm=1", "train.clip_norm"),
    ("train.fp16=true", 'train.precision ("float32" or "bfloat16")'),
    ("train.weight_decay=1", 'train.optimizer.weight_decay (with kind = "adamw"); it belongs in [train.optimizer]'),
    ("train.num_beams=1", "decode.beams; it belongs in [decode]"),
    ("train.seed=1", "seed; it belongs before all tables"),
    ("train.schedule.warmup_ratio=1", "train.schedule.warmup (in steps)"),
    ("train.optimizer.lr=1", "train.schedule.lr; it belongs in [train.schedule]"),
    ("train.optimizer.adam_beta1=1", "train.optimizer.betas (both in one list)"),
    ("decode.num_beams=4", "decode.beams"),
    ("decode.max_new_tokens=4", "decode.max_length"),
    ("decode.batch_size=4", "decode.tokens_per_batch"),
    ("decode.epochs=4", "train.epochs; it belongs in [train]"),
    ("tokeniser.vocab_size=4", "tokeniser.size (headwise.build takes it as vocab)"),
    ("tokeniser.target.vocab_size=4", "size"),
]
BEFORE = {"tokeniser.target.vocab_size=4": ("tokeniser.target.kind=words",)}


@pytest.mark.parametrize(("change", "expected"), TOLD, ids=[change for change, _ in TOLD])
def test_a_change_of_a_file(tmp_path, change, expected):
    file = tmp_path / "own.toml"
    file.write_text('[data]\ntrain = "pairs.tsv"\n[train]\nsteps = 1\n')
    with pytest.raises(UserError) as told:
        Experiment.read(file, (*BEFORE.get(change, ()), change))
    assert str(told.value) == f"{file}: {change.split('=')[0]}: unknown key; Headwise calls it {expected}"


OF_MODELS = [
    ("swin", {"mlp_ratio": 3}, "model.expand"),
    ("swin", {"num_layers": 3}, "model.depths"),
    ("levit", {"embed_dim": 3}, "model.widths"),
    ("gpt2", {"num_encoder_layers": 3}, "model.depth"),
    ("gpt2", {"n_layer": 3}, "model.depth"),
    ("t5", {"num_layers": 3}, "model.depth"),
    ("llama", {"num_key_value_heads": 3}, "model.key_value_heads"),
    ("vit", {"patch_size": 3}, "model.patch"),
    ("vit", {"image_size": 3}, "model.image (in an experiment data.size decides it)"),
    ("detr", {"backbone": {"kind": "resnet", "embed_dim": 3}}, "width"),
]


@pytest.mark.parametrize(("name", "settings", "expected"), OF_MODELS)
def test_built_by_name(name, settings, expected):
    with pytest.raises(UserError) as told:
        headwise.build(name, device="meta", **settings)
    assert str(told.value).endswith(f": unknown key; Headwise calls it {expected}")


def test_what_the_data_say_is_left_out():
    for name in LABEL_COUNTS:
        assert "Headwise counts the labels of the data; leave it out" in sentence({"model": {name: 3}})


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("gpt2", {"layers": 4}), ("llama", {"layers": 4}), ("vit", {"layers": 4}), ("t5", {"encoder": {"layers": 4}})],
)
def test_a_number_of_layers_is_no_pattern_of_them(kind, settings):
    with pytest.raises(UserError, match=r"layers: is a pattern of parts.*; Headwise calls that depth, as in model\."):
        validate(MODELS[kind], settings)


def test_a_key_of_another_kind_is_not_called_by_its_own_name():
    assert sentence({"train": {"steps": 1, "optimizer": {"kind": "adam", "weight_decay": 1}}}).endswith(
        'train.optimizer.weight_decay: unknown key; it comes with kind = "adamw"'
    )
    told = sentence({"train": {"steps": 1, "schedule": {"kind": "noam", "lr": 1}}})
    assert told.endswith("train.schedule.lr: unknown key; known: factor, kind, warmup, width")


def test_a_model_without_heads_names_none():
    assert "Headwise" not in sentence({"model": {"kind": "lstm", "n_heads": 3}})


TYPOS = [
    ({"modle": {}}, "modle: unknown key; did you mean model?"),
    ({"model": {"widht": 3}}, "model.widht: unknown key; did you mean width?"),
    ({"model": {"depht": 3}}, "model.depht: unknown key; did you mean depth?"),
    ({"train": {"stesp": 3}}, "train.stesp: unknown key; did you mean steps?"),
    ({"decode": {"beems": 3}}, "decode.beems: unknown key; did you mean beams or nbest?"),
]


@pytest.mark.parametrize(("tables", "expected"), TYPOS, ids=str)
def test_a_slip_names_the_nearest_as_ever(tables, expected):
    assert expected in sentence(tables)


def test_all_unknown_keys_of_a_table_are_told_at_once():
    told = sentence({"model": {"d_model": 3, "n_heads": 4, "widht": 1}}).splitlines()
    assert [line.rpartition(" ")[2] for line in told] == ["model.width", "model.heads", "width?"]


def test_in_python_too():
    with pytest.raises(
        ValidationError, match=r"Headwise calls it train\.schedule\.lr; it belongs in \[train\.schedule"
    ):
        TrainConfig(steps=1, learning_rate=1)


LACKING = [
    ({}, "data: there is nothing to learn from; write [data] with train = ", "pairs.tsv"),
    ({}, "train: training needs an end; write [train] with minutes = 10", "--set train.minutes=10"),
    ({"task": "language-model"}, "data: there is nothing to learn from", 'format = "text"'),
    ({"task": {"kind": "classify-images"}}, "data: there is nothing to learn from", "folder-of-images"),
    ({"task": "detect", "train": {"steps": 1}}, "data: there is nothing to learn from", "digits"),
    ({"data": {"train": "a.tsv"}}, "train: training needs an end", "minutes = 10"),
]


@pytest.mark.parametrize(("tables", "what", "remedy"), LACKING)
def test_a_missing_table_is_told_with_what_to_write(tables, what, remedy):
    with pytest.raises(UserError) as told:
        parse_experiment(tables, "own.toml")
    (line,) = [line for line in str(told.value).splitlines() if line.startswith(f"own.toml: {what}")]
    assert remedy in line and "field required" not in str(told.value)
    assert ("data: " in str(told.value)) == ("data" not in tables)
    assert ("train: " in str(told.value)) == ("train" not in tables)
