"""Weight files: safetensors with lying headers, GGUF, ARPA, pickles."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterator
from typing import Any

from hostile_corpus import Commands, Sandbox

HUGE = 2**63 - 1


class Payload:
    """Writes the canary when it is unpickled."""

    def __init__(self, canary: str):
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.canary, "w"))


# --- safetensors -----------------------------------------------------------------------------------------------------


def pack_safetensors(header: Any, data: bytes = bytes(64), size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def describe_tensor(shape: list[int], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


W = "transformer.wte.weight"
HEADERS: dict[str, bytes] = {
    "empty": b"",
    "7 bytes": b"\0" * 7,
    "size beyond the file": pack_safetensors({}, size=2**62),
    "size of all bits": pack_safetensors({}, size=2**64 - 1),
    "header of zeros": pack_safetensors(b"\0" * 64),
    "deep JSON": pack_safetensors(b'{"a":' * 50_000),
    "not an object": pack_safetensors([1, 2]),
    "huge shape": pack_safetensors({W: describe_tensor([HUGE, HUGE], 0, 64)}),
    "shape that overflows": pack_safetensors({W: describe_tensor([2**32, 2**32], 0, 0)}),
    "negative shape": pack_safetensors({W: describe_tensor([-1, 4], 0, 64)}),
    "offsets beyond the file": pack_safetensors({W: describe_tensor([4, 4], 0, 2**40)}),
    "offsets backwards": pack_safetensors({W: describe_tensor([4, 4], 64, 0)}),
    "negative offsets": pack_safetensors({W: describe_tensor([4, 4], -64, 0)}),
    "overlap": pack_safetensors({W: describe_tensor([4, 4], 0, 64), "b": describe_tensor([4, 4], 0, 64)}),
    "duplicate keys": pack_safetensors(
        b"{" + ",".join(f'"{W}": {json.dumps(describe_tensor([4, 4], 0, 64))}' for _ in range(2)).encode() + b"}"
    ),
    "unknown dtype": pack_safetensors({W: describe_tensor([4, 4], 0, 64, "F999")}),
    "long numbers": pack_safetensors(
        b'{"a": {"dtype": "F32", "shape": [' + b"9" * 9999 + b'], "data_offsets": [0, 4]}}'
    ),
    "lone surrogate": pack_safetensors(b'{"\\ud800": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}'),
    "control characters": pack_safetensors({"\x1b[2J\0": describe_tensor([16], 0, 64)}),
    "a million entries": pack_safetensors({f"t{n}": describe_tensor([0], 0, 0) for n in range(200_000)}, b""),
    "long metadata": pack_safetensors({"__metadata__": {"a": "x" * 20_000_000}}),
    "metadata of numbers": pack_safetensors({"__metadata__": {"a": 1}}),
    "not finite": pack_safetensors({W: describe_tensor([4, 4], 0, 64)}, struct.pack("<16f", *[float("nan")] * 16)),
}


def put_safetensors(content: bytes) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        folder = sandbox.copy("gpt2")
        (folder / "model.safetensors").write_bytes(content)
        return [["import", str(folder), "run"], ["generate", str(folder), "abc"]]

    return make


def put_weights(name: str, index: Any = None) -> Callable[[Sandbox], Commands]:
    """A pickle under one of the names that libraries load."""

    def make(sandbox: Sandbox) -> Commands:
        folder = sandbox.copy("gpt2")
        (folder / "model.safetensors").rename(folder / "model-00001.safetensors")
        content = pickle.dumps(Payload(str(sandbox.canary)))
        sandbox.write(f"gpt2/{name}", content if index is None else json.dumps(index))
        sandbox.write("other.safetensors", (folder / "model-00001.safetensors").read_bytes())
        return [["import", str(folder), "run"], ["generate", str(folder), "abc"]]

    return make


def index_of(name: Any) -> dict[str, Any]:
    return {"metadata": {}, "weight_map": {W: name}}


# --- GGUF ------------------------------------------------------------------------------------------------------------


def pack_text(value: str | bytes) -> bytes:
    content = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(content)) + content


def pack_value(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return struct.pack("<I", 8) + pack_text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<IQ", 10, value)


LLAMA: dict[str, Any] = {
    "general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 8, "llama.context_length": 8,
    "llama.attention.head_count": 2, "llama.feed_forward_length": 16, "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
}  # fmt: skip
INFO = pack_text("token_embd.weight") + struct.pack("<IQQIQ", 2, 8, 8, 0, 0)


def pack_gguf(changes: dict[str, Any], infos: list[bytes] | None = None, tensors: int | None = None) -> bytes:
    metadata = LLAMA | changes
    infos = [INFO] if infos is None else infos
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos) if tensors is None else tensors, len(metadata))
    head += b"".join(pack_text(key) + pack_value(value) for key, value in metadata.items()) + b"".join(infos)
    return head + bytes(-len(head) % 32) + bytes(256)


ARRAY = struct.pack("<I", 9)
GGUF: dict[str, bytes] = {
    "empty": b"",
    "4 bytes": b"GGUF",
    "zeros": bytes(100),
    "count of tensors": pack_gguf({}, tensors=2**62),
    "count of metadata": b"GGUF" + struct.pack("<IQQ", 3, 1, 2**63),
    "text of 2^63": pack_gguf({"a": struct.pack("<IQ", 8, 2**63)}),
    "alignment 0": pack_gguf({"general.alignment": 0}),
    "alignment text": pack_gguf({"general.alignment": "x"}),
    "alignment 2^63": pack_gguf({"general.alignment": 2**63}),
    "head_count 0": pack_gguf({"llama.attention.head_count": 0}),
    "block_count 2^40": pack_gguf({"llama.block_count": 2**40}),
    "width 2^40": pack_gguf({"llama.embedding_length": 2**40}),
    "context 2^62": pack_gguf({"llama.context_length": 2**62}),
    "epsilon NaN": pack_gguf({"llama.attention.layer_norm_rms_epsilon": float("nan")}),
    "nested arrays": pack_gguf({"a": ARRAY + (struct.pack("<I", 9) + struct.pack("<Q", 1)) * 50_000}),
    "array of 2^60": pack_gguf({"a": ARRAY + struct.pack("<IQ", 4, 2**60)}),
    "unknown type": pack_gguf({"a": struct.pack("<I", 99)}),
    "name not UTF-8": pack_gguf({}, [pack_text(b"\xff\xfe") + struct.pack("<IQIQ", 1, 8, 0, 0)]),
    "name with escapes": pack_gguf({}, [pack_text("\x1b[2J") + struct.pack("<IQIQ", 1, 8, 0, 0)]),
    "99 dimensions": pack_gguf({}, [pack_text("a") + struct.pack("<I", 99) + bytes(900)]),
    "huge shape": pack_gguf({}, [pack_text("a") + struct.pack("<IQQIQ", 2, 2**62, 2**62, 0, 0)]),
    "offset beyond": pack_gguf({}, [pack_text("a") + struct.pack("<IQIQ", 1, 8, 0, 2**60)]),
    "overlap": pack_gguf({}, [pack_text(name) + struct.pack("<IQIQ", 1, 8, 0, 0) for name in "ab"]),
    "twice": pack_gguf({}, [INFO, INFO]),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(64),
    "chat template": pack_gguf({"tokenizer.chat_template": "{{ ''.__class__.__mro__[1].__subclasses__() }}"}),
}


def put_gguf(content: bytes) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        file = sandbox.write("model.gguf", content)
        return [["import", str(file), "run"], ["generate", str(file), "abc"]]

    return make


# --- ARPA ------------------------------------------------------------------------------------------------------------

UNIGRAMS = "-1\t<s>\t-0.5\n-1\t</s>\n-1\ta\t-0.5\n-1\t<unk>\n"


def pack_arpa(counts: str = "ngram 1=4\n", grams: str = UNIGRAMS) -> str:
    return f"\\data\\\n{counts}\n\\1-grams:\n{grams}\n\\end\\\n"


ARPA: dict[str, str | bytes] = {
    "empty": "",
    "count of 5,000 digits": pack_arpa("ngram 1=" + "9" * 5000 + "\n"),
    "count of 2^60": pack_arpa(f"ngram 1={2**60}\n"),
    "order of 5,000 digits": pack_arpa("ngram " + "9" * 5000 + "=4\n"),
    "order 10^9": pack_arpa("ngram 1=4\nngram 1000000000=1\n"),
    "lone surrogate": pack_arpa(grams=UNIGRAMS.replace("\ta", "\t\ud800")),
    "NaN": pack_arpa(grams=UNIGRAMS.replace("-1\ta", "nan\ta")),
    "huge exponent": pack_arpa(grams=UNIGRAMS.replace("-1\ta", "1e999\ta")),
    "NUL": pack_arpa(grams=UNIGRAMS.replace("\ta", "\ta\0")),
    "UTF-16": pack_arpa().encode("utf-16"),
    "one long line": pack_arpa(grams="-1\t" + "a" * 2**26),
    "thousands of orders": pack_arpa("".join(f"ngram {n}=0\n" for n in range(1, 20_000))),
    "missing context": pack_arpa("ngram 1=4\nngram 2=1\n").replace("\\end\\", "\\2-grams:\n-1\tx y\n\n\\end\\"),
}


def put_arpa(content: str | bytes) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        return [["import", str(sandbox.write("model.arpa", content)), "run"]]

    return make


def list_cases() -> Iterator[tuple[str, Callable[[Sandbox], Commands], bool]]:
    for name, content in HEADERS.items():
        yield f"safetensors {name}", put_safetensors(content), True
    for name in ("pytorch_model.bin", "model.safetensors", "pytorch_model-00001-of-00002.bin", "model.ckpt"):
        yield f"pickle as {name}", put_weights(name), True
    for name, value in {
        "outside": "../other.safetensors", "absolute": "/etc/passwd", "device": "/dev/zero", "number": 7, "NUL": "a\0b",
        "pickle": "pytorch_model.bin", "list": ["a"], "empty": "",
    }.items():  # fmt: skip
        yield f"index {name}", put_weights("model.safetensors.index.json", index_of(value)), True
    for name, content in GGUF.items():
        yield f"gguf {name}", put_gguf(content), True
    for name, text in ARPA.items():
        yield f"arpa {name}", put_arpa(text), name != "NUL"
