"""BERT, ALBERT and DeBERTa of `transformers` with random weights, in and out: the same numbers for every task."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
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

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # torch's, of what this file of theirs is made with
    import transformers.models.deberta.modeling_deberta

logging.disable_progress_bar()
logging.set_verbosity_error()
MARKS = {"pad": 3, "unk": 7, "cls": 8, "sep": 11, "mask": 15}  # their ids, somewhere among the words
VOCAB = vocabulary(MARKS)
SHAPE: dict[str, Any] = {
    "vocab_size": len(VOCAB), "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 20, "pad_token_id": MARKS["pad"],
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "Bert": {},
    "Albert": {"embedding_size": 12},
    "Deberta": {
        "relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"],
        "max_relative_positions": 5, "layer_norm_eps": 1e-7,
    },
}  # fmt: skip
HEADS = ["ForPreTraining", "ForMaskedLM", "ForTokenClassification", "ForSequenceClassification", "ForQuestionAnswering"]
CLASSES = [(kind, kind + head) for kind in OWN for head in (*HEADS, "Model") if (kind, head) != ("Deberta", HEADS[0])]
IDS = torch.tensor([[5, 6, 7, 8, EOS, 9, 10, 11, EOS], [12, 13, UNK, EOS, 14, EOS, PAD, PAD, PAD]])


def theirs(kind: str, name: str, **settings: Any) -> Any:
    config = getattr(transformers, f"{kind}Config")(**{**SHAPE, **OWN[kind], **settings})
    return shaken(name, config)


def saved(model: Any, folder: Path) -> Path:
    return save(model, folder, MARKS)


def inputs(imported: Imported, types: bool) -> dict[str, Tensor]:
    """What they read where we read IDS: the mark in front written out, masks and types made by hand."""
    order = torch.tensor(imported.words.source.order)
    ids = torch.nn.functional.pad(IDS, (1, 0), value=1)
    second = torch.zeros_like(ids)
    second[0, 6:], second[1, 5:] = 1, 1
    found = {"input_ids": order[ids], "attention_mask": (ids != PAD).long()}
    return found | ({"token_type_ids": second} if types else {})


def outputs(imported: Imported, model: Any, **given: Tensor) -> tuple[Tensor, Tensor]:
    """Theirs in our places: outputs, and the last hidden states."""
    found = model(**given, output_hidden_states=True)
    states = found.hidden_states[-1]
    if imported.task == "masked":
        logits = found.prediction_logits if hasattr(found, "prediction_logits") else found.logits
        return logits[:, 1:][..., list(imported.words.source.order)], states
    if imported.task == "answer":
        return torch.stack((found.start_logits, found.end_logits), -1)[:, 1:], states
    if imported.task == "encode":
        pooled = getattr(found, "pooler_output", None)
        return states.new_zeros(0) if pooled is None else pooled, states
    return (found.logits[:, 1:] if imported.task == "tag" else found.logits), states


def ours(imported: Imported) -> tuple[Tensor, Tensor]:
    model = imported.model
    found, states = model(IDS), model.encoder(IDS, Context()).x
    labelled = imported.task in ("tag", "classify")
    return (found[..., UNK + 1 :] if labelled else found), states


def compare(imported: Imported, model: Any) -> None:
    expected, states = outputs(imported, model, **inputs(imported, imported.config.token_types > 0))
    found, own = ours(imported)
    real = torch.nn.functional.pad(IDS, (1, 0), value=1) != PAD
    assert_parity(own[real], states[real])
    if imported.task == "encode" and not len(expected):  # a DeBERTa without a head has no pooler
        return
    keep = found > torch.finfo().min if imported.task == "answer" else torch.ones_like(found, dtype=torch.bool)
    keep = keep & real[:, 1:, None] if found.dim() == 3 else keep
    assert_parity(found[keep], expected[keep])


@pytest.mark.parametrize(("kind", "name"), CLASSES)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(kind: str, name: str, tmp_path: Path) -> None:
    model = theirs(kind, name, **({"num_labels": 3} if name.endswith("Classification") else {}))
    imported = read_folder(saved(model, tmp_path / "in"))
    compare(imported, model)
    to_hf(from_hf(tmp_path / "in"), tmp_path / "out")
    again = getattr(transformers, name).from_pretrained(tmp_path / "out").eval()
    compare(imported, again)
    written = headwise.interop.folders.read_json(tmp_path / "out" / "config.json")
    assert written["architectures"] == [name]
    for mark in ("pad", "cls", "sep"):
        assert written[f"{mark}_token_id"] == MARKS[mark]


@torch.inference_mode()
def test_whether_a_text_follows_is_judged_alike(tmp_path: Path) -> None:
    for kind, found in (("Bert", "seq_relationship_logits"), ("Albert", "sop_logits")):
        model = theirs(kind, f"{kind}ForPreTraining")
        imported = read_folder(saved(model, tmp_path / kind))
        expected = getattr(model(**inputs(imported, True)), found)
        stream = imported.model.encoder(IDS, Context())
        assert_parity(imported.model.order(stream), expected)


@torch.inference_mode()
def test_other_forms_of_the_same_models(tmp_path: Path) -> None:
    """Another activation, one type of text or two; DeBERTa's newer names, and texts beyond its largest distance."""
    forms = [
        ("Bert", {"hidden_act": "gelu_new", "type_vocab_size": 1}),
        ("Albert", {"hidden_act": "relu", "num_hidden_layers": 2}),
        ("Deberta", {"legacy": False, "type_vocab_size": 2, "max_relative_positions": -1}),
        ("Deberta", {"max_relative_positions": 2}),
    ]
    for number, (kind, settings) in enumerate(forms):
        model = theirs(kind, f"{kind}ForMaskedLM", **settings)
        imported = read_folder(saved(model, tmp_path / str(number)))
        if settings.get("type_vocab_size") == 1:
            expected = model(**inputs(imported, False)).logits[0, 1:]
            found = imported.model(IDS)[0]
            assert_parity(found, expected[:, list(imported.words.source.order)])
        else:
            compare(imported, model)


@torch.inference_mode()
def test_texts_go_in_and_come_out(tmp_path: Path) -> None:
    """Through the tokeniser: the same probabilities for a mask, a label and a sentence's vector."""
    text, ids = "w1 w2 w20", [8, 1, 2, 20, 11]
    masked = theirs("Bert", "BertForMaskedLM")
    found = from_hf(saved(masked, tmp_path / "masked")).fill_mask(["w1 [MASK] w20"], count=24)[0][0]
    expected = masked(torch.tensor([[8, 1, 15, 20, 11]])).logits[0, 2].softmax(-1)
    best = max(found, key=lambda filling: filling.probability)
    words = [number for number, word in enumerate(VOCAB) if word.startswith("w")]
    assert best.word == VOCAB[max(words, key=lambda number: expected[number])]
    assert best.probability == pytest.approx(expected[int(best.word[1:])].item(), rel=1e-4)

    classifier = theirs("Bert", "BertForSequenceClassification", id2label={0: "bad", 1: "good", 2: "fair"})
    scores = from_hf(saved(classifier, tmp_path / "classifier")).classify([text])[0]
    expected = classifier(torch.tensor([ids])).logits[0].softmax(-1)
    assert scores == pytest.approx(dict(zip(["bad", "good", "fair"], expected.tolist(), strict=True)), rel=1e-4)

    reader = theirs("Bert", "BertModel")
    found = from_hf(saved(reader, tmp_path / "reader"))
    states = reader(torch.tensor([ids])).last_hidden_state
    assert_parity(found.embed([text]), states.mean(1))
    with pytest.raises(UserError, match="an encoder alone has nothing to learn"):
        found.evaluate([("w1", "w2")])


@torch.inference_mode()
def test_absolute_positions_in_a_folder_of_deberta_are_those_of_the_mask_decoder(tmp_path: Path) -> None:
    folder = saved(theirs("Deberta", "DebertaForMaskedLM"), tmp_path / "in")
    tensors = load_file(folder / "model.safetensors")
    tensors["deberta.embeddings.position_embeddings.weight"] = torch.zeros(20, 32)
    save_file(tensors, folder / "model.safetensors")
    imported = read_folder(folder)
    assert imported.config.mask_decoder == 2
    with pytest.raises(UserError, match="mask_decoder: a folder of deberta cannot say this"):
        to_hf(from_hf(folder), tmp_path / "out")


def test_the_marks_around_a_text_must_be_known(tmp_path: Path) -> None:
    theirs("Bert", "BertModel").save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"nothing says which marks stand around a text; add cls_token and sep_token"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [({"position_biased_input": True}, "position_biased_input"), ({"pos_att_type": ["c2p"]}, "only both of c2p")],
)
def test_another_kind_of_deberta_is_refused(settings: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    theirs("Deberta", "DebertaModel", **settings).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=complaint):
        read_folder(tmp_path)


@torch.inference_mode()
def test_norms_of_the_first_berts_have_other_names(tmp_path: Path) -> None:
    model = theirs("Bert", "BertForPreTraining")
    folder = saved(model, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for name in list(tensors):
        for new, before in old.items():
            if name.endswith(new):
                tensors[name.replace(new, before)] = tensors.pop(name)
    save_file(tensors, folder / "model.safetensors")
    compare(read_folder(folder), model)


@pytest.mark.parametrize("kind", OWN)
def test_what_was_fine_tuned_here_is_the_same_there(kind: str, tmp_path: Path) -> None:
    """A model that fills in, trained further to classify: new head and pooler, and the mask is no word any more."""
    folder = saved(theirs(kind, f"{kind}ForMaskedLM"), tmp_path / "in")
    texts = tmp_path / "texts.tsv"
    texts.write_text("w1 w2 w4\tgood\nw5 w6\tbad\n" * 8)
    data = {"train": str(texts), "valid": str(texts), "cache": str(tmp_path / "cache")}
    tables = {
        "name": "tuned", "task": "classify", "data": data, "init_from": str(folder),
        "train": {"steps": 2, "threads": 1, "batch_size": 8},
    }  # fmt: skip
    tuned = headwise.load(train_experiment(parse_experiment(tables), tmp_path / "runs")[0].path)
    to_hf(tuned, tmp_path / "out")
    again = getattr(transformers, f"{kind}ForSequenceClassification").from_pretrained(tmp_path / "out").eval()
    with torch.inference_mode():
        expected = again(torch.tensor([[8, 1, 2, 11]])).logits[0].softmax(-1).tolist()
    named = {again.config.id2label[number]: value for number, value in enumerate(expected)}
    assert len(named) == 2
    assert tuned.classify(["w1 w2"])[0] == pytest.approx(named, rel=1e-4)
    assert from_hf(tmp_path / "out").classify(["w1 w2"])[0] == pytest.approx(named, rel=1e-4)
