"""Nystromformer of `transformers` with random weights, in and out: the same numbers for every task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.utils import logging
from word_folders import build_noisy_model, save, vocabulary

import headwise
from headwise import UserError
from headwise.blocks.mixers.favor import PerformerConfig
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.interop.hf.write import choose_architecture
from headwise.testing import assert_parity
from headwise.text import EOS, PAD, UNK

logging.disable_progress_bar()
logging.set_verbosity_error()
SPECIAL_IDS = {"pad": 3, "unk": 7, "cls": 8, "sep": 11, "mask": 15}  # their ids, somewhere among the words
VOCAB = vocabulary(SPECIAL_IDS)
SHAPE: dict[str, Any] = {
    "vocab_size": len(VOCAB), "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5,
    "intermediate_size": 44, "max_position_embeddings": 21, "pad_token_id": SPECIAL_IDS["pad"], "bos_token_id": 8,
    "eos_token_id": 11, "conv_kernel_size": 5,
}  # fmt: skip
EXACT = {"num_landmarks": 4, "segment_means_seq_len": 4}
LANDMARKS = {"num_landmarks": 4, "segment_means_seq_len": 20}  # of texts of 20 tokens, our mark in front included
CLASSES = [
    "NystromformerForMaskedLM", "NystromformerForTokenClassification", "NystromformerForSequenceClassification",
    "NystromformerForQuestionAnswering", "NystromformerModel",
]  # fmt: skip
IDS = torch.randint(UNK + 1, len(VOCAB), (3, 19), generator=torch.Generator().manual_seed(0))
IDS[:, [7, 18]] = EOS


def build_hf_model(name: str, **settings: Any) -> Any:
    return build_noisy_model(name, transformers.NystromformerConfig(**{**SHAPE, **settings}))


def save_folder(model: Any, folder: Path) -> Path:
    return save(model, folder, SPECIAL_IDS)


def compute_hf_outputs(imported: ImportedModel, model: Any, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs in the order of our rows, and the last hidden states, for a mark in front and two token types."""
    ids = torch.nn.functional.pad(ids, (1, 0), value=1)
    types = (torch.arange(ids.shape[1]) > 8).long().expand_as(ids)
    order = list(imported.vocabularies.source.hf_ids)
    theirs = model(input_ids=torch.tensor(order)[ids], token_type_ids=types, output_hidden_states=True)
    states = theirs.hidden_states[-1]
    if imported.task == "masked":
        return theirs.logits[:, 1:][..., order], states
    if imported.task == "answer":
        return torch.stack((theirs.start_logits, theirs.end_logits), -1)[:, 1:], states
    if imported.task == "encode":
        return states.mean(1), states
    return (theirs.logits[:, 1:] if imported.task == "tag" else theirs.logits), states


def compare(imported: ImportedModel, model: Any) -> None:
    expected, states = compute_hf_outputs(imported, model, IDS)
    actual = imported.model(IDS)
    actual = actual[..., UNK + 1 :] if imported.task in ("tag", "classify") else actual
    assert_parity(imported.model.encoder(IDS, Context()).x, states)
    possible = actual > torch.finfo().min  # an answer stands in the second text
    assert_parity(actual[possible], expected[possible])


@pytest.mark.parametrize("settings", [EXACT, LANDMARKS], ids=["exact", "landmarks"])
@pytest.mark.parametrize("name", CLASSES)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model(name, **settings, **({"num_labels": 3} if name.endswith("Classification") else {}))
    imported = read_folder(save_folder(model, tmp_path / "in"))
    compare(imported, model)
    to_hf(from_hf(tmp_path / "in"), tmp_path / "out")
    compare(imported, getattr(transformers, name).from_pretrained(tmp_path / "out").eval())
    written = headwise.interop.folders.read_json(tmp_path / "out" / "config.json")
    assert written["architectures"] == [name] and written["model_type"] == "nystromformer"
    if settings is LANDMARKS:
        assert written["num_landmarks"] == 4 and written["segment_means_seq_len"] == 20


@torch.inference_mode()
def test_logits_are_those_of_transformers(tmp_path: Path) -> None:
    """Of Nystrom attention with both norms that the pseudo-inverse starts from."""
    model = build_hf_model("NystromformerForMaskedLM", **LANDMARKS)
    imported = read_folder(save_folder(model, tmp_path))
    batch_logits = imported.model(IDS)
    compare(imported, model)
    for layer, hf_layer in zip(imported.model.encoder.stack.layers, model.nystromformer.encoder.layer, strict=True):
        assert layer.parts[0].inverse_init == "batch" and not layer.parts[0].properties.batch_independent
        layer.parts[0].inverse_init = "matrix"
        hf_layer.attention.self.init_option = "exact"  # their config cannot be built with it
    compare(imported, model)
    assert not torch.allclose(imported.model(IDS), batch_logits, rtol=1e-4)


@torch.inference_mode()
def test_a_padded_text_has_the_outputs_of_the_text_alone(tmp_path: Path) -> None:
    """Their convolution and their landmarks would read its padding."""
    model = build_hf_model("NystromformerForMaskedLM", **EXACT)
    imported = read_folder(save_folder(model, tmp_path))
    ids = IDS.clone()
    ids[0, 8:] = PAD
    alone, _ = compute_hf_outputs(imported, model, IDS[:1, :8])
    assert_parity(imported.model(ids)[0, :8], alone[0])


@pytest.mark.parametrize("settings", [{"hidden_act": "gelu"}, {"hidden_act": "relu", "num_hidden_layers": 1}])
@torch.inference_mode()
def test_other_forms_of_the_same_model(settings: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model("NystromformerForSequenceClassification", num_labels=3, **EXACT, **settings)
    compare(read_folder(save_folder(model, tmp_path)), model)


def test_the_base_size_has_their_parameters() -> None:
    with torch.device("meta"):
        theirs = transformers.NystromformerForMaskedLM(transformers.NystromformerConfig())
    assert count_parameters(headwise.build("nystromformer-base", device="meta")) == count_parameters(theirs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"segment_means_seq_len": 10}, "segment_means_seq_len is 10, which cannot be divided among num_landmarks, 4"),
        ({"conv_kernel_size": 4}, "conv_kernel_size is 4, which has no middle"),
        ({"inv_coeff_init_option": True}, "inv_coeff_init_option"),
    ],
)
def test_what_transformers_cannot_run_is_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    model = build_hf_model("NystromformerModel", **EXACT)
    for key, value in settings.items():
        setattr(model.config, key, value)
    with pytest.raises(UserError, match=message):
        read_folder(save_folder(model, tmp_path))


def test_settings_that_config_json_cannot_express_are_refused(tmp_path: Path) -> None:
    config = read_folder(save_folder(build_hf_model("NystromformerForMaskedLM", **LANDMARKS), tmp_path)).config
    mixers = [config.mixer.replace(**settings) for settings in ({"inverse_init": "matrix"}, {"iterations": 5})]
    for mixer in (*mixers, config.mixer.replace(kernel=0), PerformerConfig()):
        with pytest.raises(UserError, match=r"config\.json of nystromformer cannot express this"):
            choose_architecture(config.replace(mixer=mixer), "masked", len(VOCAB))
