"""mBART and Pegasus of `transformers` with random weights, in and out: the same numbers and the same outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers.utils import logging

from headwise import UserError
from headwise.blocks.stream import Context
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.interop.hf.write import write_folder
from headwise.models.bart import BartConfig
from headwise.models.transformer import TransformerConfig
from headwise.testing import assert_parity
from headwise.text import BOS, EOS, PAD

logging.disable_progress_bar()
logging.set_verbosity_error()
VOCAB = 37
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 30, "encoder_layers": 2, "decoder_layers": 3, "max_position_embeddings": 26,
    "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 44, "decoder_ffn_dim": 44,
}  # fmt: skip
OTHER: dict[str, Any] = {
    "decoder_attention_heads": 5, "decoder_ffn_dim": 21, "activation_function": "relu", "scale_embedding": True,
}  # fmt: skip
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("MBart", {"decoder_start_token_id": 2, "forced_bos_token_id": 33}),
    ("MBart", {"decoder_start_token_id": 33}),
    ("MBart", OTHER),
    ("MBart", {"tie_word_embeddings": False, "decoder_start_token_id": 2}),
    ("Pegasus", {}),
    ("Pegasus", OTHER),
    ("Pegasus", {"tie_word_embeddings": False, "decoder_start_token_id": 5}),
]
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10, EOS], [11, 12, EOS, PAD, PAD, PAD, PAD]])
TARGET = torch.tensor([[BOS, 7, 8, 9, 10], [BOS, 6, 5, 5, 4]])


def build_hf_model(kind: str, spread: float = 0.1, **settings: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **settings})
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:  # sinusoids do not
            parameter.data += spread * torch.randn_like(parameter)
    model.final_logits_bias.normal_()
    return model


def order_ids(imported: ImportedModel) -> Tensor:
    return torch.tensor(imported.vocabularies.source.hf_ids)


def compare(imported: ImportedModel, model: Any) -> None:
    order, keep = order_ids(imported), (SOURCE != PAD).long()
    expected = model(
        input_ids=order[SOURCE].clamp(min=0), attention_mask=keep, decoder_input_ids=order[TARGET].clamp(min=0)
    )
    actual = imported.model(SOURCE, TARGET)
    real = [number for number in range(actual.shape[-1]) if number not in imported.vocabularies.target.suppressed_ids]
    assert_parity(actual[..., real], expected.logits[..., order[real]])
    stream = imported.model.encoder(SOURCE, Context())
    assert_parity(stream.x[stream.keep], expected.encoder_last_hidden_state[stream.keep])


@pytest.mark.parametrize(("kind", "settings"), FORMS, ids=str)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model(kind, **settings)
    model.save_pretrained(tmp_path / "in")
    imported = read_folder(tmp_path / "in")
    start = settings.get("decoder_start_token_id", 0)
    assert imported.vocabularies.source.hf_ids[BOS] == start
    compare(imported, model)
    write_folder(imported.model, imported.config, "transduce", None, tmp_path / "out", imported.vocabularies.source)
    again = type(model).from_pretrained(tmp_path / "out").eval()
    compare(imported, again)
    assert again.config.model_type == kind.lower() and again.generation_config.decoder_start_token_id == start
    compare(read_folder(tmp_path / "out"), model)


@pytest.mark.parametrize(("kind", "settings"), [FORMS[0], FORMS[1], FORMS[4]], ids=str)
@pytest.mark.parametrize("beams", [1, 3])
@torch.inference_mode()
def test_outputs_are_those_of_generate(kind: str, settings: dict[str, Any], beams: int, tmp_path: Path) -> None:
    """With the forced token of the target language, where there is one."""
    model = build_hf_model(kind, spread=0.4, **settings)
    model.save_pretrained(tmp_path)
    imported = read_folder(tmp_path)
    order, back = order_ids(imported), imported.vocabularies.source.headwise_ids
    language = settings.get("forced_bos_token_id")
    forced = {} if language is None else {"forced_bos_token_id": back[language]}
    config = DecodeConfig(
        beams=beams, convention="generate", length_penalty=1.0, early_stopping=False, max_ratio=0, max_extra=12,
        max_length=12, forced_eos_token_id=EOS, **forced,
    )  # fmt: skip
    sources = [[5, 6, 7, 8], [9, 20], [12, 13, 21, 8, 19, 4], [17], [17, 18, 19]]
    end = int(order[EOS])
    for source, actual in zip(sources, decode(imported.model, sources, config), strict=True):
        ids = order[torch.tensor([[*source, EOS]])]
        written = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=beams, max_new_tokens=12, do_sample=False,
            forced_eos_token_id=end, forced_bos_token_id=language,
        )[0].tolist()[1:]  # fmt: skip
        expected = written[: written.index(end)] if end in written else written
        assert order[list(actual[0].ids)].tolist() == expected


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("pegasus", {}),
        ("mbart", {"positions": {"kind": "learned", "max_length": 20, "offset": 2}, "embedding_norm": True}),
    ],
)
@torch.inference_mode()
def test_pre_norm_transformers_of_headwise_are_written(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = TransformerConfig.model_validate({"width": 30, "heads": 3, "depth": 2, "wiring": "pre", **settings})
    model = config.build(VOCAB).eval()
    for weight in model.parameters():
        weight.add_(0.1 * torch.randn_like(weight))
    write_folder(model, config, "transduce", None, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == kind
    other = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    expected = model(SOURCE, TARGET)
    assert_parity(other(SOURCE, attention_mask=(SOURCE != PAD).long(), decoder_input_ids=TARGET).logits, expected)
    assert_parity(read_folder(tmp_path / "out").model(SOURCE, TARGET), expected)


@pytest.mark.parametrize(
    ("kind", "settings", "complaint"),
    [
        (BartConfig, {}, "tokeniser: transformers has one vocabulary"),
        (TransformerConfig, {"wiring": "pre"}, r"wiring: config\.json of marian"),
    ],
)
def test_two_vocabularies_are_refused_where_transformers_has_one(
    kind: type[BartConfig | TransformerConfig], settings: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    config = kind.model_validate({"width": 32, "heads": 4, "depth": 1, "tie": "none", **settings})
    with pytest.raises(UserError, match=complaint):
        write_folder(config.build(VOCAB, VOCAB + 4), config, "transduce", None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def save_with_tokenizer(model: Any, folder: Path, template: str) -> Any:
    """A folder with a tokenizer of whole words, languages among them, and a template of special tokens."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    words = [*specials, *(f"w{number}" for number in range(4, VOCAB - 2)), "en_XX", "de_DE"]
    ids = {word: number for number, word in enumerate(words)}
    engine = Tokenizer(models.WordLevel(ids, "<unk>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [(word, ids[word]) for word in ("</s>", "en_XX")]
    engine.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=engine, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.mark.parametrize("template", ["en_XX $A </s>", "$A </s> en_XX"])
@torch.inference_mode()
def test_texts_have_the_language_of_the_source(template: str, tmp_path: Path) -> None:
    """Before the text, as in mBART-50, or after its EOS, as in mBART-25; also in the folder that is exported again."""
    model = build_hf_model("MBart", decoder_start_token_id=2)
    tokenizer = save_with_tokenizer(model, tmp_path / "in", template)
    for folder in (tmp_path / "in", tmp_path / "out"):
        imported = read_folder(folder)
        assert imported.tokenisers is not None
        batch = tokenizer(["w5 w9 w7", "w6"], return_tensors="pt", padding=True)
        assert tokenizer.convert_ids_to_tokens(batch.input_ids[0]) == template.replace("$A", "w5 w9 w7").split()
        expected = model.get_encoder()(batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
        texts = [[*imported.tokenisers.source.encode(text), EOS] for text in ("w5 w9 w7", "w6")]
        rows = torch.tensor([texts[0], [*texts[1], PAD, PAD]])
        stream = imported.model.encoder(rows, Context())
        keep = batch.attention_mask.bool()
        assert stream.keep is not None and torch.equal(stream.keep, keep)
        assert_parity(stream.x[keep], expected[keep])
        if folder.name == "in":
            write_folder(imported.model, imported.config, "transduce", imported.tokenisers, tmp_path / "out")


@pytest.mark.parametrize("template", ["$A", "en_XX $A </s> en_XX", "</s> $A en_XX"])
def test_other_places_of_the_language_are_refused(template: str, tmp_path: Path) -> None:
    save_with_tokenizer(build_hf_model("MBart", decoder_start_token_id=36), tmp_path, template)
    with pytest.raises(UserError, match="post_processor: a text must have EOS after it, and one language"):
        read_folder(tmp_path)


def translate_with_transformers(folder: Path, texts: list[str]) -> list[str]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.MBartForConditionalGeneration.from_pretrained(folder).eval()
    batches = [tokenizer(text, return_tensors="pt", return_token_type_ids=False) for text in texts]
    outputs = [model.generate(**batch)[0] for batch in batches]
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    skipped = special - {tokenizer.unk_token_id}  # which Headwise shows
    return [tokenizer.decode([number for number in ids.tolist() if number not in skipped]) for ids in outputs]


@pytest.mark.parametrize("template", ["en_XX $A </s>", "$A </s> en_XX"])
def test_the_target_language_is_that_of_generation_config(template: str, tmp_path: Path) -> None:
    """Both ways: a folder that is imported and exported again translates into the same language."""
    save_with_tokenizer(build_hf_model("MBart", 0.4, decoder_start_token_id=2), tmp_path / "in", template)
    transformers.GenerationConfig(
        forced_bos_token_id=36, forced_eos_token_id=2, decoder_start_token_id=2, eos_token_id=2, pad_token_id=1,
        bos_token_id=0, max_new_tokens=9, num_beams=2, no_repeat_ngram_size=2, suppress_tokens=[7], length_penalty=2.0,
    ).save_pretrained(tmp_path / "in")  # fmt: skip
    texts = ["w5 w9 w7", "w6", "w8 w8 w10"]
    expected = translate_with_transformers(tmp_path / "in", texts)
    loaded = from_hf(tmp_path / "in")
    assert loaded.translate(texts) == expected and all(text.startswith("de_DE ") for text in expected)
    to_hf(loaded, tmp_path / "out")
    assert translate_with_transformers(tmp_path / "out", texts) == expected
    assert from_hf(tmp_path / "out").experiment.decode == loaded.experiment.decode
