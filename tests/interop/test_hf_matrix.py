"""docs/hugging-face.md is what the tables of architectures say."""

import json
from pathlib import Path

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from headwise.interop.hf import ARCHITECTURES, load_architecture
from headwise.interop.hf.ignored_keys import IGNORED_KEYS, MODEL_REASONS, REASONS, find_reason
from headwise.interop.hf.matrix import COLUMNS, TESTED, build_row, list_fixed_keys, render_keys, render_page


def test_the_page_is_generated() -> None:
    """If it is not: python -m headwise.interop.hf.matrix"""
    page = Path(__file__).parents[2] / "docs" / "hugging-face.md"
    assert page.read_text("utf-8") == render_page()


def test_the_version_is_the_installed_one() -> None:
    assert transformers.__version__.startswith(f"{TESTED}.")


def test_every_task_of_every_architecture_has_a_column() -> None:
    tasks = {task for name in ARCHITECTURES for task in load_architecture(name).classes.values()}
    assert tasks <= {task for names in COLUMNS.values() for task in names}


def test_cells_follow_the_classes() -> None:
    assert build_row("gpt2") == ["`gpt2`", "`gpt2`", "yes", "yes", "yes", *[""] * 8, "`tokenizer.json`"]
    assert build_row("bert")[5:9] == ["yes"] * 4 and build_row("vit")[-1] == "`preprocessor_config.json`"


def test_every_ignored_key_has_one_reason() -> None:
    """If a key of a new architecture has none: add it to MODEL_REASONS in interop/hf/ignored_keys.py."""
    ignored = {key for name in ARCHITECTURES for key in load_architecture(name).hf_config.ignored_keys}
    assert not {key for key in ignored if not find_reason(key)}
    for reasons in (REASONS, MODEL_REASONS):
        listed = [key for keys in reasons.values() for key in keys]
        assert len(listed) == len(set(listed))
    assert {key for keys in REASONS.values() for key in keys} == IGNORED_KEYS


def test_the_page_has_every_key_of_every_class() -> None:
    """Each key of the class of transformers is used, fixed or without effect, and stands in the page."""
    general = render_page().partition("## Keys of config.json")[2].partition("### ")[0]
    for kind in ARCHITECTURES:
        text = render_keys(kind) + general
        keys = json.loads(CONFIG_MAPPING[kind]().to_json_string(use_diff=False)).keys() - {"model_type"}
        names = {key: key.removeprefix("_") if key == "_remove_final_layer_norm" else key for key in keys}  # of OPT
        missing = {key for key, name in names.items() if f"`{name}`" not in text and f"`{name} = " not in text}
        assert not missing, f"{kind}: {sorted(missing)}"


def test_keys_are_used_fixed_or_without_effect_never_two_of_them() -> None:
    for name in ARCHITECTURES:
        schema = load_architecture(name).hf_config
        assert not schema.model_fields.keys() & set(schema.ignored_keys), name
    assert list_fixed_keys(load_architecture("gpt2").hf_config)["is_decoder"] is False
    assert "- fixed: " in render_keys("fnet") and "`use_tpu_fourier_optimizations = false`" in render_keys("fnet")
