"""Tables that are tied, or stored with other values than those they are tied to: every tensor of a folder is used as
`transformers` uses it, is a copy of one that is, or is named."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_folders import TINY, assert_equal_logits, build_hf_model, logits, save_folder

from headwise import UserError
from headwise.interop.hf import ARCHITECTURES, load_architecture
from headwise.interop.hf.files import WEIGHTS
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.write import write_folder

CLASSES = [(kind, name) for kind in ARCHITECTURES for name in load_architecture(kind).classes]
TIES = [
    (kind, name)
    for kind, name in CLASSES
    if load_architecture(kind).classes[name] in ("language-model", "masked", "transduce")
]
ALWAYS_TIED = ("t5", "mt5", "perceiver")  # unless a checkpoint has both tables
NEVER_TIED = ("reformer",)  # outputs are twice as wide as embeddings
SAMPLE = ("gpt2", "bert", "t5", "bart", "marian", "perceiver", "reformer")  # the others: make test-weights
SAMPLED_TIES = [pytest.param(kind, name, marks=() if kind in SAMPLE else pytest.mark.weights) for kind, name in TIES]
UNTIED = {"marian": [{}, {"share_encoder_decoder_embeddings": False}]}


def tie_by_default(kind: str) -> dict[str, Any]:
    return {} if kind in ALWAYS_TIED else {"tie_word_embeddings": True}


def store_tensors(folder: Path, **tensors: torch.Tensor) -> None:
    save_file({**load_file(folder / WEIGHTS), **tensors}, folder / WEIGHTS, metadata={"format": "pt"})


def load_hf_model(name: str, folder: Path) -> Any:
    return getattr(transformers, name).from_pretrained(folder).eval()


def list_settings(kind: str) -> list[dict[str, Any]]:
    return [tie_by_default(kind) | settings for settings in UNTIED.get(kind, [{}])]


def group_by_source(tied: Mapping[str, str]) -> dict[str, list[str]]:
    """The order counts among those that are tied to one."""
    return {source: [name for name, other in tied.items() if other == source] for source in tied.values()}


def test_every_architecture_is_here() -> None:
    assert set(TINY) == set(ARCHITECTURES)


@pytest.mark.parametrize(("kind", "name"), CLASSES)
def test_tied_pairs_are_those_of_transformers(kind: str, name: str) -> None:
    words = hasattr(load_architecture(kind).hf_config, "context")
    for settings in [*(list_settings(kind) if words else [{}]), *([{"tie_word_embeddings": False}] if words else [])]:
        model = build_hf_model(kind, name, **settings)
        data = json.loads(model.config.to_json_string())
        actual = load_architecture(kind).hf_config.read(data).tied_weights(name)
        assert group_by_source(actual) == group_by_source(model.all_tied_weights_keys)


@pytest.mark.parametrize(("kind", "name"), SAMPLED_TIES)
@torch.inference_mode()
def test_tables_that_differ_from_those_they_are_tied_to(kind: str, name: str, tmp_path: Path) -> None:
    """Each alone, and all at once: what is read is what `transformers` reads, there and back."""
    for form, settings in enumerate(list_settings(kind)):
        model = build_hf_model(kind, name, **settings)
        pairs, values = dict(model.all_tied_weights_keys), dict(model.state_dict())
        plain = logits(read_folder(save_folder(model, tmp_path / f"{form}-plain")), model)[0]
        everything = {*pairs, *pairs.values()}
        for number, others in enumerate([*({each} for each in sorted(everything)), everything]):
            folder = save_folder(model, tmp_path / f"{form}-{number}")
            torch.manual_seed(number)
            changed = {key: values[key] + torch.randn_like(values[key]) for key in sorted(others)}
            # With what it is tied to beside it, or the one that was changed would be the only one.
            store_tensors(folder, **{key: values[key].clone() for key in sorted(everything)} | changed)
            again = load_hf_model(name, folder)
            imported = read_folder(folder)
            assert_equal_logits(imported, again)
            actual = logits(imported, again)[0]
            if others & set(pairs):
                assert (actual - plain).abs().max() > 0.1
            out = tmp_path / f"{form}-{number}-out"
            write_folder(imported.model, imported.config, imported.task, None, out, imported.vocabularies.source)
            assert_equal_logits(imported, load_hf_model(name, out))
            assert_equal_logits(read_folder(out), again)
            if imported.config.tie in ("none", "inputs") and kind not in (*ALWAYS_TIED, "switch_transformers"):
                assert json.loads((out / "config.json").read_text())["tie_word_embeddings"] is False


@pytest.mark.parametrize(("kind", "name"), TIES)
@torch.inference_mode()
def test_copies_of_a_tied_table_change_nothing(kind: str, name: str, tmp_path: Path) -> None:
    model = build_hf_model(kind, name, **tie_by_default(kind))
    folder = save_folder(model, tmp_path / "in")
    before = read_folder(folder)
    store_tensors(
        folder, **{key: model.state_dict()[key].clone() for pair in model.all_tied_weights_keys.items() for key in pair}
    )
    after = read_folder(folder)
    assert before.config == after.config and after.config.tie == ("none" if kind in NEVER_TIED else "auto")
    assert torch.equal(logits(before, model)[0], logits(after, model)[0])


@pytest.mark.parametrize(("kind", "name"), TIES)
@torch.inference_mode()
def test_models_that_tie_nothing(kind: str, name: str, tmp_path: Path) -> None:
    model = build_hf_model(kind, name, tie_word_embeddings=False)
    imported = read_folder(save_folder(model, tmp_path / "in"))
    assert_equal_logits(imported, model)
    assert imported.config.tie == ("auto" if kind in ALWAYS_TIED else "none")
    write_folder(imported.model, imported.config, imported.task, None, tmp_path / "out", imported.vocabularies.source)
    assert_equal_logits(imported, load_hf_model(name, tmp_path / "out"))


@pytest.mark.parametrize(("kind", "name"), CLASSES)
def test_an_unknown_tensor_is_named(kind: str, name: str, tmp_path: Path) -> None:
    folder = save_folder(build_hf_model(kind, name), tmp_path)
    store_tensors(folder, **{"lm_head.gain": torch.ones(3), "surprise.weight": torch.ones(3)})
    with pytest.raises(UserError, match=r"does not ask for .*lm_head\.gain, .*surprise\.weight"):
        read_folder(folder)


IGNORED = {
    "gpt2": {"transformer.h.0.attn.bias": (1, 1, 24, 24), "transformer.h.1.attn.masked_bias": ()},
    "openai-gpt": {"transformer.h.0.attn.bias": (1, 1, 24, 24)},
    "llama": {"model.layers.0.self_attn.rotary_emb.inv_freq": (4,)},
    "bert": {"bert.embeddings.position_ids": (1, 24), "bert.pooler.dense.weight": (16, 16)},
    "ernie": {"ernie.embeddings.position_ids": (1, 24)},
    "electra": {"electra.embeddings.position_ids": (1, 24)},
    "distilbert": {"distilbert.embeddings.position_ids": (1, 24)},
    "roberta": {"roberta.embeddings.position_ids": (1, 24), "roberta.pooler.dense.weight": (16, 16)},
    "albert": {"albert.embeddings.position_ids": (1, 24), "albert.pooler.weight": (16, 16)},
    "fnet": {"fnet.embeddings.position_ids": (1, 24)},
    "deberta": {"deberta.embeddings.position_ids": (1, 24)},
    "bart": {"model.encoder.version": (1,), "model.decoder.version": (1,)},
    "t5": {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": (32, 2)},
    "mt5": {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": (32, 2)},
    "vit": {"vit.pooler.dense.weight": (16, 16), "vit.pooler.dense.bias": (16,)},
    "deit": {"deit.pooler.dense.weight": (16, 16), "deit.pooler.dense.bias": (16,)},
    "swin": {"swin.encoder.layers.0.blocks.0.attention.self.relative_position_index": (16, 16)},
}
HEADS = {
    "bert": "BertForMaskedLM", "albert": "AlbertForMaskedLM", "fnet": "FNetForMaskedLM",
    "vit": "ViTForImageClassification", "deit": "DeiTForImageClassification", "swin": "SwinForImageClassification",
}  # fmt: skip


@pytest.mark.parametrize("kind", IGNORED)
@torch.inference_mode()
def test_ignored_tensors_change_nothing_and_are_named(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headwise")
    name = HEADS.get(kind, next(iter(load_architecture(kind).classes)))
    folder = save_folder(build_hf_model(kind, name), tmp_path)
    store_tensors(folder, **{key: torch.full(shape, 0.5) for key, shape in IGNORED[kind].items()})
    assert_equal_logits(read_folder(folder), load_hf_model(name, folder))
    assert all(key in caplog.text for key in IGNORED[kind]) and "ignored: " in caplog.text


def test_the_command_names_ignored_tensors(tmp_path: Path) -> None:
    folder = save_folder(build_hf_model("vit", "ViTForImageClassification"), tmp_path / "vit")
    store_tensors(folder, **{key: torch.ones(shape) for key, shape in IGNORED["vit"].items()})
    call = [sys.executable, "-m", "headwise", "import", str(folder), str(tmp_path / "run")]
    told = subprocess.run(call, capture_output=True, text=True, check=True).stderr
    assert "vit.pooler.dense.bias, vit.pooler.dense.weight ignored: " in told


@pytest.mark.parametrize(
    ("kind", "name"), [("marian", "MarianMTModel"), ("pegasus", "PegasusForConditionalGeneration")]
)
@torch.inference_mode()
def test_stored_positions_are_those_of_the_model(
    kind: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Sinusoids are computed; any other table, such as one of half precision, is used in both libraries."""
    folder = save_folder(build_hf_model(kind, name), tmp_path / "in")
    sinusoids = load_hf_model(name, folder).model.encoder.embed_positions.weight.clone()
    tables = {"model.encoder.embed_positions.weight": sinusoids, "model.decoder.embed_positions.weight": sinusoids}
    store_tensors(folder, **{key: table.clone() for key, table in tables.items()})
    assert dict(read_folder(folder).config)["positions"].kind == "sinusoid"
    for change in (torch.Tensor.half, torch.Tensor.bfloat16, lambda table: table.flip(0)):
        store_tensors(folder, **{key: change(table) for key, table in tables.items()})
        imported, model = read_folder(folder), load_hf_model(name, folder)
        table = model.model.encoder.embed_positions.weight
        assert torch.equal(table, change(sinusoids).float()) and not torch.equal(table, sinusoids)
        assert_equal_logits(imported, model)
        out = tmp_path / f"out-{table[1, 0]}"
        write_folder(imported.model, imported.config, imported.task, None, out, imported.vocabularies.source)
        assert_equal_logits(imported, load_hf_model(name, out))
        assert_equal_logits(read_folder(out), model)
    assert "rounded" not in caplog.text


def test_one_position_table_of_two_is_refused(tmp_path: Path) -> None:
    folder = save_folder(build_hf_model("marian", "MarianMTModel"), tmp_path)
    table = load_hf_model("MarianMTModel", folder).model.encoder.embed_positions.weight.detach().half()
    store_tensors(folder, **{"model.encoder.embed_positions.weight": table})
    with pytest.raises(UserError, match=r"embed_positions\.weight is no table of sinusoids, and the other"):
        read_folder(folder)


@torch.inference_mode()
def test_one_part_under_two_names_that_differ_is_refused(tmp_path: Path) -> None:
    """Older and newer names of DeBERTa's head; a gated and a plain feed-forward network of T5."""
    folder = save_folder(build_hf_model("deberta", "DebertaForMaskedLM"), tmp_path / "deberta")
    dense = load_file(folder / WEIGHTS)["cls.predictions.transform.dense.weight"]
    store_tensors(folder, **{"lm_predictions.lm_head.dense.weight": dense})
    assert_equal_logits(read_folder(folder), load_hf_model("DebertaForMaskedLM", folder))
    store_tensors(folder, **{"lm_predictions.lm_head.dense.weight": dense + 1})
    with pytest.raises(UserError, match=r"transform\.dense\.weight and lm_predictions\..* differ; remove one"):
        read_folder(folder)

    model = build_hf_model("t5", "T5ForConditionalGeneration", feed_forward_proj="gated-gelu")
    folder = save_folder(model, tmp_path / "t5")
    name = "encoder.block.0.layer.1.DenseReluDense.wi"
    store_tensors(folder, **{f"{name}.weight": load_file(folder / WEIGHTS)[f"{name}_0.weight"].clone()})
    with pytest.raises(UserError, match=r"wi_1\.weight and .*wi\.weight are one part of the model, but differ"):
        read_folder(folder)
