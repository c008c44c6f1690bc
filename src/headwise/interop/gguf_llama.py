"""GGUF files of LLaMA's architecture, read as the Hugging Face folder of the same model.

`config.json`, state dict and `tokenizer.json` are built from the metadata and the tensors; the rest of the import is
that of a folder.

Letters: H heads, D head_width, C width.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from headwise.errors import UserError, nearest
from headwise.interop.gguf import GgufFile
from headwise.interop.hf import load_architecture
from headwise.interop.hf.files import LazyStateDict
from headwise.interop.hf.read import ImportedModel, build_text_model
from headwise.interop.hf.text import TokeniserFiles
from headwise.interop.hf.tokenizer_config import ResolvedTokenizer

HF_NAMES = {  # pattern of GGUF modules -> Hugging Face module
    r"token_embd": "model.embed_tokens",
    r"output_norm": "model.norm",
    r"output": "lm_head",
    r"blk\.(\d+)\.attn_norm": r"model.layers.\1.input_layernorm",
    r"blk\.(\d+)\.attn_([qkv])": r"model.layers.\1.self_attn.\2_proj",
    r"blk\.(\d+)\.attn_output": r"model.layers.\1.self_attn.o_proj",
    r"blk\.(\d+)\.ffn_norm": r"model.layers.\1.post_attention_layernorm",
    r"blk\.(\d+)\.ffn_(gate|up|down)": r"model.layers.\1.mlp.\2_proj",
}
SPECIAL_NAMES = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # types of tokens; the last two are no results of merges


def read_gguf(path: Path) -> ImportedModel:
    """Read the model and the tokeniser of a file."""
    file = GgufFile(path)
    architecture = file.get_text("general.architecture")
    if architecture != "llama":
        raise UserError(f"{path}: holds a model of architecture '{architecture}'; only llama is read")
    config = build_config_json(file)
    check_shapes(file, config)
    weights = LazyStateDict(str(path), {to_hf_name(name): partial(load_weight, file, name) for name in file.tensors})
    files = TokeniserFiles(str(path), ResolvedTokenizer(build_tokenizer_json(file), {}))
    return build_text_model(load_architecture("llama"), config, weights, files, str(path))


def build_config_json(file: GgufFile) -> dict[str, Any]:
    """The `config.json` of `transformers`."""
    width, heads = file.get_int("llama.embedding_length"), file.get_int("llama.attention.head_count")
    head_width = file.get_int("llama.attention.key_length", width // heads)
    if head_width % 2:
        raise UserError(f"{file.path}: its heads have {head_width} channels, which rotate in pairs; fetch it again")
    scaling = file.get_text("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise UserError(f"{file.path}: llama.rope.scaling.type: {scaling!r} is not supported, only 'none'")
    rotary = {
        "rope_type": "default",
        "rope_theta": file.get_float("llama.rope.freq_base", 10_000.0),
        "partial_rotary_factor": file.get_int("llama.rope.dimension_count", head_width) / head_width,
    }
    vocab = len(file.get_texts("tokenizer.ggml.tokens"))
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": vocab,
        "hidden_size": width,
        "num_hidden_layers": file.get_int("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.get_int("llama.attention.head_count_kv", heads),
        "head_dim": head_width,
        "intermediate_size": file.get_int("llama.feed_forward_length"),
        "max_position_embeddings": file.get_int("llama.context_length"),
        "rms_norm_eps": file.get_float("llama.attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "rope_parameters": rotary,
        **{f"{name}_token_id": read_special_id(file, key, vocab) for name, key in SPECIAL_NAMES.items()},
    }


def read_special_id(file: GgufFile, name: str, vocab: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    if key not in file.metadata:
        return None
    token_id = file.get_int(key, least=0)
    if token_id >= vocab:
        raise UserError(f"{file.path}: {key} is {token_id:,}, but there are {vocab:,} tokens; convert the model anew")
    return token_id


def check_shapes(file: GgufFile, config: Mapping[str, Any]) -> None:
    """Compare the tensors with the metadata before a model of that size is built."""
    for name, expected in list_shapes(config):
        info = file.tensors.get(name)
        if info is None:
            raise UserError(f"{file.path}: has no {name}; it is not the model that its metadata describe")
        if info.shape != expected:
            raise UserError(f"{file.path}: {name} is {info.shape}, its metadata ask for {expected}; fetch it again")


def list_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors that a model needs, layer by layer: there may be more layers than memory could hold the names of."""
    width, hidden, head_width = (config[key] for key in ("hidden_size", "intermediate_size", "head_dim"))
    queries, keys = (config[f"num_{kind}_heads"] * head_width for kind in ("attention", "key_value"))
    yield "token_embd.weight", (config["vocab_size"], width)
    yield "output_norm.weight", (width,)
    for layer in range(config["num_hidden_layers"]):
        for module, shape in (
            ("attn_norm", (width,)),
            ("attn_q", (queries, width)),
            ("attn_k", (keys, width)),
            ("attn_v", (keys, width)),
            ("attn_output", (width, queries)),
            ("ffn_norm", (width,)),
            ("ffn_gate", (hidden, width)),
            ("ffn_up", (hidden, width)),
            ("ffn_down", (width, hidden)),
        ):
            yield f"blk.{layer}.{module}.weight", shape


def to_hf_name(name: str) -> str:
    """The Hugging Face name of a tensor.

    >>> to_hf_name("blk.3.attn_q.weight")
    'model.layers.3.self_attn.q_proj.weight'
    """
    module, _, leaf = name.rpartition(".")
    for pattern, hf_module in HF_NAMES.items():
        if match := re.fullmatch(pattern, module):
            return f"{match.expand(hf_module)}.{leaf}"
    return name


def load_weight(file: GgufFile, name: str) -> Tensor:
    """A tensor with the row order of `transformers`.

    The rotary embedding of llama.cpp rotates adjacent channels together, that of `transformers` (and Headwise) channels
    half a head apart: the rows of queries and keys are permuted back.
    """
    tensor = file.load_tensor(name)
    match = re.fullmatch(r"blk\.\d+\.attn_([qk])\.weight", name)
    if match is None:
        return tensor
    heads = file.get_int("llama.attention.head_count")
    if match[1] == "k":
        heads = file.get_int("llama.attention.head_count_kv", heads)
    pairs = tensor.unflatten(0, (heads, -1, 2))  # (HD, C) -> (H, D/2, 2, C)
    return pairs.transpose(1, 2).reshape(tensor.shape)


def build_tokenizer_json(file: GgufFile) -> dict[str, Any]:
    """The `tokenizer.json`: byte-level BPE (Radford et al. 2019)."""
    model = file.get_text("tokenizer.ggml.model")
    if model != "gpt2":
        raise UserError(f"{file.path}: its tokeniser is '{model}'; only gpt2 is read")
    try:
        return _build_bpe(file)
    except UserError:
        raise
    except Exception as error:  # the library has no class of its own for pieces and merges that do not fit together
        reason = "".join(letter if letter.isprintable() else " " for letter in str(error)[:200])
        raise UserError(f"{file.path}: its tokeniser cannot be read ({reason}); convert the model anew") from None


def _build_bpe(file: GgufFile) -> dict[str, Any]:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    pieces = file.get_texts("tokenizer.ggml.tokens")
    merges = [_split_merge(file, merge) for merge in file.get_texts("tokenizer.ggml.merges")]
    engine = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, merges))
    engine.pre_tokenizer = pre_tokenizers.Sequence(_build_pre_tokenizers(file))
    engine.decoder = decoders.ByteLevel()
    types = _read_token_types(file, len(pieces))
    added = [(AddedToken(pieces[i], normalized=False), types[i]) for i in np.flatnonzero(types != NORMAL)]
    engine.add_special_tokens([token for token, kind in added if kind == CONTROL])
    engine.add_tokens([token for token, kind in added if kind == USER_DEFINED])
    if file.get_bool("tokenizer.ggml.add_bos_token", False):
        bos_id = file.get_int("tokenizer.ggml.bos_token_id", least=0)
        bos = pieces[bos_id]
        engine.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, bos_id)])
    data: dict[str, Any] = json.loads(engine.to_str())
    return data


def _split_merge(file: GgufFile, merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right) or " " in right:
        raise UserError(f"{file.path}: tokenizer.ggml.merges has {merge!r:.50}, no two pieces; convert the model anew")
    return left, right


def _read_token_types(file: GgufFile, count: int) -> np.ndarray:
    key = "tokenizer.ggml.token_type"
    types = np.asarray(file.metadata.get(key, np.full(count, NORMAL)))
    if types.shape != (count,) or types.dtype.kind not in "iu":
        raise UserError(f"{file.path}: {key} is no type for each of {count:,} tokens; convert the model anew")
    return types


LLAMA3 = (  # the pattern in Llama 3's tokenizer.json
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def _build_pre_tokenizers(file: GgufFile) -> list[Any]:
    """How a text is split into words before merges."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Split

    words = ByteLevel(add_prefix_space=False)
    known: dict[str, list[Any]] = {
        "default": [words],
        "gpt-2": [words],
        "smollm": [Digits(individual_digits=True), words],
        "llama-bpe": [Split(Regex(LLAMA3), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)],
    }
    name = file.get_text("tokenizer.ggml.pre", "default")
    if name not in known:
        raise UserError(f"{file.path}: tokenizer.ggml.pre '{name}' is not known; {nearest(name, known)}")
    return known[name]
