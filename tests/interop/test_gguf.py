"""GGUF files, written here byte by byte: the numbers that a block means, and a model that is the one it was made of."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

import headwise
from headwise.cli.main import main
from headwise.errors import UserError
from headwise.interop.gguf import Gguf
from headwise.interop.gguf_llama import read_gguf
from headwise.testing import assert_parity

NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def fact(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    inner = b"".join(fact(item)[4:] for item in value)
    return struct.pack("<I", 9) + fact(value[0])[:4] + struct.pack("<Q", len(value)) + inner


def written(path: Path, facts: dict[str, Any], tensors: dict[str, tuple[tuple[int, ...], int, bytes]]) -> Path:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts))
    head += b"".join(text(key) + fact(value) for key, value in facts.items())
    body = b""
    for name, (shape, kind, data) in tensors.items():
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += text(name) + dims + struct.pack("<IQ", kind, len(body))
        body += data + bytes(-len(data) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + body)
    return path


def half(*values: float) -> bytes:
    return np.array(values, "<f2").tobytes()


NIBBLES = bytes(low | (15 - low) << 4 for low in range(16))  # 0, 1, ... 15 in the lower halves, 15, ... 0 in the upper
UP = np.concatenate((np.arange(16), np.arange(16)[::-1])).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (0, np.arange(32, dtype="<f4").tobytes(), np.arange(32)),
        (1, half(*range(32)), np.arange(32)),
        (30, b"".join(struct.pack("<f", i)[2:] for i in range(32)), np.arange(32)),
        (8, half(0.5) + bytes(range(16)) + bytes(256 - i for i in range(1, 17)), np.r_[0:16, -1:-17:-1] * 0.5),
        (2, half(0.25) + NIBBLES, (UP - 8) * 0.25),
        (3, half(0.25, -1.0) + NIBBLES, UP * 0.25 - 1.0),
    ],
    ids=["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"],
)
def test_blocks_mean_these_numbers(kind: int, data: bytes, expected: Any, tmp_path: Path) -> None:
    file = Gguf(written(tmp_path / "x.gguf", {"a": 1}, {"first": ((32,), 0, bytes(128)), "x": ((2, 16), kind, data)}))
    assert file.tensor("x").tolist() == expected.reshape(2, 16).tolist()


def rotated(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """The order of rows that llama.cpp wants: channels that turn together stand together."""
    pairs = weight.view(heads, 2, -1, weight.shape[1])
    return torch.stack((pairs[:, 0], pairs[:, 1]), dim=2).reshape(weight.shape)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    rotary = {"rope_type": "default", "rope_theta": 500.0}
    return LlamaForCausalLM(
        LlamaConfig(
            **sizes, vocab_size=281, intermediate_size=40, rms_norm_eps=1e-3, initializer_range=0.3,
            rope_parameters=rotary, bos_token_id=280, eos_token_id=280,
        )
    ).eval()  # fmt: skip


@pytest.fixture(scope="module")
def facts(engines: dict[str, Any]) -> dict[str, Any]:
    engine = engines["gpt2"]
    pieces = sorted(engine["model"]["vocab"], key=engine["model"]["vocab"].get)
    return {
        "general.architecture": "llama", "llama.block_count": 2, "llama.context_length": 64,
        "llama.embedding_length": 32, "llama.feed_forward_length": 40, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.rope.freq_base": 500.0, "llama.rope.dimension_count": 8,
        "llama.attention.layer_norm_rms_epsilon": 1e-3, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*pieces, "<|endoftext|>"], "tokenizer.ggml.token_type": [1] * 280 + [3],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in engine["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 280, "tokenizer.ggml.eos_token_id": 280,
        "tokenizer.ggml.add_bos_token": True,
    }  # fmt: skip


@pytest.fixture(scope="module")
def tensors(model: LlamaForCausalLM) -> dict[str, tuple[tuple[int, ...], int, bytes]]:
    found = {}
    for name, tensor in model.state_dict().items():
        if "q_proj" in name or "k_proj" in name:
            tensor = rotated(tensor, 4 if "q_proj" in name else 2)
        for theirs, short in NAMES.items():
            name = name.replace(theirs, short)
        name = name.replace("model.layers", "blk").replace("model.embed_tokens", "token_embd")
        name = name.replace("model.norm", "output_norm").replace("lm_head", "output")
        found[name] = (tuple(tensor.shape), 0, tensor.numpy().tobytes())
    return found


def test_a_file_is_the_model_that_it_was_made_of(
    model: LlamaForCausalLM, facts: dict[str, Any], tensors: Any, engines: dict[str, Any], tmp_path: Path
) -> None:
    imported = read_gguf(written(tmp_path / "m.gguf", facts, tensors))
    rows = imported.vocabularies.source
    ids = torch.randint(4, 280, (2, 9))
    with torch.inference_mode():
        expected = model(torch.tensor(rows.order)[ids]).logits
        assert_parity(imported.model(ids)[..., rows.back], expected)
    tokeniser = imported.tokenisers.source  # type: ignore[union-attr]
    own = Tokenizer.from_str(json.dumps(engines["gpt2"]))
    for sample in ("the cat sat 12", " naïve\n"):
        assert [rows.order[i] for i in tokeniser.encode(sample)] == own.encode(sample).ids


def test_it_becomes_a_run(facts: dict[str, Any], tensors: Any, tmp_path: Path, capsys: Any) -> None:
    file = written(tmp_path / "m.gguf", facts, tensors)
    main(["import", str(file), str(tmp_path / "run")])
    assert headwise.load(tmp_path / "run").experiment.decode.marked
    assert headwise.load(file).generate(["the"], max_ratio=0, max_extra=3)[0][0].text.startswith("the")
    main(["generate", str(tmp_path / "run"), "the cat", "--length", "3"])
    assert capsys.readouterr().out.splitlines()[1].startswith("the cat")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"general.architecture": "mamba"}, "mamba.*only llama"),
        ({"llama.block_count": 3}, r"has no model\.layers\.2"),
        ({"llama.rope.scaling.type": "yarn"}, "yarn"),
        ({"tokenizer.ggml.model": "llama"}, "only gpt2"),
        ({"tokenizer.ggml.pre": "smolm"}, "did you mean smollm"),
        ({"llama.feed_forward_length": 41}, "gate_proj"),
    ],
    ids=str,
)
def test_what_is_not_read_is_named(
    changes: dict[str, Any], words: str, facts: dict[str, Any], tensors: Any, tmp_path: Path
) -> None:
    file = written(tmp_path / "m.gguf", facts | changes, tensors)
    with pytest.raises(UserError, match=words):
        read_gguf(file)


def test_damage_is_a_users_mistake(facts: dict[str, Any], tensors: Any, tmp_path: Path) -> None:
    whole = written(tmp_path / "m.gguf", facts, tensors).read_bytes()
    for content, words in ((whole[:-4000], "ends before"), (whole[:900], "damaged"), (b"GGML" + whole, "no GGUF")):
        (tmp_path / "x.gguf").write_bytes(content)
        with pytest.raises(UserError, match=words):
            read_gguf(tmp_path / "x.gguf")
    unknown = dict(tensors, **{"output.weight": ((281, 32), 12, bytes(99999))})
    with pytest.raises(UserError, match="Q4_1"):
        read_gguf(written(tmp_path / "y.gguf", facts, unknown))
