"""Switch Transformers of `transformers` with random weights, in and out: equal outputs, and equal dropped tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.utils import logging

from headwise import UserError
from headwise.blocks.record import collect
from headwise.blocks.stream import Context
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.interop.hf.write import write_folder
from headwise.models.switch import SwitchConfig
from headwise.testing import assert_parity
from headwise.text import BOS, EOS, PAD

logging.disable_progress_bar()
logging.set_verbosity_error()
VOCAB = 31
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 30, "d_kv": 7, "d_ff": 22, "num_heads": 3, "num_experts": 5, "expert_capacity": 2,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "decoder_start_token_id": 0,
}  # fmt: skip
LAYERS = ("num_layers", "num_sparse_encoder_layers", "num_decoder_layers", "num_sparse_decoder_layers")
FORMS: list[dict[str, Any]] = [
    dict(zip(LAYERS, (4, 2, 4, 2), strict=True)),
    {**dict(zip(LAYERS, (3, 1, 2, 2), strict=True)), "expert_capacity": 1, "dense_act_fn": "gelu"},
    {**dict(zip(LAYERS, (2, 3, 3, 0), strict=True)), "tie_word_embeddings": False},  # a step of 0, one of 3
]
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10, 5, 6, EOS], [11, 12, EOS, PAD, PAD, PAD, PAD, PAD, PAD]])
TARGET = torch.tensor([[BOS, 7, 8, 9, 10, 11], [BOS, 6, 5, 5, 4, 4]])


def build_hf_model(spread: float = 0.1, **settings: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.SwitchTransformersConfig(**{**SIZES, **settings})
    model = transformers.SwitchTransformersForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        parameter.data += spread * torch.randn_like(parameter)
    return model


def compare(imported: ImportedModel, model: Any) -> None:
    order = torch.tensor(imported.vocabularies.source.hf_ids).clamp(min=0)
    keep = (SOURCE != PAD).long()
    expected = model(input_ids=order[SOURCE], attention_mask=keep, decoder_input_ids=order[TARGET])
    actual = imported.model(SOURCE, TARGET)
    real = [number for number in range(actual.shape[-1]) if number not in imported.vocabularies.target.suppressed_ids]
    assert_parity(actual[..., real], expected.logits[..., order[real]])
    stream = imported.model.encoder(SOURCE, Context())
    assert_parity(stream.x[stream.keep], expected.encoder_last_hidden_state[stream.keep])


@pytest.mark.parametrize("settings", FORMS, ids=str)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(settings: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model(**settings)
    model.save_pretrained(tmp_path / "in")
    imported = read_folder(tmp_path / "in")
    with collect("load") as side:
        compare(imported, model)
    assert max(load.dropped for load in side.list_values("load")) > 0
    write_folder(imported.model, imported.config, "transduce", None, tmp_path / "out", imported.vocabularies.source)
    compare(imported, type(model).from_pretrained(tmp_path / "out").eval())
    compare(read_folder(tmp_path / "out"), model)


@torch.inference_mode()
def test_outputs_are_those_of_generate(tmp_path: Path) -> None:
    model = build_hf_model(spread=0.4, **FORMS[0])
    model.save_pretrained(tmp_path)
    imported = read_folder(tmp_path)
    order = torch.tensor(imported.vocabularies.source.hf_ids)
    config = DecodeConfig(convention="generate", max_ratio=0, max_extra=10, max_length=10)
    sources = [[5, 6, 7, 8], [9, 20], [12, 13, 21, 8, 19, 4], [17]]
    end = int(order[EOS])
    for source, actual in zip(sources, decode(imported.model, sources, config), strict=True):
        ids = order[torch.tensor([[*source, EOS]])]
        written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=10, do_sample=False)
        expected = written[0].tolist()[1:]
        assert order[list(actual[0].ids)].tolist() == (expected[: expected.index(end)] if end in expected else expected)


@torch.inference_mode()
def test_an_encoder_alone_reads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.SwitchTransformersConfig(**SIZES, **FORMS[0])
    model = transformers.SwitchTransformersEncoderModel(config).eval()
    model.save_pretrained(tmp_path)
    imported = read_folder(tmp_path)
    order = torch.tensor(imported.vocabularies.source.hf_ids).clamp(min=0)
    expected = model(order[SOURCE], attention_mask=(SOURCE != PAD).long()).last_hidden_state
    stream = imported.model.encoder(SOURCE, Context())
    assert_parity(stream.x[stream.keep], expected[stream.keep])


@torch.inference_mode()
def test_a_switch_of_headwise_without_dropped_tokens_is_written(tmp_path: Path) -> None:
    config = SwitchConfig.model_validate({
        "width": 30, "heads": 3, "head_width": 6, "hidden": 21, "depth": 3, "expert_interval": 3,
        "experts": {"count": 4, "drop": False},
    })  # fmt: skip
    model = config.build(VOCAB).eval()
    for weight in model.parameters():
        weight.add_(0.1 * torch.randn_like(weight))
    write_folder(model, config, "transduce", None, tmp_path / "out")
    other = transformers.SwitchTransformersForConditionalGeneration.from_pretrained(tmp_path / "out").eval()
    expected = other(SOURCE, attention_mask=(SOURCE != PAD).long(), decoder_input_ids=TARGET).logits
    assert_parity(model(SOURCE, TARGET), expected)
    assert torch.equal(read_folder(tmp_path / "out").model(SOURCE, TARGET), model(SOURCE, TARGET))


def test_a_capacity_of_the_batch_is_refused(tmp_path: Path) -> None:
    config = SwitchConfig.model_validate({"width": 32, "heads": 4, "depth": 2, "experts": {"count": 4}})
    with pytest.raises(UserError, match=r"^experts: config\.json of switch_transformers cannot express this"):
        write_folder(config.build(VOCAB), config, "transduce", None, tmp_path / "out")
