"""`--check`: a folder in Headwise and in transformers."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

from headwise.cli.main import main
from headwise.decode.config import DecodeConfig
from headwise.errors import UserError
from headwise.interop.hf.check import TOLERANCE, check_folder
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.write import write_folder

sys.path.insert(0, str(Path(__file__).parents[1] / "parity"))
from tiny_folders import build_hf_model, save_folder

CLASSES = [  # one of each task, and of each way to start a text
    ("gpt2", "GPT2LMHeadModel"), ("llama", "LlamaForCausalLM"), ("t5", "T5ForConditionalGeneration"),
    ("marian", "MarianMTModel"), ("mbart", "MBartForConditionalGeneration"), ("bert", "BertForMaskedLM"),
    ("albert", "AlbertForSequenceClassification"), ("deberta", "DebertaForTokenClassification"),
    ("bert", "BertForQuestionAnswering"), ("roberta", "RobertaForQuestionAnswering"),
    ("funnel", "FunnelForQuestionAnswering"), ("bert", "BertModel"),
    ("t5", "T5EncoderModel"), ("electra", "ElectraForPreTraining"), ("perceiver", "PerceiverForMaskedLM"),
    ("vit", "ViTForImageClassification"), ("swin", "SwinModel"),
]  # fmt: skip
GENERATORS = ("gpt2", "llama", "marian", "mbart")


@pytest.mark.parametrize(("kind", "name"), CLASSES)
def test_folders_of_transformers_have_equal_outputs(kind: str, name: str, tmp_path: Path) -> None:
    comparison = check_folder(save_folder(build_hf_model(kind, name), tmp_path / "in"))
    assert comparison.equal and 0 <= comparison.difference < TOLERANCE, str(comparison)
    generates = kind in GENERATORS or name == "T5ForConditionalGeneration"
    assert bool(comparison.searches) == generates and all(search.tokens for search in comparison.searches)


HEAD_TENSORS = {
    "BertForQuestionAnswering": "qa_outputs.bias", "BertModel": "pooler.dense.bias",
    "ElectraForPreTraining": "discriminator_predictions.dense.bias",
}  # fmt: skip


@pytest.mark.parametrize("name", HEAD_TENSORS)
def test_a_head_that_differs_is_found(name: str, tmp_path: Path) -> None:
    folder = save_folder(build_hf_model("electra" if "Electra" in name else "bert", name), tmp_path / "in")
    model = read_folder(folder).model
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors[HEAD_TENSORS[name]] += 1
    save_file(tensors, file, metadata={"format": "pt"})
    comparison = check_folder(folder, model)
    assert not comparison.equal and "above the limit of 1e-04" in str(comparison)


def test_a_changed_weight_is_found_with_the_first_differing_token(tmp_path: Path) -> None:
    folder = save_folder(build_hf_model("gpt2", "GPT2LMHeadModel"), tmp_path / "in")
    model = read_folder(folder).model
    with torch.no_grad():
        model.decoder.stack.layers[0].parts[0].out.weight.neg_()
    comparison = check_folder(folder, model)
    (greedy,) = comparison.searches
    assert not comparison.equal and comparison.difference > 0.01
    assert greedy.first_differing and greedy.first_differing[1] == 1
    assert f"greedy search: token 1 of input {greedy.first_differing[0]} differs: id " in str(comparison)


SEARCH: dict[str, Any] = {
    "num_beams": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "suppress_tokens": [9, 11], "min_length": 16,
    "max_length": 20, "return_dict_in_generate": True, "output_scores": True,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [("gpt2", "GPT2LMHeadModel"), ("mbart", "MBartForConditionalGeneration")])
def test_the_search_of_the_folder_is_compared(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_hf_model(kind, name)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    folder = save_folder(model, tmp_path / "in")
    GenerationConfig(**{**model.generation_config.to_diff_dict(), **SEARCH}).save_pretrained(folder)
    comparison = check_folder(folder)
    assert comparison.equal, str(comparison)
    assert [search.name for search in comparison.searches] == ["greedy search", "generation_config.json"]
    monkeypatch.setattr("headwise.interop.hf.read.from_generation_config", lambda *args: {"beams": 3})
    comparison = check_folder(folder)
    assert [search.equal for search in comparison.searches] == [True, False]
    assert "generation_config.json: token" in str(comparison)


def test_sampling_is_compared_as_the_search_without_it(tmp_path: Path) -> None:
    folder = save_folder(build_hf_model("llama", "LlamaForCausalLM"), tmp_path / "in")
    settings = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.2, "eos_token_id": 2}
    GenerationConfig(**settings).save_pretrained(folder)
    comparison = check_folder(folder)
    assert comparison.equal, str(comparison)
    assert comparison.searches[1].name == "generation_config.json without its sampling"


def test_several_end_tokens_of_config_json_count_without_a_generation_config(tmp_path: Path) -> None:
    folder = save_folder(build_hf_model("llama", "LlamaForCausalLM"), tmp_path / "in")
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    before = check_folder(folder)
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": [2, *range(5, 20)]}))
    after = check_folder(folder)
    assert before.equal and after.equal and before.searches[0].tokens > after.searches[0].tokens


@pytest.mark.parametrize("forced", [None, 0, 5])
def test_a_bart_forces_the_first_token_as_its_folder_does(forced: int | None, tmp_path: Path) -> None:
    hf_model = build_hf_model("bart", "BartForConditionalGeneration")
    hf_model.generation_config.forced_bos_token_id = forced
    folder = save_folder(hf_model, tmp_path / "in")
    comparison = check_folder(folder)
    assert comparison.equal and all(search.tokens for search in comparison.searches), str(comparison)
    imported = read_folder(folder)
    decode = DecodeConfig(**imported.decode_settings)
    write_folder(
        imported.model, imported.config, imported.task, None, tmp_path / "out", imported.vocabularies.source,
        decode=decode,
    )  # fmt: skip
    written = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert written.get("forced_bos_token_id") == forced
    assert check_folder(tmp_path / "out", imported.model).equal


@pytest.mark.parametrize("start", [{"decoder_start_token_id": 5}, {"decoder_start_token_id": None, "bos_token_id": 6}])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("t5", "T5ForConditionalGeneration"), ("marian", "MarianMTModel"),
        ("mbart", "MBartForConditionalGeneration"), ("pegasus", "PegasusForConditionalGeneration"),
    ],
)  # fmt: skip
def test_the_decoder_starts_as_the_generation_config_says(
    kind: str, name: str, start: dict[str, int | None], tmp_path: Path
) -> None:
    folder = save_folder(build_hf_model(kind, name), tmp_path / "in")
    before = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**before, **start}))
    comparison = check_folder(folder)
    assert comparison.equal and all(search.tokens for search in comparison.searches), str(comparison)


def test_what_transformers_cannot_run_is_one_sentence(tmp_path: Path) -> None:
    folder = save_folder(build_hf_model("t5", "T5ForConditionalGeneration"), tmp_path / "in")
    before = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**before, "decoder_start_token_id": None}))
    with pytest.raises(UserError, match=r"--check: transformers cannot run it \(`decoder_start_token_id` or"):
        check_folder(folder)


def test_an_encoder_decoder_that_says_it_is_none_is_refused(tmp_path: Path) -> None:
    folder = save_folder(build_hf_model("t5", "T5ForQuestionAnswering", is_encoder_decoder=False), tmp_path / "in")
    with pytest.raises(UserError, match="is_encoder_decoder: is false, but the model has a decoder"):
        read_folder(folder)


def test_import_compares_and_writes_only_a_named_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_folder(build_hf_model("gpt2", "GPT2LMHeadModel"), tmp_path / "in")
    main(["import", str(folder), "--check"])
    assert "tokens are equal" in capsys.readouterr().out and list(tmp_path.iterdir()) == [folder]
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
    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not installed
    with pytest.raises(UserError, match="transformers, which is not installed"):
        check_folder(tmp_path)


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(SystemExit) as stopped:
        main(["import", str(tmp_path / "file.gguf"), "--check"])
    assert stopped.value.code == 2
