"""Keys of `config.json`: each is read, is another name of one that is, or changes nothing; any other is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
import transformers
from tiny_folders import TINY, VOCAB, assert_equal_logits, build_hf_config, build_hf_model, logits, save_folder
from transformers import GenerationConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from headwise import UserError
from headwise.cli.main import main
from headwise.config.base import validate
from headwise.interop.hf import ARCHITECTURES, list_architectures, load_architecture
from headwise.interop.hf.architecture import HfConfig, HfConfigBase
from headwise.interop.hf.fixed_keys import REMEDIES, list_values
from headwise.interop.hf.ignored_keys import GENERATION, IGNORED_KEYS
from headwise.interop.hf.read import read_folder

# What a model has to be for us to read it, beside their defaults.
NEEDED: dict[str, dict[str, Any]] = {
    kind: {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"]}
    for kind in ("deberta", "deberta-v2")
} | {"longformer": {"type_vocab_size": 1}, "reformer": {"num_buckets": 64}}


def load_schema(kind: str) -> type[HfConfig]:
    return load_architecture(kind).hf_config


def write_default_config(kind: str, folder: Path) -> dict[str, Any]:
    """What `save_pretrained` writes of a config with their defaults."""
    CONFIG_MAPPING[kind](**NEEDED.get(kind, {})).save_pretrained(folder)
    data: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return data


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_what_transformers_writes_is_read(kind: str, tmp_path: Path) -> None:
    read = load_schema(kind).read(write_default_config(kind, tmp_path))
    everything = json.loads(CONFIG_MAPPING[kind](**NEEDED.get(kind, {})).to_json_string(use_diff=False))
    assert load_schema(kind).read(everything) == read
    # A key that is absent has their default, so that an empty file means the same; what they derive is derived here.
    absent = json.loads(load_schema(kind).read(NEEDED.get(kind, {})).model_dump_json())
    derived = {"backbone_config", "down_ops", "rope_parameters", "mask_decoder", "decoder_start_token_id"}
    for key in set(everything) & set(absent) - derived:
        assert absent[key] in (everything[key], None), key


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_an_unknown_key_is_refused(kind: str, tmp_path: Path) -> None:
    data = write_default_config(kind, tmp_path)
    with pytest.raises(UserError, match=r"^here: rotary_dim: 32 is not supported, as nothing here knows"):
        load_schema(kind).read({**data, "rotary_dim": 32}, "here")
    assert load_schema(kind).read({**data, "rotary_dim": None}) == load_schema(kind).read(data)


def pick_other_value(annotation: Any) -> Any:
    """A value of another meaning than the one that a field allows."""
    (value,) = get_args(annotation)
    if isinstance(value, bool):
        return not value
    return 7 if value is None else value + 1 if isinstance(value, int) else "no"


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_unsupported_settings_are_refused(kind: str, tmp_path: Path) -> None:
    """Each key that changes the numbers and that may have but one value."""
    data, changed = write_default_config(kind, tmp_path), 0
    for key, field in load_schema(kind).model_fields.items():
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1:
            with pytest.raises(
                UserError, match=f"^here: {key}: must be .*, not .*; (set it to|no code|transform|it is)"
            ):
                load_schema(kind).read({**data, key: pick_other_value(field.annotation)}, "here")
            changed += 1
    assert changed > 3


def list_schemas(base: type[HfConfigBase]) -> Iterator[type[HfConfigBase]]:
    for schema in base.__subclasses__():
        yield schema
        yield from list_schemas(schema)


def test_what_can_be_done_is_known_for_every_fixed_key() -> None:
    for timm in (False, True):
        assert list(list_architectures(timm))  # all are imported
    fixed = {
        key
        for schema in list_schemas(HfConfigBase)
        for key, field in schema.model_fields.items()
        if len(set(list_values(field.annotation))) == 1 and key != "model_type"
    }
    named = [key for keys in REMEDIES.values() for key in keys]
    assert fixed <= set(named) and len(named) == len(set(named)) and "is_decoder" in fixed
    assert all(re.search(r"set it to|correct it to|use \{library\}", remedy) for remedy in REMEDIES)


def test_keys_of_a_backbone_are_checked_as_well(tmp_path: Path) -> None:
    resnet = {**TINY["detr"]["backbone_config"], "out_features": ["stage2"], "out_indices": [2]}
    timm = {"model_type": "timm_backbone", "backbone": "resnet50", "out_indices": [1, 2, 3, 4]}
    read = load_schema("detr").read
    for backbone in (resnet, timm):
        data = {**TINY["detr"], "backbone_config": backbone}
        read(data)
        for key, value in (("dropped", 3), ("out_indices", [1])):
            with pytest.raises(UserError, match=rf"backbone_config.*{key}"):
                read({**data, "backbone_config": {**backbone, key: value}})
    with pytest.raises(UserError, match=r"backbone_config\.output_stride"):
        read({**TINY["detr"], "backbone_config": {**timm, "output_stride": 16}})
    old = {"backbone": "resnet50", "use_timm_backbone": True}
    read({**old, "backbone_kwargs": {"in_chans": 3, "out_indices": [1, 2, 3, 4]}})
    with pytest.raises(UserError, match="out_indices"):
        read({**old, "backbone_kwargs": {"out_indices": [1, 2, 3]}})
    with pytest.raises(UserError, match="output_stride"):
        read({**old, "backbone_kwargs": {"output_stride": 16}})


def test_keys_that_say_how_to_generate_are_those_of_transformers() -> None:
    assert set(GenerationConfig._get_default_generation_params()) <= GENERATION | IGNORED_KEYS


def test_keys_without_effect_are_in_no_schema_as_a_single_value() -> None:
    """What may have one value only does change the numbers."""
    for kind in ARCHITECTURES:
        single = {k for k, f in load_schema(kind).model_fields.items() if get_origin(f.annotation) is Literal}
        assert not single & (IGNORED_KEYS | set(load_schema(kind).ignored_keys)) - {"architectures"}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_aliases_are_those_of_transformers(kind: str) -> None:
    assert dict(load_schema(kind).aliases) == CONFIG_MAPPING[kind].attribute_map


ALIASES = [(kind, alias) for kind in ARCHITECTURES for alias in CONFIG_MAPPING[kind].attribute_map]


@pytest.mark.parametrize(("kind", "alias"), ALIASES)
def test_an_alias_is_read_as_the_key(kind: str, alias: str) -> None:
    key = load_schema(kind).aliases[alias]
    data = json.loads(build_hf_config(kind).to_json_string(use_diff=False))
    value = data.pop(key, 2)
    data = {name: each for name, each in data.items() if name != "num_decoder_layers"}
    read, expected = (
        load_schema(kind).read({**data, alias: value}),
        CONFIG_MAPPING[kind].from_dict({**data, alias: value}),
    )
    for name in {key, "num_decoder_layers"} & set(load_schema(kind).model_fields):
        assert json.loads(read.model_dump_json())[name] == getattr(expected, name)
    assert load_schema(kind).read({**data, key: value, alias: value}) == load_schema(kind).read({**data, key: value})
    with pytest.raises(UserError, match=f"{alias}: is .* but {key}, the same setting, is .*; keep one"):
        load_schema(kind).read({**data, key: value, alias: [3, 5] if isinstance(value, list) else value + 1})


@pytest.mark.parametrize("kind", ["gpt2", "bart", "t5"])
@torch.inference_mode()
def test_a_folder_with_aliases_gives_the_same_logits(kind: str, tmp_path: Path) -> None:
    name = next(iter(load_architecture(kind).classes))
    model = build_hf_model(kind, name)
    path = save_folder(model, tmp_path) / "config.json"
    data = json.loads(path.read_text())
    for alias, key in load_schema(kind).aliases.items():
        data[alias] = data.pop(key)
    path.write_text(json.dumps(data))
    assert_equal_logits(read_folder(tmp_path), type(model).from_pretrained(tmp_path).eval())


ROTARY: list[dict[str, Any]] = [
    {},
    {"rope_theta": 55.0},
    {"rope_scaling": {"rope_type": "default", "rope_theta": 77}},
    {"rope_scaling": {"type": "default"}, "rope_theta": 55.0},
    {"rope_scaling": {"rope_type": "default", "rope_theta": 77}, "rope_theta": 55.0},
    {"rope_scaling": {"rope_theta": 77}, "rope_parameters": {"rope_type": "default", "rope_theta": 66.0}},
    {"rope_scaling": {"rope_type": "default"}, "rope_parameters": {"rope_type": "default", "rope_theta": 66.0}},
    {"rope_scaling": {}, "rope_parameters": {"rope_theta": 66.0}},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 66.0}, "rope_theta": 55.0},
    {"rope_parameters": {"rope_type": "default", "factor": 4.0}, "rope_theta": 55.0},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 66.0, "partial_rotary_factor": 1.0}},
]


@pytest.mark.parametrize("kind", ["llama", "mistral"])
@pytest.mark.parametrize("rotary", ROTARY, ids=str)
@torch.inference_mode()
def test_bases_of_rotary_positions_are_those_of_transformers(kind: str, rotary: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model(kind, next(iter(load_architecture(kind).classes)))
    path = save_folder(model, tmp_path) / "config.json"
    plain = {key: value for key, value in json.loads(path.read_text()).items() if not key.startswith("rope_")}
    path.write_text(json.dumps(plain | rotary))
    again = type(model).from_pretrained(tmp_path).eval()
    imported = read_folder(tmp_path)
    assert imported.config.positions.base == again.config.rope_parameters["rope_theta"]
    assert_equal_logits(imported, again)


PAIRS = [1.0, 1.5, 2.0, 4.0]
SCALED: list[dict[str, Any]] = [
    {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 55.0},
    {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 4},
    {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}},
    {"rope_parameters": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 4, "beta_fast": 3}},
    {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.3, "truncate": False}},
    {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3}},
    {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 0.5, "high_freq_factor": 4.0}},
    {
        "rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 0.5, "high_freq_factor": 4.0},
        "original_max_position_embeddings": 5,
    },
    {"rope_parameters": {"rope_type": "longrope", "short_factor": PAIRS, "long_factor": PAIRS[::-1]}},
    {
        "rope_parameters": {"rope_type": "longrope", "short_factor": PAIRS, "long_factor": PAIRS[::-1]},
        "original_max_position_embeddings": 4,
    },
]


@pytest.mark.parametrize("kind", ["llama", "mistral"])
@pytest.mark.parametrize("rotary", SCALED, ids=str)
@torch.inference_mode()
def test_scaled_rotary_positions_are_those_of_transformers(kind: str, rotary: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model(kind, next(iter(load_architecture(kind).classes)))
    path = save_folder(model, tmp_path / "in") / "config.json"
    plain = {key: value for key, value in json.loads(path.read_text()).items() if not key.startswith("rope_")}
    path.write_text(json.dumps(plain | rotary))
    again = type(model).from_pretrained(path.parent).eval()
    imported = read_folder(path.parent)
    assert_equal_logits(imported, again)
    unscaled = logits(imported, model.eval())
    assert not torch.allclose(*unscaled), "the scaling changes nothing"
    # Written and read again by both, it is the same.
    config = load_schema(kind).from_model_config(imported.config, VOCAB)
    assert imported.config == validate(type(imported.config), config.to_settings("language-model", ())).replace(
        **{key: getattr(imported.config, key) for key in ("suppress_ids", "tie")}
    )
    data = json.loads(config.model_dump_json(exclude_none=True))
    reread = type(model)(type(model.config).from_dict(data)).eval()
    reread.load_state_dict(model.state_dict())
    assert_equal_logits(imported, reread)


@pytest.mark.parametrize(
    ("rotary", "complaint"),
    [
        (
            {"rope_scaling": {"rope_type": "linear"}},
            r"rope_scaling\.factor: is missing; rotary positions of type 'linear'",
        ),
        ({"rope_scaling": {"type": "su"}}, r"rope_scaling\.rope_type: 'su' is not supported; the types are default, "),
        ({"rope_parameters": {"mrope_section": [2, 2]}}, r"rope_parameters\.mrope_section: is not supported"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": "2"}}, r"rope_parameters\.factor: is '2'; it must be"),
        (
            {"rope_parameters": {"rope_type": "longrope", "short_factor": 1.0, "long_factor": [1.0]}},
            r"rope_parameters\.short_factor: must be a list of numbers",
        ),
        ({"rope_scaling": {"rope_type": "default", "rope_theta": "wide"}}, r"rope_scaling\.rope_theta: is 'wide'"),
        ({"rope_theta": -1.0}, "rope_theta"),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor: is 0\.5, but .* rotates whole heads"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, r"partial_rotary_factor: is 0\.5, but .*; remove it"),
    ],
    ids=str,
)
def test_other_rotary_positions_are_refused(rotary: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=f"^here: {complaint}") as refused:
        load_schema("llama").read({**TINY["llama"], **rotary}, "here")
    assert "\n" not in str(refused.value)


FEEDFORWARD: list[dict[str, Any]] = [
    {"feed_forward_proj": "gated-gelu"},
    {"feed_forward_proj": "gated-gelu", "dense_act_fn": "relu"},
    {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu"},
    {"feed_forward_proj": "relu", "dense_act_fn": "silu", "is_gated_act": True},
    {"feed_forward_proj": "gated-relu", "is_gated_act": False},
    {"feed_forward_proj": "tanh"},
]


@pytest.mark.parametrize("settings", FEEDFORWARD, ids=str)
@torch.inference_mode()
def test_feed_forward_networks_of_t5(settings: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model("t5", "T5ForConditionalGeneration", **settings)
    path = save_folder(model, tmp_path) / "config.json"
    data = {
        key: value for key, value in json.loads(path.read_text()).items() if key not in ("dense_act_fn", "is_gated_act")
    }
    path.write_text(json.dumps(data | settings))
    assert_equal_logits(read_folder(tmp_path), transformers.T5ForConditionalGeneration.from_pretrained(tmp_path).eval())


@pytest.mark.parametrize(
    "settings",
    [
        {"feed_forward_proj": "gated-tanh"},
        {"feed_forward_proj": "mish"},
        {"dense_act_fn": "mish"},
        {"feed_forward_proj": "tanh", "is_gated_act": True},
        {"feed_forward_proj": "gated-gelu-new"},
        {"hidden_act": "relu"},
        {"rotary_dim": 2},
    ],
    ids=str,
)
def test_a_refusal_is_one_sentence_and_no_traceback(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_folder(build_hf_model("t5", "T5ForConditionalGeneration"), tmp_path / "in") / "config.json"
    data = {
        key: value for key, value in json.loads(path.read_text()).items() if key not in ("dense_act_fn", "is_gated_act")
    }
    path.write_text(json.dumps(data | settings))
    with pytest.raises(SystemExit) as stopped:
        main(["import", str(path.parent), str(tmp_path / "run")])
    said = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2 and len(said) == 1 and "config.json: " in said[0]
    assert any(key in said[0] for key in settings) and not (tmp_path / "run").exists()


def test_an_unknown_activation_is_refused_in_one_sentence() -> None:
    with pytest.raises(UserError) as refused:
        load_schema("bert").read({**TINY["bert"], "hidden_act": "mish"})
    assert str(refused.value).count("hidden_act") == 1 and "'gelu'" in str(refused.value)
