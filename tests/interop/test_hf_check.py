"""`--check`: a folder in Headwise and in transformers."""

import builtins
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headwise.cli.main import main
from headwise.errors import UserError
from headwise.interop.hf.check import TOLERANCE, check_folder
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.write import write_folder

sys.path.insert(0, str(Path(__file__).parents[1] / "parity"))
from tiny_folders import build_hf_model, save_folder

CLASSES = {
    "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "bert": "BertForMaskedLM",
    "t5": "T5ForConditionalGeneration", "bart": "BartForConditionalGeneration", "marian": "MarianMTModel",
    "albert": "AlbertForSequenceClassification",
    "deberta": "DebertaForTokenClassification", "vit": "ViTForImageClassification", "swin": "SwinModel",
}  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES)
def test_folders_of_transformers_have_equal_outputs(kind: str, tmp_path: Path) -> None:
    comparison = check_folder(save_folder(build_hf_model(kind, CLASSES[kind]), tmp_path / "in"))
    assert comparison.equal and 0 <= comparison.difference < TOLERANCE, str(comparison)
    assert bool(comparison.compared_tokens) == (kind in ("gpt2", "llama", "t5", "bart", "marian"))


def test_a_changed_weight_is_found_with_the_first_differing_token(tmp_path: Path) -> None:
    folder = save_folder(build_hf_model("gpt2", "GPT2LMHeadModel"), tmp_path / "in")
    model = read_folder(folder).model
    with torch.no_grad():
        model.decoder.stack.layers[0].parts[0].out.weight.neg_()
    comparison = check_folder(folder, model)
    assert not comparison.equal and comparison.difference > 0.01 and comparison.first_differing == 1
    assert "greedy token 1 differs" in str(comparison)


def test_import_compares_and_writes_only_a_named_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_folder(build_hf_model("gpt2", "GPT2LMHeadModel"), tmp_path / "in")
    main(["import", str(folder), "--check"])
    assert "greedy tokens are equal" in capsys.readouterr().out and list(tmp_path.iterdir()) == [folder]
    with pytest.raises(SystemExit) as stopped:
        main(["import", str(folder)])
    assert stopped.value.code == 2 and "name the run folder" in capsys.readouterr().err


def test_different_outputs_have_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_folder(build_hf_model("gpt2", "GPT2LMHeadModel"), tmp_path / "in")
    monkeypatch.setattr("headwise.interop.hf.check.TOLERANCE", -1.0)
    with pytest.raises(SystemExit) as stopped:
        main(["import", str(folder), str(tmp_path / "run"), "--check"])
    assert stopped.value.code == 1 and not (tmp_path / "run").exists()


def test_an_exported_model_is_compared_with_the_written_folder(tmp_path: Path) -> None:
    imported = read_folder(save_folder(build_hf_model("bert", "BertForMaskedLM"), tmp_path / "in"))
    rows = imported.vocabularies.source
    write_folder(imported.model, imported.config, imported.task, None, tmp_path / "out", rows)
    assert check_folder(tmp_path / "out", imported.model).equal
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    tensors["cls.predictions.transform.dense.bias"] += 1
    save_file(tensors, tmp_path / "out" / "model.safetensors", metadata={"format": "pt"})
    assert not check_folder(tmp_path / "out", imported.model).equal


def test_without_transformers_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "transformers":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UserError, match="transformers, which is not installed"):
        check_folder(tmp_path)


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(SystemExit) as stopped:
        main(["import", str(tmp_path / "file.gguf"), "--check"])
    assert stopped.value.code == 2
