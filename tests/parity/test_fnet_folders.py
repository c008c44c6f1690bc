"""FNet of `transformers` with random weights, in and out: the same numbers for every task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.utils import logging
from word_folders import save, shaken, vocabulary

import headwise
from headwise import UserError
from headwise.blocks.stream import Context
from headwise.experiment.config import parse_experiment
from headwise.experiment.convert import from_hf, to_hf
from headwise.experiment.run import train_experiment
from headwise.interop.hf.read import Imported, read_folder
from headwise.testing import assert_parity
from headwise.text import EOS, PAD, UNK

logging.disable_progress_bar()
logging.set_verbosity_error()
MARKS = {"pad": 3, "unk": 7, "cls": 8, "sep": 11, "mask": 15}  # their ids, somewhere among the words
VOCAB = vocabulary(MARKS)
SHAPE: dict[str, Any] = {
    "vocab_size": len(VOCAB), "hidden_size": 32, "num_hidden_layers": 3, "intermediate_size": 48,
    "max_position_embeddings": 20, "pad_token_id": MARKS["pad"], "bos_token_id": 8, "eos_token_id": 11,
}  # fmt: skip
CLASSES = [
    "FNetForPreTraining", "FNetForMaskedLM", "FNetForTokenClassification", "FNetForSequenceClassification",
    "FNetForQuestionAnswering", "FNetModel",
]  # fmt: skip
IDS = torch.tensor([[5, 6, 7, 8, EOS, 9, 10, 11, EOS], [12, 13, UNK, EOS, 14, 15, 16, 17, EOS]])


def theirs(name: str, **settings: Any) -> Any:
    return shaken(name, transformers.FNetConfig(**{**SHAPE, **settings}))


def saved(model: Any, folder: Path) -> Path:
    return save(model, folder, MARKS)


def inputs(imported: Imported) -> dict[str, Tensor]:
    """What they read where we read IDS: the mark in front and the types written out."""
    ids = torch.nn.functional.pad(IDS, (1, 0), value=1)
    second = torch.zeros_like(ids)
    second[0, 6:], second[1, 5:] = 1, 1
    return {"input_ids": torch.tensor(imported.words.source.order)[ids], "token_type_ids": second}


def outputs(imported: Imported, model: Any) -> tuple[Tensor, Tensor]:
    """Theirs in our places: outputs, and the last hidden states."""
    found = model(**inputs(imported), output_hidden_states=True)
    states = found.hidden_states[-1]
    if imported.task == "masked":
        logits = found.prediction_logits if hasattr(found, "prediction_logits") else found.logits
        return logits[:, 1:][..., list(imported.words.source.order)], states
    if imported.task == "answer":
        return torch.stack((found.start_logits, found.end_logits), -1)[:, 1:], states
    if imported.task == "encode":
        return found.pooler_output, states
    return (found.logits[:, 1:] if imported.task == "tag" else found.logits), states


def compare(imported: Imported, model: Any) -> None:
    expected, states = outputs(imported, model)
    found = imported.model(IDS)
    found = found[..., UNK + 1 :] if imported.task in ("tag", "classify") else found
    assert_parity(imported.model.encoder(IDS, Context()).x, states)
    possible = found > torch.finfo().min  # an answer stands in the second text
    assert_parity(found[possible], expected[possible])


@pytest.mark.parametrize("name", CLASSES)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(name: str, tmp_path: Path) -> None:
    model = theirs(name, **({"num_labels": 3} if name.endswith("Classification") else {}))
    imported = read_folder(saved(model, tmp_path / "in"))
    compare(imported, model)
    to_hf(from_hf(tmp_path / "in"), tmp_path / "out")
    compare(imported, getattr(transformers, name).from_pretrained(tmp_path / "out").eval())
    written = headwise.interop.folders.read_json(tmp_path / "out" / "config.json")
    assert written["architectures"] == [name] and written["model_type"] == "fnet"
    for mark in ("pad", "cls", "sep"):
        assert written[f"{mark}_token_id"] == MARKS[mark]


@torch.inference_mode()
def test_whether_a_text_follows_is_judged_alike(tmp_path: Path) -> None:
    model = theirs("FNetForPreTraining")
    imported = read_folder(saved(model, tmp_path))
    expected = model(**inputs(imported)).seq_relationship_logits
    found = imported.model.order(imported.model.encoder(IDS, Context()))
    assert_parity(found, expected)


@torch.inference_mode()
def test_a_text_among_longer_ones_is_what_it_is_there_alone(tmp_path: Path) -> None:
    """They would transform its padding, too."""
    model = theirs("FNetForMaskedLM")
    imported = read_folder(saved(model, tmp_path))
    ids = torch.cat((IDS, torch.tensor([[5, 6, 7, EOS, PAD, PAD, PAD, PAD, PAD]])))
    order = list(imported.words.source.order)
    alone = model(torch.tensor(order)[torch.tensor([[1, 5, 6, 7, EOS]])]).logits[0, 1:][:, order]
    assert_parity(imported.model(ids)[2, :4], alone)


@torch.inference_mode()
def test_other_forms_of_the_same_model(tmp_path: Path) -> None:
    for number, settings in enumerate(({"hidden_act": "gelu", "type_vocab_size": 2}, {"num_hidden_layers": 1})):
        model = theirs("FNetForMaskedLM", **settings)
        compare(read_folder(saved(model, tmp_path / str(number))), model)


def test_one_transform_cut_to_every_length_is_refused(tmp_path: Path) -> None:
    model = theirs("FNetModel")
    model.config.use_tpu_fourier_optimizations = True
    with pytest.raises(UserError, match="use_tpu_fourier_optimizations"):
        read_folder(saved(model, tmp_path))


def test_what_was_fine_tuned_here_is_the_same_there(tmp_path: Path) -> None:
    folder = saved(theirs("FNetForMaskedLM"), tmp_path / "in")
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
