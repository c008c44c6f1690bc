"""ModernBERT, DeBERTa v2 and v3, and Longformer of `transformers` with random weights of odd shapes, in and out: equal
outputs for every task."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_bert_kin import IDS, SPECIAL_IDS, compare, save_folder
from word_folders import build_noisy_model, vocabulary

import headwise
from headwise import UserError
from headwise.blocks.stream import Context
from headwise.experiment.config import parse_experiment
from headwise.experiment.convert import from_hf, to_hf
from headwise.experiment.run import train_experiment
from headwise.interop.hf.files import WEIGHTS
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.write import choose_architecture
from headwise.testing import assert_parity
from headwise.text import BOS, EOS, PAD, UNK

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit.script, which this module of transformers uses
    import transformers.models.deberta_v2.modeling_deberta_v2

SHAPE: dict[str, Any] = {
    "vocab_size": len(vocabulary(SPECIAL_IDS)), "hidden_size": 30, "num_hidden_layers": 4, "num_attention_heads": 3,
    "intermediate_size": 42, "max_position_embeddings": 20, "pad_token_id": SPECIAL_IDS["pad"],
}  # fmt: skip
MARKS = {f"{mark}_token_id": SPECIAL_IDS[name] for mark, name in (("cls", "cls"), ("bos", "cls"), ("sep", "sep"))}
SETTINGS: dict[str, dict[str, Any]] = {
    "ModernBert": {**MARKS, "eos_token_id": SPECIAL_IDS["sep"], "local_attention": 5},
    "DebertaV2": {
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": ["c2p", "p2c"],
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_buckets": 4,
        "conv_kernel_size": 3,
        "conv_act": "gelu",
        "layer_norm_eps": 1e-7,
    },
    "Longformer": {**MARKS, "eos_token_id": SPECIAL_IDS["sep"], "type_vocab_size": 1, "attention_window": 4},
}
HEADS = ["ForMaskedLM", "ForTokenClassification", "ForSequenceClassification", "ForQuestionAnswering", "Model"]
CLASSES = [kind + head for kind in SETTINGS for head in HEADS]
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("ModernBertForSequenceClassification", {"classifier_pooling": "mean"}),
    ("ModernBertForMaskedLM", {"global_attn_every_n_layers": 2, "classifier_activation": "silu"}),
    ("ModernBertForMaskedLM", {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True}),
    ("ModernBertForMaskedLM", {"decoder_bias": False, "hidden_activation": "silu", "tie_word_embeddings": False}),
    ("ModernBertModel", {"layer_types": ["sliding_attention"] * 4, "local_attention": 2, "norm_eps": 0.1}),
    ("ModernBertModel", {"rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 70.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
    }}),
    ("DebertaV2ForMaskedLM", {"share_att_key": False, "norm_rel_ebd": "none", "conv_kernel_size": 0, "legacy": False}),
    ("DebertaV2ForMaskedLM", {"position_buckets": -1, "max_relative_positions": 3, "conv_groups": 3}),
    ("DebertaV2Model", {"share_att_key": False, "pos_att_type": "p2c", "conv_kernel_size": 5, "conv_act": "sigmoid"}),
    ("DebertaV2Model", {"pos_att_type": ["c2p"], "position_buckets": 7, "max_relative_positions": 6}),
    ("DebertaV2ForSequenceClassification", {"pos_att_type": "none", "type_vocab_size": 2, "num_hidden_layers": 1}),
    ("LongformerForSequenceClassification", {"attention_window": [4, 8, 4, 4], "hidden_act": "relu"}),
    ("LongformerForMaskedLM", {"hidden_act": "silu", "tie_word_embeddings": False}),
]  # fmt: skip


def build_hf_model(name: str, **settings: Any) -> Any:
    kind = next(kind for kind in SETTINGS if name.startswith(kind))
    labels = {"num_labels": 3} if name.endswith("Classification") else {}
    config = getattr(transformers, f"{kind}Config")(**{**SHAPE, **SETTINGS[kind], **labels, **settings})
    return build_noisy_model(name, config)


@torch.inference_mode()
def check_both_ways(model: Any, folder: Path) -> None:
    """Compare a model with what Headwise reads of it, and with what transformers reads of what Headwise writes."""
    imported = read_folder(save_folder(model, folder / "in"))
    compare(imported, model)
    to_hf(from_hf(folder / "in"), folder / "out")
    again, info = type(model).from_pretrained(folder / "out", output_loading_info=True)
    # Longformer computes nothing from its second output bias, unless it is tied to the first.
    assert set(info["missing_keys"]) <= {"lm_head.bias"} and not info["unexpected_keys"]
    compare(imported, again.eval())
    written = json.loads((folder / "out" / "config.json").read_text())
    assert written["architectures"] == [type(model).__name__]
    for mark in ("pad", "cls", "sep"):
        assert written[f"{mark}_token_id"] == SPECIAL_IDS[mark]


@pytest.mark.parametrize("name", CLASSES)
def test_outputs_are_equal_both_ways(name: str, tmp_path: Path) -> None:
    check_both_ways(build_hf_model(name), tmp_path)


@pytest.mark.parametrize(("name", "settings"), FORMS, ids=str)
def test_other_settings_have_equal_outputs_both_ways(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    check_both_ways(build_hf_model(name, **settings), tmp_path)


@torch.inference_mode()
def test_windows_and_bases_of_modernbert_change_outputs(tmp_path: Path) -> None:
    """What the parity tests compare depends on the settings that differ between layers."""
    model = build_hf_model("ModernBertModel")
    path = save_folder(model, tmp_path) / "config.json"
    data, states = json.loads(path.read_text()), []
    data.pop("rope_parameters")
    for change in ({}, {"local_attention": 2}, {"local_rope_theta": 50.0}, {"global_rope_theta": 50.0}):
        path.write_text(json.dumps(data | change))
        states.append(read_folder(tmp_path).model.encoder(IDS, Context()).x[0])
    for other in states[1:]:
        assert (other - states[0]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types: has 1 of 4 layers"),
        ({"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters: must have the tables full_attention"),
        (
            {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}},
            r"rope_parameters\.full_attention\.partial_rotary_factor: is not supported",
        ),
        ({"decoder_bias": False}, r"decoder_bias: is false, so nothing reads decoder\.bias"),
    ],
    ids=str,
)
def test_other_folders_of_modernbert_are_refused(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = save_folder(build_hf_model("ModernBertForMaskedLM"), tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=complaint) as refused:
        read_folder(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"relative_attention": False}, "relative_attention"),
        ({"position_biased_input": True}, "position_biased_input"),
        ({"pos_att_type": "c2p|p2p"}, "pos_att_type: 'p2p' is not supported; the terms are c2p and p2c"),
        ({"pos_att_type": ["p2p"]}, "pos_att_type: 'p2p' is not supported"),
        ({"norm_rel_ebd": "rms_norm"}, "norm_rel_ebd: only none and layer_norm are supported"),
        ({"conv_kernel_size": 4}, "conv_kernel_size: only odd sizes are supported"),
        ({"attention_head_size": 8}, "attention_head_size: only 10, which follows from hidden_size"),
        ({"embedding_size": 8}, "embedding_size: only 30, which follows from hidden_size"),
        ({"position_buckets": 40}, "position_buckets: is not supported: must be at least 2"),
    ],
    ids=str,
)
def test_other_folders_of_deberta_are_refused(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = save_folder(build_hf_model("DebertaV2Model"), tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=complaint) as refused:
        read_folder(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["LongformerForSequenceClassification", "LongformerForTokenClassification"])
@torch.inference_mode()
def test_blocks_of_long_texts_have_equal_outputs(name: str, tmp_path: Path) -> None:
    """Texts longer than a window, of different lengths: with the first token global, and with none."""
    model = build_hf_model(name, max_position_embeddings=150, attention_window=[4, 8, 4, 8])
    imported = read_folder(save_folder(model, tmp_path))
    ids = torch.randint(UNK + 1, 20, (3, 131), generator=torch.Generator().manual_seed(0))
    ids[1, 60:], ids[2, 3:] = PAD, PAD
    read = torch.nn.functional.pad(ids, (1, 0), value=BOS)
    order = torch.tensor(imported.vocabularies.source.hf_ids)
    expected = model(input_ids=order[read], attention_mask=(read != PAD).long()).logits
    actual = imported.model(ids)[..., UNK + 1 :]
    if imported.task == "tag":
        actual, expected = actual[ids != PAD], expected[:, 1:][ids != PAD]
    assert_parity(actual, expected)


@torch.inference_mode()
def test_questions_of_longformer_are_global(tmp_path: Path) -> None:
    """Questions of different lengths, one of them longer than a window, with texts in blocks and in one window."""
    model = build_hf_model("LongformerForQuestionAnswering", max_position_embeddings=250, attention_window=[4, 8, 4, 8])
    imported = read_folder(save_folder(model, tmp_path))
    order = torch.tensor(imported.vocabularies.source.hf_ids)
    for question_lengths, length in (((12, 3, 1), 160), ((2, 3, 1), 9)):
        ids = torch.randint(UNK + 1, 20, (3, length), generator=torch.Generator().manual_seed(0))
        for row, (count, end) in enumerate(zip(question_lengths, (length - 1, length // 2 + 4, 6), strict=True)):
            ids[row, [count, count + 1, end]] = EOS
            ids[row, end + 1 :] = PAD
        read = torch.nn.functional.pad(ids, (1, 0), value=BOS)
        expected = model(input_ids=order[read], attention_mask=(read != PAD).long())
        actual = imported.model(ids)
        keep = actual > torch.finfo().min
        assert keep[..., 0].sum(1).min() >= 3
        assert_parity(actual[keep], torch.stack((expected.start_logits, expected.end_logits), -1)[:, 1:][keep])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"attention_window": 5}, "attention_window: must be even and above 0"),
        ({"attention_window": [4, 4]}, "attention_window: has 2 windows for 4 layers"),
        ({"max_position_embeddings": 4}, "max_position_embeddings: is too small"),
        ({"type_vocab_size": 2}, "type_vocab_size"),
        ({"architectures": ["LongformerForMultipleChoice"]}, "'LongformerForMultipleChoice' is not known"),
    ],
    ids=str,
)
def test_other_folders_of_longformer_are_refused(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = save_folder(build_hf_model("LongformerModel"), tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=complaint):
        read_folder(tmp_path)


def test_a_longformer_fine_tuned_without_a_global_token_is_not_written(tmp_path: Path) -> None:
    """In transformers the first token of a classifier is global."""
    model = from_hf(save_folder(build_hf_model("LongformerForSequenceClassification"), tmp_path / "in"))
    assert model.model.encoder.stack.layers[0].parts[0].global_tokens == 1
    mixer = {"kind": "longformer", "left": 2, "right": 2}
    config = read_folder(tmp_path / "in").config.replace(mixer=mixer)
    with pytest.raises(UserError, match=r"config\.json of longformer cannot express this"):
        choose_architecture(config, "classify", 24)


@torch.inference_mode()
def test_a_folder_of_deberta_v3_has_the_names_of_its_pretraining(tmp_path: Path) -> None:
    """Its generator's head under the names of legacy = false, and that of its discriminator, which is ignored."""
    model = build_hf_model("DebertaV2ForMaskedLM", legacy=False)
    folder = save_folder(model, tmp_path)
    tensors = load_file(folder / WEIGHTS)
    tensors["mask_predictions.dense.weight"] = torch.ones(30, 30)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    compare(read_folder(folder), model)


@pytest.mark.parametrize("kind", ["ModernBert", "DebertaV2"])
def test_fine_tuned_models_have_equal_outputs_in_transformers(kind: str, tmp_path: Path) -> None:
    folder = save_folder(build_hf_model(f"{kind}ForMaskedLM"), tmp_path / "in")
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
    assert tuned.classify(["w1 w2"])[0] == pytest.approx(named, rel=1e-4)
    assert from_hf(tmp_path / "out").classify(["w1 w2"])[0] == pytest.approx(named, rel=1e-4)
