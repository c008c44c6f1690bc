"""Damaged and hostile GGUF files: each is refused in one sentence, at once, whatever sizes it claims."""

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import StoredTensors, pack_file, pack_info, pack_text, write_gguf

from headwise.cli.main import main
from headwise.errors import UserError
from headwise.interop.gguf import GgufFile
from headwise.interop.gguf_llama import read_gguf

HUGE = [2**31, 2**32 - 1, 2**40, 2**60, 2**63, 2**64 - 1]
EXTREMES = [0, 1, *HUGE]


def check_refusal(read: Callable[[Path], Any], path: Path, words: str) -> None:
    """One sentence that names the file and what to do, within a second of computing."""
    began = time.process_time()
    with pytest.raises(UserError, match=words) as refusal:
        read(path)
    message = str(refusal.value)
    assert time.process_time() - began < 1
    assert message.startswith(f"{path}: ") and "; " in message and message.isprintable() and len(message) < 600


def header(version: int = 3, tensors: int = 0, metadata: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, metadata)


def entry(key: bytes, value: bytes) -> bytes:
    """A file with one metadata entry."""
    return header(metadata=1) + struct.pack("<Q", len(key)) + key + value + bytes(64)


def array(code: int, count: int, items: bytes = b"") -> bytes:
    return struct.pack("<IIQ", 9, code, count) + items


HEADERS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "cannot be read"),
    "three bytes": (b"GGU", "no GGUF file"),
    "only the magic": (b"GGUF", "ends within the header"),
    "wrong magic": (b"GGML" + bytes(100), "no GGUF file"),
    "eight bytes": (b"GGUF" + struct.pack("<I", 3), "ends within the table of tensors"),
    "version 1": (header(1), "GGUF of version 1"),
    "version 99": (header(99), "GGUF of version 99"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    **{f"{count} tensors": (header(tensors=count) + bytes(99), "no room for the table of tensors") for count in HUGE},
    **{f"{count} entries": (header(metadata=count) + bytes(99), "no room for the metadata") for count in HUGE},
    **{f"text of {n}": (entry(b"a", struct.pack("<IQ", 8, n)), "ends within a, which has") for n in HUGE},
    **{
        f"key of {n}": (header(metadata=1) + struct.pack("<Q", n) + bytes(64), "ends within a metadata key")
        for n in HUGE
    },
    **{f"{count} numbers": (entry(b"a", array(0, count)), "no room for a of") for count in HUGE},
    **{f"{count} texts": (entry(b"a", array(8, count)), "no room for a of") for count in HUGE},
    "too many texts": (entry(b"a", array(8, 2**20 + 1, bytes(2**23 + 8))), "a has 1,048,577 entries, more than"),
    "too many keys": (header(metadata=2**15 + 1) + bytes(2**20), "the metadata has 32,769 entries, more than"),
    "too many tensors": (header(tensors=2**15 + 1) + bytes(2**20), "the table of tensors has 32,769 entries"),
    "cut within an array": (
        entry(b"a", array(8, 3, bytes(16) + struct.pack("<Q", 99))),
        "ends within text 2 of a",
    ),
    "text in an array that is not UTF-8": (entry(b"a", array(8, 1, struct.pack("<Q", 1) + b"\xff")), "a is not UTF-8"),
    "nested array": (entry(b"a", array(9, 1, array(0, 1))), "an array of type 9"),
    "deeply nested array": (
        entry(b"a", struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100_000),
        "an array of type 9",
    ),
    "unknown type": (entry(b"a", struct.pack("<I", 13)), "a has the unknown type 13"),
    "array of an unknown type": (entry(b"a", array(99, 1)), "an array of type 99"),
    "key that is not UTF-8": (entry(b"\xff\xfe", struct.pack("<II", 4, 1)), "a metadata key is not UTF-8"),
    "text that is not UTF-8": (entry(b"a", struct.pack("<IQ", 8, 2) + b"\xc3\x28"), "a is not UTF-8"),
    "key of two lines": (entry(b"a\nb", struct.pack("<II", 4, 1)), "a metadata key has 3 characters or unprintable"),
    "long key": (entry(b"a" * 300, struct.pack("<II", 4, 1)), "a metadata key has 300 characters"),
    "key twice": (header(metadata=2) + (pack_text("a") + struct.pack("<II", 4, 1)) * 2 + bytes(64), "key 'a' twice"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_damaged_header_is_refused(case: str, tmp_path: Path) -> None:
    content, words = HEADERS[case]
    (tmp_path / "x.gguf").write_bytes(content)
    check_refusal(GgufFile, tmp_path / "x.gguf", words)


def name_bytes(name: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, 8, 0, 0)


TABLES: dict[str, tuple[list[bytes], str]] = {
    **{f"offset {n}": ([pack_info("x", (8,), 0, n & -32)], "ends before x does") for n in HUGE},
    "beyond the end": ([pack_info("x", (8,), 0, 256)], "ends before x does"),
    "unaligned": ([pack_info("x", (8,), 0, 4)], "x begins at byte 4 of the data, no multiple of 32"),
    "overlapping": ([pack_info("x", (16,), 0, 0), pack_info("y", (8,), 0, 32)], "x and y overlap"),
    "in one place": ([pack_info("x", (8,), 0, 0), pack_info("y", (8,), 0, 0)], "x and y overlap"),
    "product beyond 64 bits": ([pack_info("x", (2**40, 2**40), 0, 0)], "ends before x does"),
    "product that wraps to 0": ([pack_info("x", (2**32, 2**32), 0, 0)], "ends before x does"),
    "more than the file": ([pack_info("x", (65,), 0, 0)], "ends before x does"),
    "dimension 0": ([pack_info("x", (0, 8), 0, 0)], "no whole blocks of F32"),
    "part of a block": ([pack_info("x", (2, 16), 2, 0)], "no whole blocks of Q4_0"),
    "part of a K block": ([pack_info("x", (128,), 12, 0)], "no whole blocks of Q4_K"),
    "no dimension": ([pack_info("x", (), 0, 0)], "x has 0 dimensions"),
    "five dimensions": ([pack_info("x", (1,) * 5, 0, 0)], "x has 5 dimensions"),
    "many dimensions": ([pack_text("x") + struct.pack("<I", 2**32 - 1) + bytes(64)], "x has 4294967295 dimensions"),
    "unknown type": ([pack_info("x", (8,), 999, 0)], "ggml type 999, .* convert to F32"),
    "name twice": ([pack_info("x", (8,), 0, 0), pack_info("x", (8,), 0, 32)], "tensor 'x' twice"),
    "name that is not UTF-8": ([name_bytes(b"\x80")], "a tensor name is not UTF-8"),
    "name with an escape": ([name_bytes(b"\x1b[31m")], "a tensor name has 5 characters or unprintable"),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_damaged_table_of_tensors_is_refused(case: str, tmp_path: Path) -> None:
    infos, words = TABLES[case]
    (tmp_path / "x.gguf").write_bytes(pack_file({}, infos, bytes(256)))
    check_refusal(GgufFile, tmp_path / "x.gguf", words)


@pytest.mark.parametrize("alignment", [0, 24, "wide", 32.0, [32], True], ids=str)
def test_a_wrong_alignment_is_refused(alignment: Any, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(pack_file({"general.alignment": alignment}, [], bytes(64)))
    check_refusal(GgufFile, tmp_path / "x.gguf", r"general\.alignment is .*")


def test_another_alignment_is_read(tmp_path: Path) -> None:
    data = np.arange(8, dtype="<f4").tobytes() + bytes(32) + np.ones(8, "<f4").tobytes()
    infos = [pack_info("x", (8,), 0, 0), pack_info("y", (8,), 0, 64)]
    (tmp_path / "x.gguf").write_bytes(pack_file({"general.alignment": 64}, infos, data, 64))
    file = GgufFile(tmp_path / "x.gguf")
    assert file.load_tensor("x").tolist() == list(range(8)) and file.load_tensor("y").tolist() == [1] * 8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"llama.attention.head_count": 0}, "head_count is 0, not an integer from 1 on"),
        ({"llama.attention.head_count": "four"}, "head_count is 'four', not an integer"),
        ({"llama.attention.head_count": [4, 4]}, "head_count is an array, not an integer"),
        ({"llama.attention.head_count": 33}, "key_length is 0"),
        ({"llama.attention.head_count_kv": 0}, "head_count_kv is 0"),
        ({"llama.attention.head_count_kv": 2**40}, "attn_k"),
        ({"llama.attention.key_length": 2**62}, "attn_q"),
        ({"llama.attention.key_length": 7}, "7 channels, which rotate in pairs"),
        ({"llama.block_count": 2**40}, r"has no blk\.2\.attn_norm"),
        ({"llama.block_count": 2**63}, r"has no blk\.2\.attn_norm"),
        ({"llama.block_count": 1}, r"does not ask for .*model\.layers\.1"),
        ({"llama.block_count": -2.0}, "block_count is -2.0"),
        ({"llama.embedding_length": 2**50}, "token_embd"),
        ({"llama.feed_forward_length": 2**50}, "ffn_gate"),
        ({"llama.context_length": 0}, "context_length is 0"),
        ({"llama.rope.dimension_count": 0}, "dimension_count is 0"),
        ({"llama.rope.freq_base": float("nan")}, "freq_base is nan"),
        ({"llama.attention.layer_norm_rms_epsilon": float("inf")}, "epsilon is inf"),
        ({"general.architecture": "l\nlama"}, "architecture is .* not a short text"),
        ({"general.architecture": "l" * 10**6}, "architecture is .* not a short text"),
        ({"tokenizer.ggml.pre": 3}, "pre is 3"),
        ({"tokenizer.ggml.tokens": [1, 2, 3]}, "tokens is an array, not an array of texts"),
        ({"tokenizer.ggml.tokens": ["a", "b"]}, "beyond|token"),
        ({"tokenizer.ggml.merges": ["a b c"]}, "merges has 'a b c', no two pieces"),
        ({"tokenizer.ggml.merges": ["ab"]}, "merges has 'ab', no two pieces"),
        ({"tokenizer.ggml.merges": ["zzzz yyyy"]}, "tokeniser cannot be read"),
        ({"tokenizer.ggml.merges": "a b"}, "merges is 'a b'"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "no type for each of 281 tokens"),
        ({"tokenizer.ggml.token_type": ["a"] * 281}, "no type for each of 281 tokens"),
        ({"tokenizer.ggml.bos_token_id": 281}, "bos_token_id is 281, but there are 281 tokens"),
        ({"tokenizer.ggml.eos_token_id": 2**40}, "eos_token_id is"),
        ({"tokenizer.ggml.add_bos_token": 1}, "add_bos_token is 1, not true or false"),
    ],
    ids=lambda value: f"{value!s:.60}",
)
def test_wrong_metadata_are_refused(
    changes: dict[str, Any], words: str, llama_metadata: dict[str, Any], llama_tensors: StoredTensors, tmp_path: Path
) -> None:
    check_refusal(read_gguf, write_gguf(tmp_path / "x.gguf", llama_metadata | changes, llama_tensors), words)


def test_weights_that_are_not_finite_are_refused(
    llama_metadata: dict[str, Any], llama_tensors: StoredTensors, tmp_path: Path
) -> None:
    norm = ((32,), 0, np.full(32, np.nan, "<f4").tobytes())
    path = write_gguf(tmp_path / "x.gguf", llama_metadata, {**llama_tensors, "output_norm.weight": norm})
    check_refusal(read_gguf, path, r"output_norm\.weight has values that are not finite")


@pytest.fixture(scope="module")
def content(
    llama_metadata: dict[str, Any], llama_tensors: StoredTensors, tmp_path_factory: pytest.TempPathFactory
) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", llama_metadata, llama_tensors).read_bytes()


def test_a_truncated_file_is_refused_wherever_it_ends(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for size in (*range(0, 400), *range(400, len(content) - 32, 997), len(content) - 32):
        path.write_bytes(content[:size])
        check_refusal(read_gguf, path, "ends|no room|no GGUF|cannot be read")


def test_the_command_refuses_a_damaged_file_without_a_traceback(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.gguf").write_bytes(content[:5000])
    with pytest.raises(SystemExit) as exit_:
        main(["import", str(tmp_path / "x.gguf"), str(tmp_path / "run")])
    assert exit_.value.code == 2 and len(capsys.readouterr().err.splitlines()) == 1 and not (tmp_path / "run").exists()


def mutate(content: bytes, header_size: int, draw: random.Random) -> bytes:
    """Flip, replace, insert or remove some bytes, mostly of the header and the metadata."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(header_size if draw.random() < 0.9 else len(changed))
        size = draw.choice((1, 4, 8))
        match draw.randrange(5):
            case 0:
                changed[place] ^= 1 << draw.randrange(8)
            case 1:
                changed[place : place + size] = draw.randbytes(size)
            case 2:
                changed[place : place + 8] = struct.pack("<Q", draw.choice(EXTREMES))
            case 3:
                changed[place:place] = draw.randbytes(size)
            case _:
                del changed[place : place + size]
    return bytes(changed)


def read_or_refuse(path: Path) -> str:
    """Empty where the file is read, else the message."""
    try:
        read_gguf(path)
    except UserError as error:
        return str(error)
    return ""


def test_mutated_files_are_read_or_refused(content: bytes, tmp_path: Path) -> None:
    draw, path = random.Random(0), tmp_path / "x.gguf"
    header_size = content.index(b"blk.1.ffn_down.weight") + 500
    messages = []
    for _ in range(400):
        path.write_bytes(mutate(content, header_size, draw))
        began = time.process_time()
        messages.append(read_or_refuse(path))
        assert time.process_time() - began < 1
    refusals = [message for message in messages if message]
    assert all(message.startswith(f"{path}: ") and message.isprintable() for message in refusals)
    assert 200 < len(refusals) < 390
