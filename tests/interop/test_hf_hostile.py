"""Folders that ask for too much: each is refused in one sentence, within seconds, before anything is allocated."""

import json
import re
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    ViTConfig,
    ViTForImageClassification,
)

from headwise.cli.main import main
from headwise.errors import UserError
from headwise.interop.hf.read import read_folder

STACK: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
BUILDERS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=30, n_positions=8, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1)
    ),
    "bert": lambda: BertForSequenceClassification(
        BertConfig(**STACK, vocab_size=30, cls_token_id=1, sep_token_id=2, max_position_embeddings=8)
    ),
    "vit": lambda: ViTForImageClassification(ViTConfig(**STACK, image_size=32, patch_size=16, num_labels=3)),
}
SECONDS = 20  # of a busy machine; each takes less than one


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.manual_seed(0)
    paths = {}
    for name, build in BUILDERS.items():
        paths[name] = tmp_path_factory.mktemp("hostile") / name
        build().save_pretrained(paths[name])
        processor = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
        (paths[name] / "preprocessor_config.json").write_text(json.dumps(processor))
    return paths


def copy_folder(folders: dict[str, Path], name: str, parent: Path, **changes: Any) -> Path:
    folder = Path(shutil.copytree(folders[name], parent / "folder"))
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    return folder


def refuse(folder: Path, words: str) -> None:
    """The folder is refused in one sentence, soon."""
    start = time.process_time()
    with pytest.raises(UserError, match=words) as error:
        read_folder(folder)
    assert time.process_time() - start < SECONDS
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


SIZES: list[tuple[str, dict[str, Any], str]] = [
    ("gpt2", {"vocab_size": 10**9}, "vocab_size: is 1,000,000,000"),
    ("gpt2", {"vocab_size": 900_000}, "wte.weight is .*asks for|larger model"),
    ("gpt2", {"n_layer": 2**40}, "n_layer: is 1,099,511,627,776"),
    ("gpt2", {"n_layer": 900}, "n_layer: is 900, but the checkpoint has 28 tensors"),
    ("gpt2", {"n_layer": 90}, r"has no transformer\.h\.10\.attn"),
    ("gpt2", {"n_embd": 10**7}, "larger model than the checkpoint"),
    ("gpt2", {"n_embd": 2**62}, "larger model than the checkpoint"),
    ("gpt2", {"n_inner": 10**15}, "larger model than the checkpoint"),
    ("gpt2", {"n_positions": 10**12}, "larger model than the checkpoint"),
    ("bert", {"num_hidden_layers": 2**40}, "num_hidden_layers"),
    ("bert", {"hidden_size": 10**7}, "larger model than the checkpoint"),
    ("bert", {"type_vocab_size": 10**9}, "type_vocab_size"),
    ("bert", {"num_labels": 10**9}, "num_labels"),
    ("bert", {"num_labels": 90_000}, "classifier.* is"),
    ("bert", {"id2label": {str(number): "a" for number in range(10**6)}}, "num_labels: is 1000000"),
    ("bert", {"unknown_key": "x" * 10**6}, "unknown_key"),
    ("vit", {"image_size": 10**6}, "image_size: is 1,000,000"),
    ("vit", {"image_size": [32, 10**6]}, "image_size: is 1,000,000"),
    ("vit", {"image_size": 4096}, "position_embeddings is .*asks for"),
    ("vit", {"num_channels": 10**9}, "num_channels"),
    ("vit", {"num_hidden_layers": 2**40}, "num_hidden_layers"),
]


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    SIZES,
    ids=lambda value: ", ".join(value) if isinstance(value, dict) and len(value) == 1 else "",
)
def test_sizes_that_the_checkpoint_does_not_have_are_refused(
    folders: dict[str, Path], tmp_path: Path, name: str, changes: dict[str, Any], words: str
) -> None:
    refuse(copy_folder(folders, name, tmp_path, **changes), words)


CONFIGS: list[tuple[str, dict[str, Any], str]] = [
    ("gpt2", {"model_type": None}, "has no model_type; name a folder as `save_pretrained`"),
    ("gpt2", {"model_type": "gpt-2"}, "model_type 'gpt-2' is not known; did you mean gpt2"),
    ("gpt2", {"architectures": "GPT2LMHeadModel"}, "architectures: is 'GPT2LMHeadModel'; it must be a list"),
    ("gpt2", {"architectures": 7}, "architectures: is 7; it must be a list"),
    ("gpt2", {"architectures": [None]}, "architectures: is .None.; it must be a list"),
    ("gpt2", {"architectures": ["GPT2Model2"]}, "architectures 'GPT2Model2' is not known; of gpt2: GPT2LMHeadModel"),
    ("gpt2", {"quantization_config": {"bits": 4}}, "quantization_config: .*; take a checkpoint that is not quantised"),
    ("gpt2", {"layer_norm_epsilon": float("nan")}, "layer_norm_epsilon: .*finite"),
    ("gpt2", {"n_head": 3}, r"config\.json: heads: a width of 16 cannot be divided among 3 heads; correct it"),
    ("gpt2", {"n_embd": "wide"}, "n_embd: .*'wide'"),
    ("gpt2", {"eos_token_id": {"a": 1}}, "eos_token_id: .*, or "),
    ("gpt2", {"vocab_size": 31}, r"wte\.weight is \(30, 16\), config.json asks for \(31, 16\)"),
    ("bert", {"hidden_act": ["gelu"]}, "hidden_act: "),
    ("bert", {"problem_type": "ranking"}, "problem_type: 'ranking' with 2 labels is not supported"),
    ("vit", {"image_size": -1}, "image_size: .*greater than 0.*, or "),
    ("vit", {"image_size": 30}, r"config\.json: image: 30 x 30 pixels cannot be cut into patches of 16 x 16; correct"),
]


@pytest.mark.parametrize(("name", "changes", "words"), CONFIGS, ids=str)
def test_keys_with_other_values_are_named(
    folders: dict[str, Path], tmp_path: Path, name: str, changes: dict[str, Any], words: str
) -> None:
    refuse(copy_folder(folders, name, tmp_path, **changes), words)


def test_tensors_that_config_json_does_not_describe_are_named(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copy_folder(folders, "gpt2", tmp_path)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for changed, words in (
        ({**tensors, "transformer.h.0.attn.c_attn.weight": torch.zeros(16, 47)}, r"c_attn\.weight is \(16, 47\)"),
        ({**tensors, "adapter.weight": torch.zeros(3)}, "does not ask for adapter.weight; take both from one model"),
        ({"lora_A.weight": torch.zeros(2)}, "and 24 more, which config.json asks for; take both from one model"),
    ):
        save_file(changed, file)
        refuse(folder, words)
    file.rename(folder / "pytorch_model.bin")
    refuse(folder, r"pytorch_model\.bin: is a pickle, .*save_pretrained")


def test_parts_of_one_tensor_of_other_shapes_are_named(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copy_folder(folders, "vit", tmp_path)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    key = next(name for name in tensors if name.endswith("key.weight"))
    rows, columns = tensors[key].shape
    for shape in ((rows, columns - 1), (rows - 1, columns), (rows * columns,)):
        save_file({**tensors, key: torch.zeros(shape)}, file)
        refuse(folder, rf"key\.weight .*are .*{re.escape(str(shape))}.*config\.json asks for \({3 * rows}, {columns}\)")


def test_tensors_that_overlap_or_leave_gaps_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copy_folder(folders, "gpt2", tmp_path)
    file = folder / "model.safetensors"
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    first, second = [name for name, entry in header.items() if entry.get("shape") == [16]][:2]
    header[second]["data_offsets"] = header[first]["data_offsets"]
    changed = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(changed)) + changed + content[8 + length :])
    refuse(folder, "does not begin where the tensor before it ends.; fetch it again")


HEADERS: dict[str, tuple[bytes, str]] = {
    "100 MB": (struct.pack("<Q", 10**8) + b" " * 10**8, r"its header has 100,000,000 bytes"),
    "beyond the file": (struct.pack("<Q", 2**63), "ends before its header"),
    "empty": (b"", "ends before its header"),
    "nested": (struct.pack("<Q", 10**5) + b"[" * 10**5, "nested too deeply"),
    "a list": (struct.pack("<Q", 2) + b"[]", "no JSON object"),
    "no UTF-8": (struct.pack("<Q", 2) + b"\xff\xff", "decode"),
}
ENTRIES: dict[str, Any] = {
    "not an object": 3,
    "unknown dtype": {"dtype": "F3", "shape": [1], "data_offsets": [0, 4]},
    "dtype is a list": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
    "negative": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
    "overflow": {"dtype": "F32", "shape": [2**32, 2**32], "data_offsets": [0, 0]},
    "outside": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
    "one offset": {"dtype": "F32", "shape": [1], "data_offsets": [4]},
}


@pytest.mark.parametrize("case", [*HEADERS, *ENTRIES])
def test_damaged_headers_are_refused(folders: dict[str, Path], tmp_path: Path, case: str) -> None:
    folder = copy_folder(folders, "gpt2", tmp_path)
    if case in ENTRIES:
        header = json.dumps({"transformer.wte.weight": ENTRIES[case]}).encode()
        content, words = struct.pack("<Q", len(header)) + header + bytes(8), "transformer.wte.weight"
    else:
        content, words = HEADERS[case]
    (folder / "model.safetensors").write_bytes(content)
    damage = (
        "transformer.wte.weight has the unknown dtype F3; take"
        if case == "unknown dtype"
        else f"cannot be read .*{words}"
    )
    refuse(folder, f"model.safetensors: {damage}")


def test_nested_json_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copy_folder(folders, "gpt2", tmp_path)
    for name in ("tokenizer.json", "model.safetensors.index.json", "config.json"):
        if "index" in name:
            (folder / "model.safetensors").unlink()
        (folder / name).write_text("[" * 50_000)
        refuse(folder, f"{name}: is not JSON")


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("absent.safetensors", "absent.safetensors: cannot be read"),
        ("../one.safetensors", "files of this folder"),
        ("/etc/passwd", "files of this folder"),
        (7, "files of this folder"),
        ("..", "files of this folder|cannot be read"),
    ],
)
def test_an_index_must_name_files_of_the_folder(
    folders: dict[str, Path], tmp_path: Path, file: Any, words: str
) -> None:
    folder = copy_folder(folders, "gpt2", tmp_path)
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    index = {"weight_map": {"transformer.wte.weight": file}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refuse(folder, words)


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        ({"transformer.wte.weight": "one.safetensors"}, "does not list"),
        ({"other": "one.safetensors"}, "has no other"),
    ],
)
def test_an_index_must_list_the_tensors_of_its_files(
    folders: dict[str, Path], tmp_path: Path, weight_map: dict[str, str], words: str
) -> None:
    folder = copy_folder(folders, "gpt2", tmp_path)
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    refuse(folder, words)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floating_point_weights_of_every_dtype_are_read(
    folders: dict[str, Path], tmp_path: Path, dtype: torch.dtype
) -> None:
    folder = copy_folder(folders, "bert", tmp_path)
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    weight = read_folder(folder).model.encoder.stack.layers[0].parts[0].out.weight
    expected = tensors["bert.encoder.layer.0.attention.output.dense.weight"].float()
    assert weight.dtype == torch.float32 and torch.equal(weight, expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.uint8, torch.float8_e4m3fn])
def test_quantised_weights_are_refused_by_name(folders: dict[str, Path], tmp_path: Path, dtype: torch.dtype) -> None:
    folder = copy_folder(folders, "gpt2", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    name = "transformer.h.1.attn.c_attn.weight"
    save_file({**tensors, name: tensors[name].to(dtype)}, folder / "model.safetensors")
    refuse(folder, rf"{name} has the dtype .*; take a checkpoint that is not quantised")


def test_tensors_at_odd_bytes_are_read(folders: dict[str, Path], tmp_path: Path) -> None:
    """Old files have headers of any length."""
    folder = copy_folder(folders, "gpt2", tmp_path)
    expected, file = read_folder(folder).model.state_dict(), folder / "model.safetensors"
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = content[8 : 8 + length].rstrip()
    header += b" " * (1 + len(header) % 2)
    file.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + length :])
    actual = read_folder(folder).model.state_dict()
    assert all(torch.equal(actual[name], tensor) for name, tensor in expected.items())


def test_a_hostile_folder_is_one_line_and_writes_nothing(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_folder(folders, "gpt2", tmp_path, n_embd=10**7)
    with pytest.raises(SystemExit) as stopped:
        main(["import", str(folder), str(tmp_path / "run")])
    assert stopped.value.code == 2 and len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("key", ["depth", "encoder.depth", "width", "hidden"])
def test_sizes_of_show_are_limited(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["show", "transformer-tiny", "--set", f"model.{key}={10**18}"])
    lines = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2 and len(lines) == 1 and (key in lines[0] or "smaller sizes" in lines[0])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("gpt2", "transformer.wte.weight"),
        ("bert", "bert.encoder.layer.1.attention.self.key.bias"),
        ("vit", "classifier.bias"),
    ],
)
def test_weights_that_are_not_finite_are_refused_by_name(
    folders: dict[str, Path], name: str, tensor: str, value: float, tmp_path: Path
) -> None:
    folder = copy_folder(folders, name, tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights[tensor].view(-1)[7 % weights[tensor].numel()] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    refuse(folder, f"{tensor}.*: has weights that are NaN or infinite")


def test_large_finite_weights_are_read(folders: dict[str, Path], tmp_path: Path) -> None:
    """Whose sum overflows."""
    folder = copy_folder(folders, "vit", tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"].fill_(1e38)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert read_folder(folder).model.heads[0].head.weight.min() == torch.tensor(1e38)


@pytest.mark.parametrize("std", [[0.5, 0.0, 0.5], 0, [-0.5] * 3])
def test_a_standard_deviation_of_zero_or_less_is_refused(folders: dict[str, Path], std: Any, tmp_path: Path) -> None:
    folder = copy_folder(folders, "vit", tmp_path)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": std}))
    refuse(folder, "image_std.*above 0")
