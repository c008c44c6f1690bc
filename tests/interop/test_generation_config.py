"""A folder's generation_config.json is what its model generates with, unless the user says otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
)

from headwise import UserError, from_hf, to_hf
from headwise.text import BOS

WORDS = 40
SPECIAL = {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>"}
TEXTS = ["w7 w9 w12", "w30 w31 w8 w9 w21", "w5"]
SEARCH: dict[str, Any] = {
    "num_beams": 3, "no_repeat_ngram_size": 2, "length_penalty": 0.5, "forced_eos_token_id": 2, "min_length": 4,
    "max_length": 14, "suppress_tokens": [11, 17], "repetition_penalty": 1.3, "early_stopping": True,
    "decoder_start_token_id": 2, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "forced_bos_token_id": 0,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(3)
    sizes = {f"{side}_{key}": size for side in ("encoder", "decoder") for key, size in SIZES.items()}
    model = BartForConditionalGeneration(BartConfig(vocab_size=WORDS, d_model=24, init_std=0.4, **sizes))
    model.save_pretrained(tmp_path)
    vocabulary = {SPECIAL.get(number, f"w{number}"): number for number in range(WORDS)}
    engine = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=engine, **names).save_pretrained(tmp_path)
    return tmp_path


SIZES = {"layers": 1, "attention_heads": 3, "ffn_dim": 40}


def generate(folder: Path, **settings: Any) -> list[str]:
    """What transformers generates with the folder's settings."""
    model = BartForConditionalGeneration.from_pretrained(folder).eval()
    outputs = []
    for text in TEXTS:
        ids = torch.tensor([[0, *(int(word[1:]) for word in text.split()), 2]])
        row = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0].tolist()
        outputs.append(" ".join(f"w{token}" for token in row if token > 3))
    return outputs


def test_texts_are_generated_with_the_settings_of_the_folder(folder: Path) -> None:
    GenerationConfig(**SEARCH).save_pretrained(folder)
    loaded = from_hf(folder)
    assert loaded.translate(TEXTS) == generate(folder)
    assert loaded.experiment.decode.beams == 3 and loaded.experiment.decode.convention == "generate"


def test_the_user_has_the_last_word(folder: Path) -> None:
    GenerationConfig(**SEARCH).save_pretrained(folder)
    greedy = from_hf(folder).translate(TEXTS, beams=1, no_repeat_ngram_size=0)
    assert greedy == generate(folder, num_beams=1, no_repeat_ngram_size=0) != generate(folder)


def test_without_the_file_older_keys_of_config_json_count(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_beams": 2, "no_repeat_ngram_size": 3}))
    decode = from_hf(folder).experiment.decode
    assert (decode.convention, decode.beams, decode.no_repeat_ngram_size) == ("generate", 2, 3)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"guidance_scale": 3.0}, "generation_config.json: guidance_scale: 3.0 is not supported"),
        ({"warp_speed": 9}, "generation_config.json: warp_speed: 9 is not supported"),
        ({"suppress_tokens": [4000]}, "generation_config.json: 4000 is no token id below 40"),
        ({"num_beams": 0}, r"generation_config.json: beams"),
    ],
    ids=str,
)
def test_what_cannot_be_followed_is_one_sentence(folder: Path, values: dict[str, Any], complaint: str) -> None:
    (folder / "generation_config.json").write_text(json.dumps({**SEARCH, **values}))
    with pytest.raises(UserError, match=complaint) as refused:
        from_hf(folder)
    assert "\n" not in str(refused.value)


def change_config(folder: Path, file: str, **values: Any) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("ends", [[2, 7, 9], [7, 2, 9], 2])
def test_every_end_token_ends_a_text_in_any_order(folder: Path, ends: Any) -> None:
    change_config(folder, "generation_config.json", eos_token_id=ends, forced_bos_token_id=0, max_length=12)
    loaded = from_hf(folder)
    further = [token for token in ends if token != 2] if isinstance(ends, list) else []
    rows = loaded.tokenisers.source.vocabulary_map.headwise_ids
    assert list(loaded.experiment.decode.eos_token_ids) == [rows[token] for token in further]


def test_end_tokens_without_the_eos_of_the_model_are_refused(folder: Path) -> None:
    change_config(folder, "generation_config.json", eos_token_id=9)
    with pytest.raises(UserError, match=r"generation_config\.json: eos_token_id: 9 is without 2, the EOS of config"):
        from_hf(folder)


@pytest.mark.parametrize("file", ["", "ids alone", "older keys"])
def test_a_folder_without_settings_generates_as_generate_does(folder: Path, file: str) -> None:
    """Padding may be generated, and no EOS is forced at the maximum length."""
    path = folder / "generation_config.json"
    path.unlink()
    if file == "ids alone":
        path.write_text(json.dumps({"decoder_start_token_id": 2, "eos_token_id": 2}))
    if file == "older keys":
        change_config(folder, "config.json", max_new_tokens=6, renormalize_logits=True)
    decode = from_hf(folder).experiment.decode
    assert decode.convention == "generate" and decode.renormalize_logits == (file == "older keys")
    assert (decode.max_length == 6) == (file == "older keys")


def test_settings_without_end_token_are_refused_as_generate_would_never_end(folder: Path) -> None:
    path, config = folder / "generation_config.json", json.loads((folder / "config.json").read_text())
    path.write_text(json.dumps({"num_beams": 2, "decoder_start_token_id": 2}))
    with pytest.raises(UserError, match=r'generation_config\.json: has no eos_token_id, .* add "eos_token_id": 2$'):
        from_hf(folder)
    path.unlink()
    (folder / "config.json").write_text(json.dumps({key: config[key] for key in config if key != "eos_token_id"}))
    with pytest.raises(UserError, match=r'/config\.json: has no eos_token_id, .* add "eos_token_id": 2$'):
        from_hf(folder)
    change_config(folder, "config.json", eos_token_id=2)
    assert from_hf(folder).translate(TEXTS, max_extra=4, max_ratio=0) == generate(folder, max_new_tokens=4)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_the_older_key_of_a_forced_bos_acts(folder: Path, file: str) -> None:
    """As `generate` has it: in config.json, and in a file that transformers made of one."""
    if file == "config.json":
        (folder / "generation_config.json").unlink()
    change_config(folder, file, force_bos_token_to_be_generated=True)
    loaded, model = from_hf(folder), BartForConditionalGeneration.from_pretrained(folder)
    assert model.generation_config.forced_bos_token_id == 0
    assert loaded.experiment.model.start_id == BOS
    assert loaded.translate(TEXTS, max_extra=5, max_ratio=0) == generate(folder, max_new_tokens=5)


def test_without_a_decoder_start_that_of_generate_counts_not_the_default(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    del config["decoder_start_token_id"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"config\.json: decoder_start_token_id: is 0, not EOS \(2\)"):
        from_hf(folder)


def test_older_keys_are_refused_by_the_file_that_has_them(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change_config(folder, "config.json", diversity_penalty=0.5)
    with pytest.raises(UserError, match=r"/config\.json: diversity_penalty: 0\.5 is not supported; remove it"):
        from_hf(folder)


def test_a_folder_with_an_adapter_is_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    with pytest.raises(UserError, match=r"adapter_config\.json: transformers adds this adapter .* or remove the file"):
        from_hf(folder)


def write_opt(folder: Path, **ids: int) -> None:
    """A decoder whose BOS may be its EOS, as in OPT's folders, with all special tokens first."""
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 24}
    model = OPTForCausalLM(OPTConfig(vocab_size=12, word_embed_proj_dim=16, init_std=0.5, **sizes, **ids))
    model.save_pretrained(folder)
    words = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{number}" for number in range(4, 12))]
    engine = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "<unk>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    start = words[ids["bos_token_id"]]
    engine.post_processor = processors.TemplateProcessing(
        single=f"{start} $A", special_tokens=[(start, ids["bos_token_id"])]
    )
    names = {"bos_token": start, "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=engine, **names).save_pretrained(folder)
    return model


def continue_their_way(folder: Path) -> list[str]:
    """What transformers generates after prompts, special tokens included."""
    model, words = OPTForCausalLM.from_pretrained(folder).eval(), PreTrainedTokenizerFast.from_pretrained(folder)
    texts = []
    for prompt in PROMPTS:
        inputs = words(prompt, return_tensors="pt", return_token_type_ids=False)
        row = model.generate(**inputs, max_new_tokens=12)[0, inputs.input_ids.shape[1] :]
        texts.append(words.decode(row, skip_special_tokens=True))
    return texts


PROMPTS = [f"w{first} w{second}" for first in range(4, 12) for second in range(4, 12, 2)]


@pytest.mark.parametrize("bos", [1, 2])
def test_an_exported_folder_generates_what_the_imported_one_does(bos: int, tmp_path: Path) -> None:
    """Also if its ids are those of Headwise, which else forbids padding and BOS; and a penalty on a start token that is
    EOS is one on EOS."""
    write_opt(tmp_path / "in", bos_token_id=bos, eos_token_id=2, pad_token_id=0)
    GenerationConfig(
        bos_token_id=bos, eos_token_id=2, pad_token_id=0, repetition_penalty=1.6, max_new_tokens=12, suppress_tokens=[3]
    ).save_pretrained(tmp_path / "in")
    expected = continue_their_way(tmp_path / "in")
    assert len(set(expected)) > 3
    loaded = from_hf(tmp_path / "in")
    assert [nbest[0].text.strip() for nbest in loaded.continue_prompts(PROMPTS)] == expected
    to_hf(loaded, tmp_path / "out")
    assert "bad_words_ids" not in json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert continue_their_way(tmp_path / "out") == expected
