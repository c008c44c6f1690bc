"""`tokenizer_config.json` and its kin: token ids and decoded texts are those of `AutoTokenizer`, or it is refused."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from tiny_folders import build_hf_model
from tiny_tokenizers import FAMILIES, MAIN, SAMPLES, Family, train, write_folder
from transformers import AutoTokenizer
from transformers.models.auto import tokenization_auto
from transformers.utils import logging

from headwise.errors import UserError
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.folders import read_json
from headwise.interop.hf import ARCHITECTURES, load_architecture
from headwise.interop.hf.architecture import HfTextConfig
from headwise.interop.hf.tokenizer_classes import ALIASES, ALWAYS_REGISTERED, CLASSES, REGISTERED, VERBATIM
from headwise.interop.hf.tokenizer_config import ACTING, CLASS_KEYS, NEUTRAL, NO_EFFECT, ROLES, resolve_tokenizer
from headwise.text.hf import HfTokeniser, VocabularyMap
from headwise.text.normalise import PLAIN

logging.set_verbosity_error()

TYPE = {"__type": "AddedToken"}
TOKEN = {"lstrip": True, "rstrip": True, "single_word": False, "normalized": False, "special": True}
# A changed value of every key that acts or could act; several where one shows too little.
CHANGES: dict[str, tuple[Any, ...]] = {
    **{
        f"{role}_token": ("cat", "<new>", None, {"content": "dog", **TOKEN, **TYPE}, {"content": "sat", **TYPE})
        for role in ROLES
    },
    "added_tokens_decoder": (
        {"5": {"content": "cat", **TOKEN}, "900": {"content": "Sat", **TOKEN, "normalized": True, "special": False}},
        {"7": {"content": "<word>", **TOKEN, "rstrip": False}, "8": {"content": "at", **TOKEN, "single_word": True}},
        {},
    ),
    "extra_special_tokens": (["dog", "<new>"], {"image_token": "dog"}, [], None),
    "additional_special_tokens": (["dog", "<new>"], []),
    "split_special_tokens": (True,),
    "clean_up_tokenization_spaces": (True,),
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": (True,),
    "tokenizer_class": (VERBATIM, "BertTokenizerFast", "GPT2Tokenizer", "LlamaTokenizerFast", "NoSuchTokenizer", None),
    "add_prefix_space": (True, False),
    "do_lower_case": (True, False),
    "strip_accents": (True, False),
    "tokenize_chinese_chars": (False,),
    "keep_accents": (True,),
    "clean_text": (False,),
    "wordpieces_prefix": ("#",),
    "model_input_names": (["input_ids"], ["input_ids", "token_type_ids"], []),
    "split_by_punct": (True,),
    "unk_id": (3,),
    "legacy": (True,),
    "extra_ids": (3, 0),
    "offset": (5,),
    "mask_token_sent": ("dog", None),
    "src_lang": ("de_DE",),
    "auto_map": ({"AutoTokenizer": ["a.B", "a.C"]},),
    "init_inputs": (["x"],),
    "fast_tokenizer_files": (["tokenizer.4.0.0.json"],),
    "fix_mistral_regex": (True,),
    "image_token": ("dog",),
    "no_such_key": (1,),
}
SIDES = {"truncation_side": "left", "padding_side": "left", "stride": 1, "max_length": 3, "model_max_length": 3}


def compare(folder: Path, texts: list[str] = SAMPLES) -> str:
    """What differs between `AutoTokenizer` and Headwise; empty if nothing does. UserError where Headwise refuses."""
    resolved = resolve_tokenizer(folder, read_json(folder / "config.json"))
    try:
        expected = AutoTokenizer.from_pretrained(folder)
    except Exception:  # a folder that transformers refuses, in any way
        return ""
    size = 1 + max(expected.get_vocab().values())
    plain = VocabularyMap(size)  # without roles, every special token is found in a text, as in transformers
    ours = HfTokeniser(resolved.tokenizer_json, plain, PLAIN, False, resolved.clean_up, resolved.split_special_tokens)
    skipped = {*expected.all_special_ids, *(i for i, token in expected.added_tokens_decoder.items() if token.special)}
    for text in texts:
        try:
            ids = expected(text, add_special_tokens=False).input_ids
        except Exception:  # no unknown token
            return ""
        if [plain.hf_ids[number] for number in ours.encode(text)] != ids:
            return f"ids of {text!r}: {ids}"
        if list(ours.tokenizer.encode(text).ids) != expected(text).input_ids:
            return f"special tokens around {text!r}: {expected(text).input_ids}"
        kept = [number for number in ids if number not in skipped]
        if ours.decode([plain.headwise_ids[number] for number in kept]) != expected.decode(kept):
            return f"decoding {kept}: {expected.decode(kept)!r}"
        if ours.decode([plain.headwise_ids[i] for i in ids]) != expected.decode(ids, skip_special_tokens=True):
            return f"decoding {ids}: {expected.decode(ids, skip_special_tokens=True)!r}"
    pair, expected_pair = ours.tokenizer.encode("cat", "dog"), expected("cat", "dog")
    if list(pair.ids) != expected_pair.input_ids:
        return f"two texts: {expected_pair.input_ids}"
    types = list(pair.type_ids) if resolved.returns_token_types else [0] * len(pair.ids)
    if types != expected_pair.get("token_type_ids", [0] * len(types)):
        return f"token types of two texts: {expected_pair.get('token_type_ids')}"
    return ""


def compare_unless_refused(folder: Path, texts: list[str] = SAMPLES) -> str:
    """The same for a folder that may be refused, with a sentence that names the folder."""
    try:
        return compare(folder, texts)
    except UserError as error:
        return "" if "\n" not in str(error) and str(folder) in str(error) else f"message: {error}"


def list_changes(family: Family) -> list[tuple[str, Any]]:
    """Changes of keys that act in the class of a family, and two of each special token."""
    inert = CLASS_KEYS - set(CLASSES[family.name].settings)
    few = {key: values[::3] if key.removesuffix("_token") in ROLES else values for key, values in CHANGES.items()}
    return [(key, value) for key, values in few.items() if key not in inert for value in values]


def find_differences(family: Family, changes: list[tuple[str, Any]], folder: Path) -> dict[str, str]:
    differences = {}
    for number, (key, value) in enumerate(changes):
        config = {"tokenizer_class": family.name, key: value}
        differences[f"{key}={value}"] = compare_unless_refused(
            write_folder(folder / str(number), family, tokenizer_config=config)
        )
    return {change: difference for change, difference in differences.items() if difference}


@pytest.mark.parametrize("name", MAIN)
def test_a_changed_key_gives_the_ids_of_transformers_or_is_refused(name: str, tmp_path: Path) -> None:
    assert find_differences(FAMILIES[name], list_changes(FAMILIES[name]), tmp_path) == {}


@pytest.mark.weights
@pytest.mark.parametrize("name", FAMILIES)
def test_every_key_in_every_class(name: str, tmp_path: Path) -> None:
    everything = [(key, value) for key, values in CHANGES.items() for value in values]
    singles = [(key, value) for key in NO_EFFECT for value in (SIDES.get(key, "x"), True, 2, None)]
    assert find_differences(FAMILIES[name], everything + singles, tmp_path) == {}


@pytest.mark.parametrize("name", FAMILIES)
def test_unchanged_folders_and_keys_without_effect(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    inert = {key: SIDES.get(key, True) for key in NO_EFFECT if key not in ("tokenizer_file", "vocab_file")}
    others = {key: "de_DE" if key == "src_lang" else True for key in CLASS_KEYS - set(CLASSES[family.name].settings)}
    config = {"tokenizer_class": family.name, **inert, **others}
    assert compare(write_folder(tmp_path / "plain", family)) == ""
    assert compare_unless_refused(write_folder(tmp_path / "bare", family, tokenizer_config=None)) == ""
    assert compare(write_folder(tmp_path / "inert", family, tokenizer_config=config)) == ""


def test_every_key_has_a_changed_value() -> None:
    assert {*ACTING, *NEUTRAL, *CLASS_KEYS} <= CHANGES.keys()
    assert not NO_EFFECT.keys() & {*ACTING, *NEUTRAL, *CLASS_KEYS}


def test_every_parameter_of_every_class_is_accounted_for() -> None:
    for name, kind in CLASSES.items():
        if kind.build is None:
            continue
        tokenizer_class = tokenization_auto.tokenizer_class_from_name(name)
        parameters = inspect.signature(tokenizer_class.__init__).parameters
        defaults = {key: p.default for key, p in parameters.items() if p.default is not inspect.Parameter.empty}
        built_in = {"vocab", "merges", "_spm_precompiled_charsmap"}
        assert set(defaults) <= {*built_in, *ACTING, *NO_EFFECT, *kind.settings}, name
        tokens = {role: defaults[f"{role}_token"] for role in ROLES if f"{role}_token" in defaults}
        assert tokens == dict(kind.tokens), name
        expected = {"src_lang": None, **defaults}
        actual = {**kind.settings, "src_lang": None}
        assert all(expected[key] == value for key, value in actual.items()), name


def test_classes_are_those_of_auto_tokenizer() -> None:
    names = tokenization_auto.TOKENIZER_MAPPING_NAMES
    for model_type in ARCHITECTURES:
        if issubclass(load_architecture(model_type).hf_config, HfTextConfig):
            expected = names.get(model_type) or ""
            assert REGISTERED.get(model_type, "") == ALIASES.get(expected, expected), model_type
            forced = model_type in tokenization_auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
            assert (model_type in ALWAYS_REGISTERED) == (forced and REGISTERED[model_type] != VERBATIM)
    for alias, name in ALIASES.items():
        for suffix in ("", "Fast") if alias not in ("TokenizersBackend", "PythonBackend") else ("",):
            found = tokenization_auto.tokenizer_class_from_name(alias + suffix)
            expected_class = tokenization_auto.tokenizer_class_from_name(name)
            python = tokenization_auto.tokenizer_class_from_name("PreTrainedTokenizer")
            assert issubclass(found, expected_class) or (found is python and name == VERBATIM)


@pytest.mark.parametrize("key", [*NEUTRAL, "no_such_key", "tokenizer_class"])
def test_what_is_unknown_or_not_supported_is_named(key: str, tmp_path: Path) -> None:
    value = "NoSuchTokenizer" if key == "tokenizer_class" else CHANGES[key][0]
    folder = write_folder(tmp_path, MAIN["bert"], tokenizer_config={"tokenizer_class": "BertTokenizer", key: value})
    with pytest.raises(UserError, match=f"tokenizer_config.json: {key}"):
        resolve_tokenizer(folder, {"model_type": "bert"})


@pytest.mark.parametrize("name", ["bert", "t5", "mbart", "words"])
def test_damaged_files_are_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    family, number = FAMILIES[name], 0
    data = train(family.kind, tuple(family.specials))
    for junk in (
        1,
        -1,
        10**12,
        "x",
        [],
        [1],
        [None],
        {},
        {"a": 1},
        {"content": 3},
        {"1": {"content": "q", "lstrip": 1}},
    ):
        damaged: list[dict[str, Any]] = [
            *({"tokenizer_config": {"tokenizer_class": family.name, key: junk}} for key in (*ACTING, *CLASS_KEYS)),
            *({"special_tokens_map": {key: junk}} for key in ("pad_token", "additional_special_tokens")),
            *({"tokenizer": {**data, key: junk}} for key in ("added_tokens", "normalizer", "post_processor", "model")),
            {"tokenizer": {**data, "added_tokens": [junk]}},
            {"tokenizer": {**data, "model": {**data["model"], "vocab": junk}}},
            {"added_tokens": {"cat": junk}},
        ]
        for files in damaged:
            folder, number = write_folder(tmp_path / str(number), family, **files), number + 1
            try:
                resolve_tokenizer(folder, {"model_type": family.model_type})
            except UserError as error:
                message = str(error)
                assert str(folder) in message and "\n" not in message and len(message) < 500


OLDER_FILES: list[dict[str, Any]] = [
    {"special_tokens_map": {"pad_token": "cat", "additional_special_tokens": ["dog"]}},
    {"special_tokens_map": {"unk_token": {"content": "<unk>", "lstrip": True}, "extra_special_tokens": ["sat"]}},
    {"added_tokens": {"<new>": 900, "cat": 5}},
    {
        "tokenizer_config": {
            "mask_token": "<new1>",
            "pad_token": "<new2>",
            "bos_token": "<new3>",
            "image_token": "<new4>",
        }
    },
    {
        "special_tokens_map": {"pad_token": "cat"},
        "added_tokens": {"<new>": 900},
        "tokenizer_config": {"added_tokens_decoder": {"3": {"content": "dog", **TOKEN}}, "pad_token": "sat"},
    },
    {"tokenizer_config": {"tokenizer_class": None}, "special_tokens_map": {"image_token": "dog"}},
]


@pytest.mark.parametrize("name", [*MAIN, "pegasus", "mbart", "mbart50"])
def test_older_files_complete_the_config(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    for number, files in enumerate(OLDER_FILES):
        config = {"tokenizer_class": family.name, **files.get("tokenizer_config", {})}
        path = write_folder(tmp_path / str(number), family, **{**files, "tokenizer_config": config})
        assert compare_unless_refused(path) == "", files


@pytest.mark.parametrize("name", MAIN)
def test_parts_of_tokenizer_json_that_a_class_leaves_out(name: str, tmp_path: Path) -> None:
    """A normalizer, post-processor, padding and truncation of the file act only where they do in transformers."""
    family = FAMILIES[name]
    data = train(family.kind, tuple(family.specials))
    changes: list[dict[str, Any]] = [
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {"type": "Whitespace"}, "decoder": None},
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"x": {"id": "x", "ids": [1], "tokens": ["x"]}},
            }
        },
        {
            "truncation": {"direction": "Left", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
            "padding": {
                "strategy": {"Fixed": 9}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0,
                "pad_type_id": 0, "pad_token": "<padding>",
            },
        },
        {"model": {**data["model"], "dropout": None if family.name == VERBATIM else 0.5}},
        {"model": {**data["model"], "unk_id": 0} if family.kind == "unigram" else {**data["model"], "fuse_unk": True}},
    ]  # fmt: skip
    for number, change in enumerate(changes):
        assert compare(write_folder(tmp_path / str(number), family, tokenizer={**data, **change})) == "", change


def test_words_that_are_split_at_random_are_refused(tmp_path: Path) -> None:
    family = FAMILIES["gpt2"]
    data = train(family.kind, tuple(family.specials))
    files = {"tokenizer": {**data, "model": {**data["model"], "dropout": 0.5}}}
    folder = write_folder(tmp_path, family, **files, tokenizer_config={"tokenizer_class": VERBATIM})
    with pytest.raises(UserError, match=r"tokenizer\.json has a BPE dropout of 0\.5, .*; set it to null"):
        resolve_tokenizer(folder, {"model_type": "gpt2"})


ROLE_TOKENS = {"bert": {"pad": 0, "bos": 2, "eos": 3, "mask": 4}, "roberta": {"bos": 0, "pad": 1, "eos": 2, "mask": 4}}


@pytest.mark.parametrize("name", ROLE_TOKENS)
def test_padding_bos_eos_and_mask_are_text_with_a_warning(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The one exception: in transformers they are tokens. Other special tokens are found in a text."""
    folder = write_folder(tmp_path, MAIN[name])
    resolved = resolve_tokenizer(folder, read_json(folder / "config.json"))
    expected = AutoTokenizer.from_pretrained(folder)
    vocabulary_map = VocabularyMap(len(expected), **ROLE_TOKENS[name])
    ours = HfTokeniser(resolved.tokenizer_json, vocabulary_map)
    for number in ROLE_TOKENS[name].values():
        text = f"the {expected.convert_ids_to_tokens(number)} cat"
        ids = expected(text, add_special_tokens=False, split_special_tokens=True).input_ids
        assert [vocabulary_map.hf_ids[token] for token in ours.encode(text)] == ids
    assert len(caplog.records) == len(ROLE_TOKENS[name])
    text = "cat<extra> dog"
    ids = expected(text, add_special_tokens=False).input_ids
    assert [vocabulary_map.hf_ids[token] for token in ours.encode(text)] == ids
    assert expected.convert_tokens_to_ids("<extra>") in ids and len(caplog.records) == len(ROLE_TOKENS[name])


MODELS = {
    "bert": "BertForMaskedLM", "qwen2": "Qwen2ForCausalLM", "roberta": "RobertaForSequenceClassification",
    "t5": "T5ForConditionalGeneration",
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_folder_has_the_same_tokenizer(name: str, tmp_path: Path) -> None:
    """A model of a few weights with the tokenizer of a folder, imported and exported again."""
    family = FAMILIES[name]
    flags = {"clean_up_tokenization_spaces": True, "split_special_tokens": True}
    write_folder(tmp_path / "in", family, tokenizer_config={"tokenizer_class": family.name, **flags})
    original = AutoTokenizer.from_pretrained(tmp_path / "in")
    save_model(family.model_type, original, tmp_path / "in")
    loaded = from_hf(tmp_path / "in")
    to_hf(loaded, tmp_path / "out")
    again = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in SAMPLES:
        ids = original(text).input_ids
        assert again(text).input_ids == ids
        assert again.decode(ids, skip_special_tokens=True) == original.decode(ids, skip_special_tokens=True)
    assert compare(tmp_path / "out") == ""
    back = from_hf(tmp_path / "out").tokenisers.source
    assert [back.encode(text) for text in SAMPLES] == [loaded.tokenisers.source.encode(text) for text in SAMPLES]


def save_model(model_type: str, tokenizer: Any, folder: Path) -> None:
    """A small model with a row for each token."""
    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ROLES}
    settings = {**ids, "decoder_start_token_id": tokenizer.pad_token_id, "vocab_size": len(tokenizer)}
    build_hf_model(model_type, MODELS[model_type], **settings).save_pretrained(folder)


def test_a_template_that_the_model_does_not_read_is_refused(tmp_path: Path) -> None:
    """Headwise would put [CLS] and [SEP] around a text, transformers nothing."""
    tokens = {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    write_folder(tmp_path, MAIN["bert"], tokenizer_config={"tokenizer_class": VERBATIM, **tokens})
    save_model("bert", AutoTokenizer.from_pretrained(tmp_path), tmp_path)
    with pytest.raises(UserError, match=r"post_processor: transformers reads a text as '\.\.\.', .* here as '\[CLS\]"):
        from_hf(tmp_path)


def write_vocabulary_files(folder: Path, family: Family, **files: Any) -> Path:
    """An older folder, without a tokenizer.json."""
    write_folder(folder, family, **files)
    model = read_json(folder / "tokenizer.json")["model"]
    (folder / "tokenizer.json").unlink()
    if model["type"] == "WordPiece":
        words = sorted(model["vocab"], key=lambda word: model["vocab"][word])
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    else:
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
        merges = "\n".join(" ".join(merge) for merge in model["merges"])
        (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["bert", "funnel", "gpt2", "roberta", "deberta", "gpt_neox", "qwen2", "openai-gpt"])
def test_folders_with_vocabulary_files_alone_have_equal_ids(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    changes: list[dict[str, Any]] = [
        {},
        {"tokenizer_config": None},
        {"special_tokens_map": {"unk_token": {"content": "<new>", "lstrip": True}}, "added_tokens": {"dog": 900}},
        {"tokenizer_config": {"tokenizer_class": family.name, "do_lower_case": False, "add_prefix_space": True}},
    ]
    for number, files in enumerate(changes):
        folder = write_vocabulary_files(tmp_path / str(number), family, **files)
        assert compare_unless_refused(folder) == "", files
    assert compare(tmp_path / "0") == ""


def test_vocabulary_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    folder = write_vocabulary_files(tmp_path, FAMILIES["gpt2"])
    config = {"tokenizer_config": {"tokenizer_class": VERBATIM}}
    verbatim = write_vocabulary_files(tmp_path / "verbatim", FAMILIES["gpt2"], **config)
    with pytest.raises(UserError, match=r"tokenizer_class: .*AutoTokenizer.from_pretrained"):
        resolve_tokenizer(verbatim, {"model_type": "gpt2"})
    (folder / "merges.txt").write_text("a b c\n")
    with pytest.raises(UserError, match=r"merges.txt: cannot be read"):
        resolve_tokenizer(folder, {"model_type": "gpt2"})
