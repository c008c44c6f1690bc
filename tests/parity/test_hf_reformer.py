"""Reformer of `transformers` with random weights of odd shapes, in and out. Its rotations are those of a `hash_seed`,
which both draw from torch's generator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from test_bert_kin import SPECIAL_IDS
from torch import Tensor
from word_folders import build_noisy_model, save, vocabulary

from headwise import UserError
from headwise.blocks.stream import Context
from headwise.catalog import find
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.interop.hf.write import choose_architecture
from headwise.testing import assert_parity
from headwise.text import EOS, PAD, UNK

SHAPE: dict[str, Any] = {
    "vocab_size": len(vocabulary(SPECIAL_IDS)), "hidden_size": 30, "num_attention_heads": 3, "attention_head_size": 7,
    "feed_forward_size": 42, "axial_pos_shape": (6, 8), "axial_pos_embds_dim": (11, 19), "max_position_embeddings": 48,
    "local_attn_chunk_length": 6, "lsh_attn_chunk_length": 4, "num_buckets": 4, "num_hashes": 2, "hash_seed": 5,
    "attn_layers": ["local", "lsh", "lsh"], "pad_token_id": SPECIAL_IDS["pad"], "eos_token_id": SPECIAL_IDS["sep"],
}  # fmt: skip
DECODER_IDS = {name: SPECIAL_IDS[name] for name in ("pad", "unk", "sep")}  # texts leave out special tokens
DECODER: dict[str, Any] = {"is_decoder": True, "attn_layers": ["local", "local"]}
ENCODERS = ["ForMaskedLM", "ForSequenceClassification", "ForQuestionAnswering", "Model"]
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("ReformerForMaskedLM", {"num_buckets": [16, 16], "num_hashes": 1}),
    ("ReformerForMaskedLM", {"axial_pos_embds": False, "hidden_act": "gelu", "layer_norm_eps": 0.01}),
    ("ReformerModel", {"attn_layers": ["lsh", "local", "lsh"], "num_hashes": 3, "hash_seed": 11}),
    ("ReformerModel", {"attn_layers": ["local"] * 2, "local_num_chunks_before": 0, "num_buckets": None}),
    ("ReformerModelWithLMHead", {**DECODER, "local_num_chunks_before": 0}),
    ("ReformerModelWithLMHead", {**DECODER, "attn_layers": ["lsh", "local"], "lsh_attn_chunk_length": 48}),
]


def build_hf_model(name: str, **settings: Any) -> Any:
    settings = {**SHAPE, **({"num_labels": 3} if name.endswith("Classification") else {}), **settings}
    return build_noisy_model(name, transformers.ReformerConfig(**settings))


def save_folder(model: Any, folder: Path) -> Path:
    """An encoder reads an end after a text; a decoder, as with the tokeniser of Reformer, no special tokens."""
    if model.config.is_decoder:
        return save(model, folder, DECODER_IDS, begin=None, end=None)
    return save(model, folder, SPECIAL_IDS, begin=None)


def build_ids(length: int, first: int) -> Tensor:
    """Two texts, of which the second has `first` tokens, and padding; with an end between two parts of each."""
    ids = torch.randint(UNK + 1, 20, (2, length), generator=torch.Generator().manual_seed(length))
    ids[:, min(2, first - 1)] = EOS
    ids[1, first:] = PAD
    return ids


def compare(imported: ImportedModel, model: Any, ids: Tensor) -> None:
    order, real = torch.tensor(imported.vocabularies.source.hf_ids), ids != PAD
    padded = {} if real.all() else {"attention_mask": real.long()}
    theirs = model(input_ids=order[ids], **padded)
    if imported.task == "encode":
        assert_parity(imported.model.encoder(ids, Context()).x[real], theirs.last_hidden_state[real])
        return
    actual = imported.model(ids)
    if imported.task == "answer":
        expected, keep = torch.stack((theirs.start_logits, theirs.end_logits), -1), actual > torch.finfo().min
        assert_parity(actual[keep], expected[keep])
    elif imported.task == "classify":
        assert_parity(actual[..., UNK + 1 :], theirs.logits)
    else:
        words = [row for row in range(len(order)) if row not in imported.vocabularies.target.suppressed_ids]
        assert_parity(actual[real][:, words], theirs.logits[..., order][real][:, words])


@torch.inference_mode()
def check_both_ways(model: Any, folder: Path) -> None:
    imported = read_folder(save_folder(model, folder / "in"))
    to_hf(from_hf(folder / "in"), folder / "out")
    again, info = type(model).from_pretrained(folder / "out", output_loading_info=True)
    assert set(info["missing_keys"]) <= {"lm_head.bias"} and not info["unexpected_keys"]
    for ids in (build_ids(3, 3), build_ids(5, 4), build_ids(11, 11), build_ids(24, 24), build_ids(31, 9)):
        compare(imported, model, ids)
        compare(imported, again.eval(), ids)
    assert json.loads((folder / "out" / "config.json").read_text())["architectures"] == [type(model).__name__]


@pytest.mark.parametrize("head", ENCODERS)
def test_encoders_have_equal_outputs_both_ways(head: str, tmp_path: Path) -> None:
    check_both_ways(build_hf_model(f"Reformer{head}"), tmp_path)


@pytest.mark.parametrize(("name", "settings"), FORMS, ids=str)
def test_other_settings_have_equal_outputs_both_ways(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    check_both_ways(build_hf_model(name, **settings), tmp_path)


@pytest.mark.parametrize("settings", [{}, {"attn_layers": ["lsh", "local"], "lsh_attn_chunk_length": 48}], ids=str)
@torch.inference_mode()
def test_greedy_tokens_are_those_of_generate(settings: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model("ReformerModelWithLMHead", **{**DECODER, **settings})
    trained = from_hf(save_folder(model, tmp_path))
    for prompt in ("w1 w2 w20", "w5 w13 w2 w9 w4 w6 w17"):
        ids = torch.tensor([[int(word[1:]) for word in prompt.split()]])
        tokens = model.generate(ids, max_new_tokens=12, do_sample=False, use_cache=False)[0, ids.shape[1] :].tolist()
        words = [vocabulary(DECODER_IDS)[token] for token in tokens]
        words = words[: words.index("[SEP]")] if "[SEP]" in words else words
        assert trained.continue_prompts([prompt], max_length=12)[0][0].text.split() == words


@torch.inference_mode()
def test_layers_depend_on_what_is_compared(tmp_path: Path) -> None:
    """On buckets, the seed of their rotations, and the last chunk before the first."""
    model = build_hf_model("ReformerModel")
    path, ids, states = save_folder(model, tmp_path) / "config.json", build_ids(24, 24), []
    data = json.loads(path.read_text())
    for change in ({}, {"hash_seed": 6}, {"num_buckets": 2}, {"local_num_chunks_before": 0}):
        path.write_text(json.dumps(data | change))
        states.append(read_folder(tmp_path).model.encoder(ids, Context()).x)
    for other in states[1:]:
        assert (other - states[0]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"is_decoder": True}, "attn_layers: in a decoder, lsh over several chunks lets tokens see the future"),
        ({"is_decoder": True, "attn_layers": ["local"] * 3}, "is_decoder: is True, which is a language model here"),
        ({"num_buckets": None}, "num_buckets: is null, so transformers takes it from the first long text"),
        ({"num_buckets": 6}, "num_buckets: .*must be a power of two up to 128"),
        ({"num_buckets": 256}, "num_buckets: .*must be a power of two up to 128"),
        ({"num_buckets": [16, 16, 2]}, "num_buckets: .*must be a power of two up to 128"),
        ({"lsh_num_chunks_after": 1}, "lsh_num_chunks_after"),
        ({"local_num_chunks_before": 2}, "local_num_chunks_before"),
        ({"attn_layers": ["global"]}, "attn_layers"),
        ({"axial_pos_shape": [2, 4, 6]}, "axial_pos_shape"),
    ],
    ids=str,
)
def test_other_folders_are_refused(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = save_folder(build_hf_model("ReformerForMaskedLM"), tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=complaint) as refused:
        read_folder(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("task", ["masked", "language-model"])
def test_a_model_of_default_settings_is_not_expressible_for_a_stated_reason(task: str) -> None:
    entry, size = find("reformer-tiny")
    with pytest.raises(
        UserError, match=r"^local\.wrap: .* encoders with local\.wrap, mixer\.shortcuts and pad_to_chunks"
    ):
        choose_architecture(entry.config(**entry.sizes[size]), task, 30)
