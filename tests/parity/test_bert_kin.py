"""BERT and its relatives in `transformers` with random weights, in and out: the same numbers for every task."""

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
from word_folders import build_noisy_model, save, vocabulary

import headwise
from headwise import UserError
from headwise.blocks.stream import Context
from headwise.experiment.config import parse_experiment
from headwise.experiment.convert import from_hf, to_hf
from headwise.experiment.run import train_experiment
from headwise.interop.hf import load_architecture
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.testing import assert_parity
from headwise.text import EOS, PAD, UNK

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # torch's, of what this file of theirs is made with
    import transformers.models.deberta.modeling_deberta

logging.disable_progress_bar()
logging.set_verbosity_error()
SPECIAL_IDS = {"pad": 3, "unk": 7, "cls": 8, "sep": 11, "mask": 15}  # their ids, somewhere among the words
VOCAB = vocabulary(SPECIAL_IDS)
SHAPE: dict[str, Any] = {
    "vocab_size": len(VOCAB), "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 20, "pad_token_id": SPECIAL_IDS["pad"],
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "Bert": {},
    "Albert": {"embedding_size": 12},
    "Roberta": {
        "bos_token_id": SPECIAL_IDS["cls"], "eos_token_id": SPECIAL_IDS["sep"], "type_vocab_size": 1,
        "hidden_act": "relu",
    },
    "XLMRoberta": {"bos_token_id": SPECIAL_IDS["cls"], "eos_token_id": SPECIAL_IDS["sep"], "type_vocab_size": 1},
    "DistilBert": {"hidden_dim": 48, "activation": "relu"},
    "Electra": {"embedding_size": 12, "hidden_act": "relu"},
    "Ernie": {"use_task_id": True},
    "Deberta": {
        "relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"],
        "max_relative_positions": 5, "layer_norm_eps": 1e-7,
    },
}  # fmt: skip
HEADS = ["ForPreTraining", "ForMaskedLM", "ForTokenClassification", "ForSequenceClassification", "ForQuestionAnswering"]
CLASSES = [
    (kind, kind + head)
    for kind in SETTINGS
    for head in (*HEADS, "Model")
    if head != HEADS[0] or kind in ("Bert", "Albert", "Ernie")
]
IDS = torch.tensor([[5, 6, 7, 8, EOS, 9, 10, 11, EOS], [12, 13, UNK, EOS, 14, EOS, PAD, PAD, PAD]])


def build_hf_model(kind: str, name: str, **settings: Any) -> Any:
    shape = {key: size for key, size in SHAPE.items() if kind != "DistilBert" or key != "intermediate_size"}
    config = getattr(transformers, f"{kind}Config")(**{**shape, **SETTINGS[kind], **settings})
    return build_noisy_model(name, config)


def save_folder(model: Any, folder: Path) -> Path:
    return save(model, folder, SPECIAL_IDS, first_type=2 if model.config.model_type == "funnel" else 0)


def inputs(imported: ImportedModel, types: bool) -> dict[str, Tensor]:
    """What they read where we read IDS: the mark in front written out, masks and types made by hand."""
    order = torch.tensor(imported.vocabularies.source.hf_ids)
    ids = torch.nn.functional.pad(IDS, (1, 0), value=1)
    second = torch.zeros_like(ids)
    second[0, 6:], second[1, 5:] = 1, 1
    batch = {"input_ids": order[ids], "attention_mask": (ids != PAD).long()}
    return batch | ({"token_type_ids": second} if types else {})


def outputs(imported: ImportedModel, model: Any, **hf_inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Hugging Face outputs in the order of Headwise rows: outputs, and the last hidden states."""
    if isinstance(model, transformers.LongformerForQuestionAnswering):  # finds the questions of three separators alone
        hf_inputs["global_attention_mask"] = (hf_inputs["input_ids"] == SPECIAL_IDS["sep"]).cumsum(1) == 0
    actual = model(**hf_inputs, output_hidden_states=True)
    states = actual.hidden_states[-1]
    if imported.task == "masked":
        logits = actual.prediction_logits if hasattr(actual, "prediction_logits") else actual.logits
        return logits[:, 1:][..., list(imported.vocabularies.source.hf_ids)], states
    if imported.task == "answer":
        return torch.stack((actual.start_logits, actual.end_logits), -1)[:, 1:], states
    if imported.task == "encode":
        pooled = getattr(actual, "pooler_output", None)
        return states.new_zeros(0) if pooled is None else pooled, states
    return (actual.logits[:, 1:] if imported.task == "tag" else actual.logits), states


def run_headwise(imported: ImportedModel) -> tuple[Tensor, Tensor]:
    model = imported.model
    actual, states = model(IDS), model.encoder(IDS, Context()).x
    labelled = imported.task in ("tag", "classify")
    return (actual[..., UNK + 1 :] if labelled else actual), states


def compare(imported: ImportedModel, model: Any) -> None:
    expected, states = outputs(imported, model, **inputs(imported, imported.config.token_types > 1))
    actual, our_states = run_headwise(imported)
    real = torch.nn.functional.pad(IDS, (1, 0), value=1) != PAD
    assert_parity(our_states[real], states[real])
    if imported.task == "encode" and not len(expected):  # a DeBERTa without a head has no pooler
        return
    keep = actual > torch.finfo().min if imported.task == "answer" else torch.ones_like(actual, dtype=torch.bool)
    keep = keep & real[:, 1:, None] if actual.dim() == 3 else keep
    assert_parity(actual[keep], expected[keep])


@pytest.mark.parametrize(("kind", "name"), CLASSES)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(kind: str, name: str, tmp_path: Path) -> None:
    model = build_hf_model(kind, name, **({"num_labels": 3} if name.endswith("Classification") else {}))
    imported = read_folder(save_folder(model, tmp_path / "in"))
    compare(imported, model)
    to_hf(from_hf(tmp_path / "in"), tmp_path / "out")
    again = getattr(transformers, name).from_pretrained(tmp_path / "out").eval()
    compare(imported, again)
    written = headwise.interop.folders.read_json(tmp_path / "out" / "config.json")
    assert written["architectures"] == [name.removeprefix("XLM")]  # whose config.json is the same
    names = ("pad", "bos", "eos") if "Roberta" in kind else ("pad", "cls", "sep")
    assert [written[f"{name}_token_id"] for name in names] == [SPECIAL_IDS[name] for name in ("pad", "cls", "sep")]


@torch.inference_mode()
def test_next_sentence_predictions_are_equal(tmp_path: Path) -> None:
    fields = {"Bert": "seq_relationship_logits", "Albert": "sop_logits", "Ernie": "seq_relationship_logits"}
    for kind, field in fields.items():
        model = build_hf_model(kind, f"{kind}ForPreTraining")
        imported = read_folder(save_folder(model, tmp_path / kind))
        expected = getattr(model(**inputs(imported, True)), field)
        stream = imported.model.encoder(IDS, Context())
        assert_parity(imported.model.next_sentence_head(stream), expected)


@torch.inference_mode()
def test_other_forms_of_the_same_models(tmp_path: Path) -> None:
    """Another activation, one type of text or two; DeBERTa's newer names, and texts beyond its largest distance."""
    forms = [
        ("Bert", {"hidden_act": "gelu_new", "type_vocab_size": 1}),
        ("Albert", {"hidden_act": "relu", "num_hidden_layers": 2}),
        ("Ernie", {"use_task_id": False, "task_type_vocab_size": 5}),
        ("Deberta", {"legacy": False, "type_vocab_size": 2, "max_relative_positions": -1}),
        ("Deberta", {"max_relative_positions": 2}),
    ]
    for number, (kind, settings) in enumerate(forms):
        model = build_hf_model(kind, f"{kind}ForMaskedLM", **settings)
        imported = read_folder(save_folder(model, tmp_path / str(number)))
        if settings.get("type_vocab_size") == 1:
            expected = model(**inputs(imported, False)).logits[0, 1:]
            actual = imported.model(IDS)[0]
            assert_parity(actual, expected[:, list(imported.vocabularies.source.hf_ids)])
        else:
            compare(imported, model)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_hidden_layers": 5, "num_hidden_groups": 3},
        {"num_hidden_layers": 3, "num_hidden_groups": 2, "inner_group_num": 2},
        {"num_hidden_layers": 2, "inner_group_num": 3},
        {"num_hidden_layers": 18, "num_hidden_groups": 14, "hidden_size": 8, "intermediate_size": 8},
    ],
    ids=str,
)
@torch.inference_mode()
def test_groups_of_albert_layers_are_read_and_written(settings: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model("Albert", "AlbertForMaskedLM", **settings)
    imported = read_folder(save_folder(model, tmp_path / "in"))
    compare(imported, model)
    to_hf(from_hf(tmp_path / "in"), tmp_path / "out")
    again = transformers.AlbertForMaskedLM.from_pretrained(tmp_path / "out").eval()
    compare(imported, again)
    for key, value in settings.items():
        assert getattr(again.config, key) == value
    with pytest.raises(UserError, match="num_hidden_groups is 19, more than num_hidden_layers"):
        load_architecture("albert").hf_config.read({**SHAPE, **settings, "num_hidden_groups": 19})


@torch.inference_mode()
def test_texts_are_read_and_written(tmp_path: Path) -> None:
    """Through the tokeniser: the same probabilities for a mask, a label and a sentence's vector."""
    text, ids = "w1 w2 w20", [8, 1, 2, 20, 11]
    masked = build_hf_model("Bert", "BertForMaskedLM")
    actual = from_hf(save_folder(masked, tmp_path / "masked")).fill_mask(["w1 [MASK] w20"], count=24)[0][0]
    expected = masked(torch.tensor([[8, 1, 15, 20, 11]])).logits[0, 2].softmax(-1)
    best = max(actual, key=lambda filling: filling.probability)
    words = [number for number, word in enumerate(VOCAB) if word.startswith("w")]
    assert best.word == VOCAB[max(words, key=lambda number: expected[number])]
    assert best.probability == pytest.approx(expected[int(best.word[1:])].item(), rel=1e-4)

    classifier = build_hf_model("Bert", "BertForSequenceClassification", id2label={0: "bad", 1: "good", 2: "fair"})
    scores = from_hf(save_folder(classifier, tmp_path / "classifier")).classify([text])[0]
    expected = classifier(torch.tensor([ids])).logits[0].softmax(-1)
    assert scores == pytest.approx(dict(zip(["bad", "good", "fair"], expected.tolist(), strict=True)), rel=1e-4)

    reader = build_hf_model("Bert", "BertModel")
    actual = from_hf(save_folder(reader, tmp_path / "reader"))
    states = reader(torch.tensor([ids])).last_hidden_state
    assert_parity(actual.embed([text]), states.mean(1))
    with pytest.raises(UserError, match="an encoder alone has nothing to learn"):
        actual.evaluate([("w1", "w2")])


@torch.inference_mode()
def test_absolute_positions_in_a_folder_of_deberta_are_those_of_the_mask_decoder(tmp_path: Path) -> None:
    folder = save_folder(build_hf_model("Deberta", "DebertaForMaskedLM"), tmp_path / "in")
    tensors = load_file(folder / "model.safetensors")
    tensors["deberta.embeddings.position_embeddings.weight"] = torch.zeros(20, 32)
    save_file(tensors, folder / "model.safetensors")
    imported = read_folder(folder)
    assert imported.config.mask_decoder == 2
    assert "mask_decoder: config.json of deberta cannot express this" in to_hf(from_hf(folder), tmp_path / "out")
    ids = torch.arange(5, 12)[None]
    assert torch.equal(from_hf(tmp_path / "out").model(ids), imported.model(ids))


def test_the_special_tokens_around_a_text_must_be_known(tmp_path: Path) -> None:
    build_hf_model("Bert", "BertModel").save_pretrained(tmp_path)
    with pytest.raises(
        UserError, match=r"nothing says which special tokens begin and end a text; add cls_token and sep_token"
    ):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [({"position_biased_input": True}, "position_biased_input"), ({"pos_att_type": ["c2p"]}, "only both of c2p")],
)
def test_another_kind_of_deberta_is_refused(settings: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    build_hf_model("Deberta", "DebertaModel", **settings).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=complaint):
        read_folder(tmp_path)


@torch.inference_mode()
def test_norms_of_the_first_berts_have_other_names(tmp_path: Path) -> None:
    model = build_hf_model("Bert", "BertForPreTraining")
    folder = save_folder(model, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for name in list(tensors):
        for new, before in old.items():
            if name.endswith(new):
                tensors[name.replace(new, before)] = tensors.pop(name)
    save_file(tensors, folder / "model.safetensors")
    compare(read_folder(folder), model)


@pytest.mark.parametrize("kind", SETTINGS)
def test_fine_tuned_models_have_equal_outputs_in_transformers(kind: str, tmp_path: Path) -> None:
    """A model that fills in, trained further to classify: new head and pooler, and the mask is no word any more."""
    folder = save_folder(build_hf_model(kind, f"{kind}ForMaskedLM"), tmp_path / "in")
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
