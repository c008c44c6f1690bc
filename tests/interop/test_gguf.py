"""GGUF files of LLaMA: the imported model has the logits of the model that the file was written from."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf_files import StoredTensors, write_gguf
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

import headwise
from headwise.cli.main import main
from headwise.errors import UserError
from headwise.interop.gguf_llama import read_gguf
from headwise.testing import assert_parity


def test_logits_and_tokens_are_those_of_transformers(
    llama_model: LlamaForCausalLM,
    llama_metadata: dict[str, Any],
    llama_tensors: StoredTensors,
    engines: dict[str, Any],
    tmp_path: Path,
) -> None:
    imported = read_gguf(write_gguf(tmp_path / "m.gguf", llama_metadata, llama_tensors))
    rows = imported.vocabularies.source
    ids = torch.randint(4, 280, (2, 9))
    with torch.inference_mode():
        expected = llama_model(torch.tensor(rows.hf_ids)[ids]).logits
        assert_parity(imported.model(ids)[..., rows.headwise_ids], expected)
    tokeniser = imported.tokenisers.source  # type: ignore[union-attr]
    hf_tokeniser = Tokenizer.from_str(json.dumps(engines["gpt2"]))
    for sample in ("the cat sat 12", " naïve\n"):
        assert [rows.hf_ids[i] for i in tokeniser.encode(sample)] == hf_tokeniser.encode(sample).ids


def test_a_file_is_imported_as_a_run(
    llama_metadata: dict[str, Any], llama_tensors: StoredTensors, tmp_path: Path, capsys: Any
) -> None:
    file = write_gguf(tmp_path / "m.gguf", llama_metadata, llama_tensors)
    main(["import", str(file), str(tmp_path / "run")])
    assert headwise.load(tmp_path / "run").experiment.decode.marked
    assert headwise.load(file).generate(["the"], max_ratio=0, max_extra=3)[0][0].text.startswith("the")
    main(["generate", str(tmp_path / "run"), "the cat", "--length", "3"])
    assert capsys.readouterr().out.splitlines()[1].startswith("the cat")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"general.architecture": "mamba"}, "mamba.*only llama"),
        ({"llama.block_count": 3}, r"has no blk\.2\.attn_norm"),
        ({"llama.rope.scaling.type": "yarn"}, "yarn"),
        ({"tokenizer.ggml.model": "llama"}, "only gpt2"),
        ({"tokenizer.ggml.pre": "smolm"}, "did you mean smollm"),
        ({"llama.feed_forward_length": 41}, r"blk\.0\.ffn_gate\.weight is \(40, 32\), its metadata ask for \(41, 32\)"),
    ],
    ids=str,
)
def test_unsupported_metadata_are_named(
    changes: dict[str, Any], words: str, llama_metadata: dict[str, Any], llama_tensors: StoredTensors, tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "m.gguf", llama_metadata | changes, llama_tensors)
    with pytest.raises(UserError, match=words):
        read_gguf(file)


def test_an_unsupported_tensor_type_is_named(
    llama_metadata: dict[str, Any], llama_tensors: StoredTensors, tmp_path: Path
) -> None:
    tensors = dict(llama_tensors, **{"output.weight": ((281, 32), 23, bytes(99999))})
    with pytest.raises(UserError, match=r"output\.weight is stored as ggml type 23, .* Q4_1"):
        read_gguf(write_gguf(tmp_path / "y.gguf", llama_metadata, tensors))
