"""GGUF files of LLaMA's kind: what `transformers` would have in a folder of the same model.

So everything after that is as for a folder: key map, order of the vocabulary, complaints.

Letters: H heads, D head_width, C width.
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from headwise.errors import UserError, nearest
from headwise.interop.gguf import Gguf
from headwise.interop.hf import load_architecture
from headwise.interop.hf.files import LazyStateDict
from headwise.interop.hf.read import ImportedModel, build_text_model
from headwise.interop.hf.text import TokeniserFiles

NAMES = {  # theirs -> transformers'
    r"token_embd": "model.embed_tokens",
    r"output_norm": "model.norm",
    r"output": "lm_head",
    r"blk\.(\d+)\.attn_norm": r"model.layers.\1.input_layernorm",
    r"blk\.(\d+)\.attn_([qkv])": r"model.layers.\1.self_attn.\2_proj",
    r"blk\.(\d+)\.attn_output": r"model.layers.\1.self_attn.o_proj",
    r"blk\.(\d+)\.ffn_norm": r"model.layers.\1.post_attention_layernorm",
    r"blk\.(\d+)\.ffn_(gate|up|down)": r"model.layers.\1.mlp.\2_proj",
}
MARKS = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
CONTROL, USER = 3, 4  # kinds of tokens that are no pieces of the pair encoding


def read_gguf(path: Path) -> ImportedModel:
    """The model of a file."""
    file = Gguf(path)
    kind = file.fact("general.architecture")
    if kind != "llama":
        raise UserError(f"{path}: holds a model of kind '{kind}'; only llama is read")
    weights = LazyStateDict(str(path), {_name(name): partial(_tensor, file, name) for name in file.stored})
    texts = TokeniserFiles(str(path), tokenizer(file), {})
    return build_text_model(load_architecture("llama"), config(file), weights, texts, str(path))


def config(file: Gguf) -> dict[str, Any]:
    """The `config.json`."""
    width, heads = file.fact("llama.embedding_length"), file.fact("llama.attention.head_count")
    head_width = file.fact("llama.attention.key_length", width // heads)
    scaling = file.fact("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise UserError(f"{file.path}: llama.rope.scaling.type: {scaling!r} is not supported, only 'none'")
    rotary = {
        "rope_type": "default",
        "rope_theta": file.fact("llama.rope.freq_base", 10_000.0),
        "partial_rotary_factor": file.fact("llama.rope.dimension_count", head_width) / head_width,
    }
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": len(file.fact("tokenizer.ggml.tokens")),
        "hidden_size": width,
        "num_hidden_layers": file.fact("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.fact("llama.attention.head_count_kv", heads),
        "head_dim": head_width,
        "intermediate_size": file.fact("llama.feed_forward_length"),
        "max_position_embeddings": file.fact("llama.context_length"),
        "rms_norm_eps": file.fact("llama.attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in file.stored,
        "rope_parameters": rotary,
        **{f"{mark}_token_id": file.facts.get(f"tokenizer.ggml.{name}_token_id") for mark, name in MARKS.items()},
    }


def _name(name: str) -> str:
    module, _, leaf = name.rpartition(".")
    for pattern, theirs in NAMES.items():
        if match := re.fullmatch(pattern, module):
            return f"{match.expand(theirs)}.{leaf}"
    return name


def _tensor(file: Gguf, name: str) -> Tensor:
    """llama.cpp turns neighbouring channels together, we (and `transformers`) those that are half a head apart: the
    rows of queries and keys go back where they were."""
    tensor = file.tensor(name)
    heads = {"attn_q": "llama.attention.head_count", "attn_k": "llama.attention.head_count_kv"}
    key = heads.get(name.split(".")[-2])
    if key is None:
        return tensor
    count = file.fact(key, file.fact("llama.attention.head_count"))
    pairs = tensor.unflatten(0, (count, -1, 2))  # (HD, C) -> (H, D/2, 2, C)
    return pairs.transpose(1, 2).reshape(tensor.shape)


def tokenizer(file: Gguf) -> dict[str, Any]:
    """The `tokenizer.json`: byte-level pair encoding (Radford et al. 2019)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    if file.fact("tokenizer.ggml.model") != "gpt2":
        raise UserError(f"{file.path}: its tokeniser is '{file.fact('tokenizer.ggml.model')}'; only gpt2 is read")
    pieces: list[str] = file.fact("tokenizer.ggml.tokens")
    merges = [tuple(pair.split(" ")) for pair in file.fact("tokenizer.ggml.merges")]
    engine = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, merges))
    engine.pre_tokenizer = pre_tokenizers.Sequence(_cuts(file))
    engine.decoder = decoders.ByteLevel()
    kinds = list(zip(pieces, file.fact("tokenizer.ggml.token_type", [1] * len(pieces)), strict=True))
    engine.add_special_tokens([AddedToken(piece, normalized=False) for piece, kind in kinds if kind == CONTROL])
    engine.add_tokens([AddedToken(piece, normalized=False) for piece, kind in kinds if kind == USER])
    if file.fact("tokenizer.ggml.add_bos_token", False):
        start = pieces[file.fact("tokenizer.ggml.bos_token_id")]
        engine.post_processor = processors.TemplateProcessing(
            single=f"{start} $A", special_tokens=[(start, pieces.index(start))]
        )
    data: dict[str, Any] = json.loads(engine.to_str())
    return data


LLAMA3 = (  # the cuts of Llama 3's tokenizer.json
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def _cuts(file: Gguf) -> list[Any]:
    """How a text is cut before pairs are joined."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Split

    words = ByteLevel(add_prefix_space=False)
    known: dict[str, list[Any]] = {
        "default": [words],
        "gpt-2": [words],
        "smollm": [Digits(individual_digits=True), words],
        "llama-bpe": [Split(Regex(LLAMA3), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)],
    }
    name = file.fact("tokenizer.ggml.pre", "default")
    if name not in known:
        raise UserError(f"{file.path}: cuts texts in a way, '{name}', that is not known; {nearest(name, known)}")
    return known[name]
