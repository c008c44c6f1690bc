"""Perceivers of `transformers` for texts with random weights, in and out: the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.utils import logging
from word_folders import save

from headwise import UserError
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.interop.hf.write import write_folder
from headwise.models.perceiver import PerceiverConfig
from headwise.testing import assert_parity
from headwise.text import PAD

logging.disable_progress_bar()
logging.set_verbosity_error()
VOCAB = 31
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 40, "d_latents": 30, "num_latents": 7, "num_self_attends_per_block": 3,
    "num_self_attention_heads": 3, "num_cross_attention_heads": 5, "max_position_embeddings": 13, "pad_token_id": 0,
    "num_labels": 3,
}  # fmt: skip
FORMS: list[dict[str, Any]] = [
    {},
    {"num_blocks": 3, "hidden_act": "relu"},
    {"qk_channels": 45, "v_channels": 30},
    {"cross_attention_shape_for_attention": "q"},
]
CLASSES = ("PerceiverForMaskedLM", "PerceiverForSequenceClassification")
IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 20], [11, 12, 30, PAD, PAD, PAD, PAD]])


def build_hf_model(name: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, name)(transformers.PerceiverConfig(**{**SIZES, **settings})).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def compare(imported: ImportedModel, model: Any) -> None:
    order = torch.tensor(imported.vocabularies.source.hf_ids).clamp(min=0)
    expected = model(inputs=order[IDS], attention_mask=(IDS != PAD).long()).logits
    actual = imported.model(IDS)
    if imported.task == "masked":
        real = sorted(imported.vocabularies.source.headwise_ids)
        expected, actual = expected[:, : IDS.shape[1]][..., order[real]], actual[..., real]
    else:
        actual = actual[:, -3:]
    assert_parity(actual, expected)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("settings", FORMS, ids=str)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model(name, **settings)
    save(model, tmp_path / "in", {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}, begin=None)
    imported = read_folder(tmp_path / "in")
    compare(imported, model)
    write_folder(imported.model, imported.config, imported.task, imported.tokenisers, tmp_path / "out")
    compare(imported, type(model).from_pretrained(tmp_path / "out").eval())
    compare(read_folder(tmp_path / "out"), model)


@torch.inference_mode()
def test_a_perceiver_of_headwise_is_written(tmp_path: Path) -> None:
    """With the output queries that `transformers` has: 8 heads of 32 channels."""
    config = PerceiverConfig.model_validate({
        "width": 32, "latents": 5, "embedding_width": 24, "depth": 2, "repeats": 2, "cross_attends": 1,
        "positions": {"kind": "learned", "max_length": 9},
    })  # fmt: skip
    model = config.build(VOCAB, task="masked").eval()
    write_folder(model, config, "masked", None, tmp_path / "out")
    other = transformers.PerceiverForMaskedLM.from_pretrained(tmp_path / "out").eval()
    assert_parity(model(IDS), other(inputs=IDS, attention_mask=(IDS != PAD).long()).logits[:, : IDS.shape[1]])


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"heads": 4, "head_width": 8}, "output_attention"),
        ({"repeats": 2}, "cross_attends"),
        ({"cross_attention": {"kind": "perceiver", "attend_to": "memory", "value_width": 3}}, "cross_attention"),
    ],
    ids=str,
)
def test_what_config_json_cannot_express_is_named(settings: dict[str, Any], key: str, tmp_path: Path) -> None:
    config = PerceiverConfig.model_validate({"width": 32, "latents": 5, "embedding_width": 24, "depth": 1, **settings})
    with pytest.raises(UserError, match=f"^{key}: "):
        write_folder(config.build(VOCAB, task="masked"), config, "masked", None, tmp_path / "out")
