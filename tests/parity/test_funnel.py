"""Funnel-Transformer of `transformers` with random weights of odd shapes, in and out: equal outputs for every task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from test_bert_kin import IDS, SPECIAL_IDS, outputs, run_headwise, save_folder
from torch import Tensor
from word_folders import build_noisy_model, vocabulary

from headwise import UserError
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.testing import assert_parity
from headwise.text import BOS, PAD, UNK

SHAPE: dict[str, Any] = {
    "vocab_size": len(vocabulary(SPECIAL_IDS)), "d_model": 30, "n_head": 3, "d_head": 7, "d_inner": 42,
    "block_sizes": [1, 2, 1], "num_decoder_layers": 2, "pad_token_id": SPECIAL_IDS["pad"],
    "cls_token_id": SPECIAL_IDS["cls"], "sep_token_id": SPECIAL_IDS["sep"],
}  # fmt: skip
CLASSES = [
    "FunnelForMaskedLM",
    "FunnelForTokenClassification",
    "FunnelForSequenceClassification",
    "FunnelForQuestionAnswering",
    "FunnelModel",
    "FunnelBaseModel",
]
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("FunnelForMaskedLM", {"attention_type": "factorized"}),
    ("FunnelForMaskedLM", {"pad_token_id": None}),
    ("FunnelForMaskedLM", {"separate_cls": False, "tie_word_embeddings": False, "hidden_act": "relu"}),
    ("FunnelForMaskedLM", {"truncate_seq": False, "pooling_type": "max", "block_sizes": [2, 1]}),
    ("FunnelModel", {"pool_q_only": False, "layer_norm_eps": 0.01}),
    ("FunnelModel", {"pool_q_only": False, "separate_cls": False, "truncate_seq": False, "pooling_type": "max"}),
    ("FunnelModel", {"block_repeats": [2, 1, 3], "block_sizes": [2, 1, 2], "num_decoder_layers": 1}),
    ("FunnelBaseModel", {"block_repeats": [1, 2], "block_sizes": [1, 3], "d_head": 10}),
    ("FunnelForSequenceClassification", {"block_sizes": [1, 1, 1, 1]}),
]


def build_hf_model(name: str, **settings: Any) -> Any:
    labels = {"num_labels": 3} if name.endswith("Classification") else {}
    model = build_noisy_model(name, transformers.FunnelConfig(**{**SHAPE, **labels, **settings}))
    if model.config.pad_token_id is not None:
        model.get_input_embeddings().weight.data[model.config.pad_token_id] = 0  # as whenever transformers loads one
    return model


def build_inputs(imported: ImportedModel) -> dict[str, Tensor]:
    """What transformers reads where Headwise reads IDS; types as its tokeniser gives them, the first token's is 2."""
    order = torch.tensor(imported.vocabularies.source.hf_ids)
    ids = torch.nn.functional.pad(IDS, (1, 0), value=BOS)
    types = torch.zeros_like(ids)
    types[0, 6:], types[1, 5:7], types[:, 0] = 1, 1, 2
    return {"input_ids": order[ids], "attention_mask": (ids != PAD).long(), "token_type_ids": types}


def compare(imported: ImportedModel, model: Any) -> None:
    expected, states = outputs(imported, model, **build_inputs(imported))
    actual, our_states = run_headwise(imported)
    real = torch.nn.functional.pad(IDS, (1, 0), value=BOS) != PAD
    if our_states.shape[1] != real.shape[1]:  # pooled
        real = torch.ones(our_states.shape[:2], dtype=torch.bool)
    assert_parity(our_states[real], states[real])
    if imported.task == "encode":
        return
    keep = actual > torch.finfo().min if imported.task == "answer" else torch.ones_like(actual, dtype=torch.bool)
    keep = keep & real[:, 1:, None] if actual.dim() == 3 else keep
    assert_parity(actual[keep], expected[keep])


@torch.inference_mode()
def check_both_ways(model: Any, folder: Path) -> None:
    imported = read_folder(save_folder(model, folder / "in"))
    compare(imported, model)
    to_hf(from_hf(folder / "in"), folder / "out")
    again, info = type(model).from_pretrained(folder / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    compare(imported, again.eval())
    assert json.loads((folder / "out" / "config.json").read_text())["architectures"] == [type(model).__name__]


@pytest.mark.parametrize("name", CLASSES)
def test_outputs_are_equal_both_ways(name: str, tmp_path: Path) -> None:
    check_both_ways(build_hf_model(name), tmp_path)


@pytest.mark.parametrize(("name", "settings"), FORMS, ids=str)
def test_other_settings_have_equal_outputs_both_ways(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    check_both_ways(build_hf_model(name, **settings), tmp_path)


@torch.inference_mode()
def test_replaced_tokens_are_found_alike(tmp_path: Path) -> None:
    model = build_hf_model("FunnelForPreTraining")
    imported = read_folder(save_folder(model, tmp_path / "in"))
    expected = model(**build_inputs(imported)).logits[:, 1:]
    assert_parity(imported.model(IDS)[IDS != PAD], expected[IDS != PAD])
    to_hf(from_hf(tmp_path / "in"), tmp_path / "out")
    again = transformers.FunnelForPreTraining.from_pretrained(tmp_path / "out").eval()
    assert_parity(again(**build_inputs(imported)).logits[:, 1:], expected)


@pytest.mark.parametrize(
    ("settings", "shortest"), [({}, 4), ({"separate_cls": False}, 2), ({"truncate_seq": False}, 6)], ids=str
)
@torch.inference_mode()
def test_texts_of_every_length_have_equal_outputs(settings: dict[str, Any], shortest: int, tmp_path: Path) -> None:
    """From short ones on, whose last block is not pooled; at still shorter ones transformers raises an error."""
    model = build_hf_model("FunnelForMaskedLM", **settings)
    imported = read_folder(save_folder(model, tmp_path))
    order = torch.tensor(imported.vocabularies.source.hf_ids)
    for length in range(shortest, 23):
        ids = torch.randint(UNK + 1, 20, (2, length), generator=torch.Generator().manual_seed(length))
        expected = model(order[torch.nn.functional.pad(ids, (1, 0), value=BOS)]).logits[:, 1:]
        assert_parity(imported.model(ids), expected[..., order])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"block_repeats": [1, 2]}, "block_repeats: has 2 numbers for 3 blocks"),
        ({"block_sizes": []}, "block_sizes: is \\[\\]; every block needs at least one layer"),
        ({"d_model": 31}, "d_model"),
        ({"pooling_type": "min"}, "pooling_type"),
        ({"num_decoder_layers": 0}, "num_decoder_layers"),
        ({"architectures": ["FunnelForMultipleChoice"]}, "'FunnelForMultipleChoice' is not known"),
    ],
    ids=str,
)
def test_other_folders_are_refused(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = save_folder(build_hf_model("FunnelModel"), tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=complaint) as refused:
        read_folder(tmp_path)
    assert "\n" not in str(refused.value)
