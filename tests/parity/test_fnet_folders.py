"""FNet of `transformers` with random weights, in and out: the same numbers for every task."""

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
from headwise.blocks.stream import Context
from headwise.experiment.config import parse_experiment
from headwise.experiment.convert import from_hf, to_hf
from headwise.experiment.run import train_experiment
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.testing import assert_parity
from headwise.text import EOS, PAD, UNK

logging.disable_progress_bar()
logging.set_verbosity_error()
SPECIAL_IDS = {"pad": 3, "unk": 7, "cls": 8, "sep": 11, "mask": 15}  # their ids, somewhere among the words
VOCAB = vocabulary(SPECIAL_IDS)
SHAPE: dict[str, Any] = {
    "vocab_size": len(VOCAB), "hidden_size": 32, "num_hidden_layers": 3, "intermediate_size": 48,
    "max_position_embeddings": 20, "pad_token_id": SPECIAL_IDS["pad"], "bos_token_id": 8, "eos_token_id": 11,
}  # fmt: skip
CLASSES = [
    "FNetForPreTraining", "FNetForMaskedLM", "FNetForTokenClassification", "FNetForSequenceClassification",
    "FNetForQuestionAnswering", "FNetModel",
]  # fmt: skip
IDS = torch.tensor([[5, 6, 7, 8, EOS, 9, 10, 11, EOS], [12, 13, UNK, EOS, 14, 15, 16, 17, EOS]])


def build_hf_model(name: str, **settings: Any) -> Any:
    return build_noisy_model(name, transformers.FNetConfig(**{**SHAPE, **settings}))


def save_folder(model: Any, folder: Path) -> Path:
    return save(model, folder, SPECIAL_IDS)


def inputs(imported: ImportedModel) -> dict[str, Tensor]:
    """What they read where we read IDS: the mark in front and the types written out."""
    ids = torch.nn.functional.pad(IDS, (1, 0), value=1)
    second = torch.zeros_like(ids)
    second[0, 6:], second[1, 5:] = 1, 1
    return {"input_ids": torch.tensor(imported.vocabularies.source.order)[ids], "token_type_ids": second}


def outputs(imported: ImportedModel, model: Any) -> tuple[Tensor, Tensor]:
    """Hugging Face outputs in the order of Headwise rows: outputs, and the last hidden states."""
    actual = model(**inputs(imported), output_hidden_states=True)
    states = actual.hidden_states[-1]
    if imported.task == "masked":
        logits = actual.prediction_logits if hasattr(actual, "prediction_logits") else actual.logits
        return logits[:, 1:][..., list(imported.vocabularies.source.order)], states
    if imported.task == "answer":
        return torch.stack((actual.start_logits, actual.end_logits), -1)[:, 1:], states
    if imported.task == "encode":
        return actual.pooler_output, states
    return (actual.logits[:, 1:] if imported.task == "tag" else actual.logits), states


def compare(imported: ImportedModel, model: Any) -> None:
    expected, states = outputs(imported, model)
    actual = imported.model(IDS)
    actual = actual[..., UNK + 1 :] if imported.task in ("tag", "classify") else actual
    assert_parity(imported.model.encoder(IDS, Context()).x, states)
    possible = actual > torch.finfo().min  # an answer stands in the second text
    assert_parity(actual[possible], expected[possible])


@pytest.mark.parametrize("name", CLASSES)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(name: str, tmp_path: Path) -> None:
    model = build_hf_model(name, **({"num_labels": 3} if name.endswith("Classification") else {}))
    imported = read_folder(save_folder(model, tmp_path / "in"))
    compare(imported, model)
    to_hf(from_hf(tmp_path / "in"), tmp_path / "out")
    compare(imported, getattr(transformers, name).from_pretrained(tmp_path / "out").eval())
    written = headwise.interop.folders.read_json(tmp_path / "out" / "config.json")
    assert written["architectures"] == [name] and written["model_type"] == "fnet"
    for mark in ("pad", "cls", "sep"):
        assert written[f"{mark}_token_id"] == SPECIAL_IDS[mark]


@torch.inference_mode()
def test_next_sentence_predictions_are_equal(tmp_path: Path) -> None:
    model = build_hf_model("FNetForPreTraining")
    imported = read_folder(save_folder(model, tmp_path))
    expected = model(**inputs(imported)).seq_relationship_logits
    actual = imported.model.next_sentence_head(imported.model.encoder(IDS, Context()))
    assert_parity(actual, expected)


@torch.inference_mode()
def test_a_padded_text_has_the_outputs_of_the_text_alone(tmp_path: Path) -> None:
    """They would transform its padding, too."""
    model = build_hf_model("FNetForMaskedLM")
    imported = read_folder(save_folder(model, tmp_path))
    ids = torch.cat((IDS, torch.tensor([[5, 6, 7, EOS, PAD, PAD, PAD, PAD, PAD]])))
    order = list(imported.vocabularies.source.order)
    alone = model(torch.tensor(order)[torch.tensor([[1, 5, 6, 7, EOS]])]).logits[0, 1:][:, order]
    assert_parity(imported.model(ids)[2, :4], alone)


@torch.inference_mode()
def test_other_forms_of_the_same_model(tmp_path: Path) -> None:
    for number, settings in enumerate(({"hidden_act": "gelu", "type_vocab_size": 2}, {"num_hidden_layers": 1})):
        model = build_hf_model("FNetForMaskedLM", **settings)
        compare(read_folder(save_folder(model, tmp_path / str(number))), model)


def test_one_transform_cut_to_every_length_is_refused(tmp_path: Path) -> None:
    model = build_hf_model("FNetModel")
    model.config.use_tpu_fourier_optimizations = True
    with pytest.raises(UserError, match="use_tpu_fourier_optimizations"):
        read_folder(save_folder(model, tmp_path))


def test_fine_tuned_models_have_equal_outputs_in_transformers(tmp_path: Path) -> None:
    folder = save_folder(build_hf_model("FNetForMaskedLM"), tmp_path / "in")
    texts = tmp_path / "texts.tsv"
    texts.write_text("w1 w2 w4\tgood\nw5 w6\tbad\n" * 8)
    data = {"train": str(texts), "valid": str(texts), "cache": str(tmp_path / "cache")}
    tables = {
        "name": "tuned", "task": "classify", "data": data, "init_from": str(folder),
        "train": {"steps": 2, "threads": 1, "batch_size": 8},
    }  # fmt: skip
    tuned = headwise.load(train_experiment(parse_experiment(tables), tmp_path / "runs")[0].path)
    to_hf(tuned, tmp_path / "out")
    again = transformers.FNetForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    with torch.inference_mode():
        expected = again(torch.tensor([[8, 1, 2, 11]])).logits[0].softmax(-1).tolist()
    named = {again.config.id2label[number]: value for number, value in enumerate(expected)}
    assert len(named) == 2
    assert tuned.classify(["w1 w2"])[0] == pytest.approx(named, rel=1e-4)
    assert from_hf(tmp_path / "out").classify(["w1 w2"])[0] == pytest.approx(named, rel=1e-4)
