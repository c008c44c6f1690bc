"""Dequantisation of GGUF tensors, against the package `gguf` of llama.cpp's authors and written-out blocks."""

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize
from gguf_files import write_gguf
from transformers import LlamaConfig, LlamaForCausalLM

from headwise.interop.gguf import GgufFile
from headwise.interop.gguf_llama import read_gguf, to_hf_name
from headwise.interop.gguf_quants import TYPES
from headwise.testing import assert_parity

NAMES = {tensor_type.name: code for code, tensor_type in TYPES.items()}
QUANTISED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]


def pack_halves(*values: float) -> bytes:
    return np.array(values, "<f2").tobytes()


NIBBLES = bytes(low | (15 - low) << 4 for low in range(16))  # 0, 1, ... 15 in the lower halves, 15, ... 0 in the upper
UP = np.concatenate((np.arange(16), np.arange(16)[::-1])).astype(np.float32)
ODD_BITS = bytes([0b10101010] * 4)  # the fifth bits of every second number


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("F32", np.arange(32, dtype="<f4").tobytes(), np.arange(32)),
        ("F16", pack_halves(*range(32)), np.arange(32)),
        ("BF16", b"".join(struct.pack("<f", i)[2:] for i in range(32)), np.arange(32)),
        (
            "Q8_0",
            pack_halves(0.5) + bytes(range(16)) + bytes(256 - i for i in range(1, 17)),
            np.r_[0:16, -1:-17:-1] / 2,
        ),
        ("Q4_0", pack_halves(0.25) + NIBBLES, (UP - 8) * 0.25),
        ("Q4_1", pack_halves(0.25, -1.0) + NIBBLES, UP * 0.25 - 1.0),
        ("Q5_0", pack_halves(0.5) + ODD_BITS + NIBBLES, (UP + 16 * (np.arange(32) % 2) - 16) * 0.5),
        ("Q5_1", pack_halves(0.5, 2.0) + ODD_BITS + NIBBLES, (UP + 16 * (np.arange(32) % 2)) * 0.5 + 2.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_block_has_these_numbers(name: str, data: bytes, expected: Any, tmp_path: Path) -> None:
    tensors = {"first": ((32,), 0, bytes(128)), "x": ((1, 32), NAMES[name], data)}
    file = GgufFile(write_gguf(tmp_path / "x.gguf", {"a": 1}, tensors))
    assert file.load_tensor("x").tolist() == expected.reshape(1, 32).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_random_blocks_are_dequantised_as_by_the_package_gguf(name: str) -> None:
    tensor_type = TYPES[NAMES[name]]
    stored = np.random.default_rng(NAMES[name]).integers(0, 256, (50, 4 * tensor_type.bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):  # some of the scales are infinite or no numbers
        expected = dequantize(stored, gguf.GGMLQuantizationType[name])
        actual = tensor_type.dequantise(stored.reshape(-1)).reshape(50, -1)
    assert actual.dtype == np.float32 and np.isfinite(actual).sum() > 0.5 * actual.size
    np.testing.assert_array_equal(actual, expected)


def pack_low_bits(numbers: np.ndarray) -> np.ndarray:
    """Lower halves of bytes: sub-blocks 0, 2, 4, 6; upper halves: 1, 3, 5, 7. (N, 8, 32) -> (N, 128)."""
    return ((numbers[:, 0::2] & 15) | (numbers[:, 1::2] & 15) << 4).reshape(len(numbers), -1)


def pack_sub_blocks(values: np.ndarray, bits: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Q4_K and Q5_K: header fields of blocks of 256, and the numbers (N, 8, 32)."""
    blocks, levels = values.reshape(-1, 8, 32), 2**bits - 1
    minima = np.maximum(-blocks.min(-1), 0)
    steps = (blocks.max(-1) + minima) / levels  # (N, 8)
    scale, least = ((each.max(1, keepdims=True) / 63).astype("<f2") for each in (steps, minima))
    s, m = np.rint(steps / scale).astype(np.uint8).clip(1, 63), np.rint(minima / least).astype(np.uint8).clip(0, 63)
    real_steps, real_minima = scale.astype(np.float32) * s, least.astype(np.float32) * m
    numbers = np.rint((blocks + real_minima[..., None]) / real_steps[..., None]).clip(0, levels).astype(np.uint8)
    packed = [s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6, s[:, 4:] & 15 | (m[:, 4:] & 15) << 4]
    return [scale.view(np.uint8), least.view(np.uint8), *packed], numbers


def quantise_q4_k(values: np.ndarray) -> np.ndarray:
    header, numbers = pack_sub_blocks(values, 4)
    return np.concatenate((*header, pack_low_bits(numbers)), axis=1)


def quantise_q5_k(values: np.ndarray) -> np.ndarray:
    header, numbers = pack_sub_blocks(values, 5)
    fifth = np.bitwise_or.reduce([numbers[:, i] >> 4 << i for i in range(8)])  # (N, 32)
    return np.concatenate((*header, fifth, pack_low_bits(numbers)), axis=1)


def quantise_q6_k(values: np.ndarray) -> np.ndarray:
    blocks = values.reshape(-1, 16, 16)
    steps = np.abs(blocks).max(-1) / 31
    scale = (steps.max(1, keepdims=True) / 127).astype("<f2")
    scales = np.rint(steps / scale).clip(1, 127).astype(np.int8)
    real_steps = (scale.astype(np.float32) * scales)[..., None]
    numbers = (np.rint(blocks / real_steps).clip(-32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = numbers[:, :, :2] & 15 | (numbers[:, :, 2:] & 15) << 4  # (N, 2, 2, 32)
    high = np.bitwise_or.reduce([numbers[:, :, i] >> 4 << 2 * i for i in range(4)])  # (N, 2, 32)
    fields = (low.reshape(-1, 128), high.reshape(-1, 64), scales.view(np.uint8), scale.view(np.uint8))
    return np.concatenate(fields, axis=1)


K_QUANTISERS = {"Q4_K": quantise_q4_k, "Q5_K": quantise_q5_k, "Q6_K": quantise_q6_k}
ERRORS = {"Q4_0": 0.6, "Q4_1": 0.25, "Q5_0": 0.3, "Q5_1": 0.12, "Q8_0": 0.02, "Q4_K": 0.3, "Q5_K": 0.15, "Q6_K": 0.1}


def quantise(values: np.ndarray, name: str) -> np.ndarray:
    """(n, k) -> bytes (n, ...): by the package, which has no quantisers of the K formats."""
    if name in K_QUANTISERS:
        return K_QUANTISERS[name](values).reshape(len(values), -1)
    return quantize(values, gguf.GGMLQuantizationType[name])


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_tensors_are_read_as_by_the_package_gguf(name: str, tmp_path: Path) -> None:
    """Written and read by the package: also the container is the one of another program."""
    values = np.random.default_rng(1).normal(size=(6, 512)).astype(np.float32)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_array("letters", ["a", "β", ""])
    writer.add_array("numbers", [3, -1])
    writer.add_tensor("before", values[0])
    writer.add_tensor("x", quantise(values, name), raw_dtype=gguf.GGMLQuantizationType[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file, stored = GgufFile(tmp_path / "x.gguf"), gguf.GGUFReader(tmp_path / "x.gguf").get_tensor(1)
    assert file.metadata["letters"] == ["a", "β", ""] and file.metadata["numbers"].tolist() == [3, -1]
    assert torch.equal(file.load_tensor("before"), torch.from_numpy(values[0]))
    actual = file.load_tensor("x").numpy()
    np.testing.assert_array_equal(actual, dequantize(stored.data, stored.tensor_type))
    assert np.abs(actual - values).max() < ERRORS[name]


def test_a_model_in_q4_k_and_q6_k_has_the_logits_of_its_dequantised_weights(
    llama_metadata: dict[str, Any], tmp_path: Path
) -> None:
    sizes = {"vocab_size": 281, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "rms_norm_eps": 1e-3}
    model = LlamaForCausalLM(
        LlamaConfig(**sizes, **heads, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    )
    changes = {"block_count": 1, "embedding_length": 256, "feed_forward_length": 512, "rope.dimension_count": 64}
    changes |= {"attention.head_count": 4, "attention.head_count_kv": 4}
    metadata = llama_metadata | {f"llama.{key}": value for key, value in changes.items()}
    hf_names = {to_hf_name(name): name for name in list_names()}
    weights, tensors = {}, {}
    for name, tensor in model.state_dict().items():
        values = tensor.numpy()
        stored_type = "F32" if values.ndim == 1 else "Q6_K" if "down" in name or "lm_head" in name else "Q4_K"
        stored = values if stored_type == "F32" else quantise(values, stored_type)
        weights[name] = torch.from_numpy(dequantize(stored, gguf.GGMLQuantizationType[stored_type])).view_as(tensor)
        tensors[hf_names[name]] = (tuple(tensor.shape), NAMES[stored_type], stored.tobytes())
        if "q_proj" in name or "k_proj" in name:  # the file has rows in the order of llama.cpp
            weights[name] = weights[name].view(4, 32, 2, 256).transpose(1, 2).reshape(256, 256)
    model.load_state_dict(weights)
    imported = read_gguf(write_gguf(tmp_path / "m.gguf", metadata, tensors))
    ids, rows = torch.randint(4, 280, (2, 9)), imported.vocabularies.source
    with torch.inference_mode():
        assert_parity(imported.model(ids)[..., rows.headwise_ids], model.eval()(torch.tensor(rows.hf_ids)[ids]).logits)


def list_names() -> list[str]:
    """The tensor names of a GGUF file with one layer."""
    modules = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
    layer = [f"blk.0.{module}" for module in modules]
    return [f"{module}.weight" for module in ("token_embd", *layer, "output_norm", "output")]
