"""Hugging Face folders with hostile configs, tokenisers and chat templates."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from hostile_corpus import Commands, Sandbox

DEEP = "[" * 60_000
CONFIGS: dict[str, dict[str, Any]] = {
    "vocab_size 10^9": {"vocab_size": 10**9},
    "n_layer 2^40": {"n_layer": 2**40},
    "n_embd 10^7": {"n_embd": 10**7},
    "n_embd 2^62": {"n_embd": 2**62},
    "n_positions 10^12": {"n_positions": 10**12},
    "n_inner 10^15": {"n_inner": 10**15},
    "n_head 0": {"n_head": 0},
    "n_head -2": {"n_head": -2},
    "NaN": {"layer_norm_epsilon": float("nan")},
    "infinity": {"layer_norm_epsilon": float("inf")},
    "type": {"n_embd": [16], "n_layer": {"a": 1}, "n_head": "two"},
    "id2label letters": {"id2label": {"a": "b"}},
    "id2label numbers": {"id2label": {"0": 5, "1": None}},
    "id2label gap": {"id2label": {"99999999999": "b"}},
    "label2id 2^70": {"label2id": {"a": 2**70}},
    "auto_map": {"auto_map": {"AutoModel": "modeling_evil.Evil", "AutoConfig": "modeling_evil.Evil"}},
    "custom code type": {"model_type": "evil", "auto_map": {"AutoModel": "modeling_evil.Evil"}},
    "model_type path": {"model_type": "../../outside"},
    "model_type list": {"model_type": ["gpt2"]},
    "architectures": {"architectures": ["os.system"]},
    "activation code": {"activation_function": "__import__('os').system"},
    "lone surrogate": {"model_type": "\ud800"},
    "eos 2^80": {"eos_token_id": 2**80},
    "dtype": {"dtype": "os.system", "torch_dtype": "float64.__class__"},
    "own type": {"model_type": "headwise", "experiment": {"name": "../../x", "data": {"train": "/dev/zero"}}},
    "own type, huge": {"model_type": "headwise", "experiment": {"model": {"kind": "gpt2", "width": 10**9}}},
}
TOKENIZERS: dict[str, str] = {
    "empty": "",
    "list": "[]",
    "deep": DEEP,
    "null": "null",
    "no model": '{"version": "1.0"}',
    "regex bomb": json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False},
        "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1}, "unk_token": "<unk>"},
    }),
    "id 2^31": '{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 4294967295}, "unk_token": "a"}}',
    "negative id": '{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}}',
    "surrogate": '{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"\\ud800": 0}, "unk_token": "a"}}',
}  # fmt: skip
TOKENIZER_CONFIGS: dict[str, dict[str, Any]] = {
    "class with code": {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}},
    "max length": {"model_max_length": 10**400},
    "negative max length": {"model_max_length": -5},
    "token of 10 MB": {"eos_token": "x" * 10_000_000},
    "token as list": {"eos_token": [1, 2]},
    "added 2^40": {"added_tokens_decoder": {str(2**40): {"content": "a"}}},
    "added letters": {"added_tokens_decoder": {"x": {"content": 5}}},
}
TEMPLATES = {
    "escapes the sandbox": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "endless": "{% for i in range(10**12) %}x{% endfor %}",
    "open": "{{ cycler.__init__.__globals__.os.system('true') }}",
}


def use(folder: str) -> Commands:
    return [["import", folder, "run"], ["generate", folder, "x" * 40]]


def change_json(name: str, changes: dict[str, Any]) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        folder = sandbox.copy("gpt2")
        code = f"open({str(sandbox.canary)!r}, 'w')\nclass Evil: pass\n"
        for module in ("modeling_evil.py", "evil.py"):
            (folder / module).write_text(code)
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))
        return use(str(folder))

    return make


def put(name: str, content: str | bytes) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        folder = sandbox.copy("gpt2")
        sandbox.write(f"gpt2/{name}", content)
        return use(str(folder))

    return make


def replace_by_fifo(name: str) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        folder = sandbox.copy("gpt2")
        (folder / name).unlink()
        os.mkfifo(folder / name)
        return use(str(folder))

    return make


def name_repository(source: str) -> Callable[[Sandbox], Commands]:
    return lambda sandbox: [["import", source, "run"]]


HARMLESS = {"auto_map", "dtype", "max length", "class with code", "label2id 2^70", "architectures", "token as list",
            "id2label numbers", "id2label gap"}  # fmt: skip


def list_cases() -> Iterator[tuple[str, Callable[[Sandbox], Commands], bool]]:
    for name, changes in CONFIGS.items():
        yield f"config {name}", change_json("config.json", changes), name not in HARMLESS
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        for what, content in {
            "deep": DEEP,
            "list": "[1]",
            "bytes": b"\xff\xfe",
            "number": '{"a": ' + "9" * 9999 + "}",
        }.items():
            yield f"{name} {what}", put(name, content), True
        yield f"{name} FIFO", replace_by_fifo(name), name != "generation_config.json"
    yield "model.safetensors FIFO", replace_by_fifo("model.safetensors"), True
    yield "tokenizer.json FIFO", replace_by_fifo("tokenizer.json"), True
    for name, content in TOKENIZERS.items():
        yield f"tokenizer {name}", put("tokenizer.json", content), name != "regex bomb"
    for name, changes in TOKENIZER_CONFIGS.items():
        yield f"tokenizer_config {name}", change_json("tokenizer_config.json", changes), False
    for name, template in TEMPLATES.items():
        yield f"chat template {name}", change_json("tokenizer_config.json", {"chat_template": template}), False
        yield f"chat_template.jinja {name}", put("chat_template.jinja", template), False
    for key, value in {"temperature": -1, "num_beams": 10**9, "max_length": 10**12, "top_k": "x"}.items():
        yield f"generation_config {key}", change_json("generation_config.json", {key: value}), False
    for source in ("../outside", "org/../../outside", "a/b/../../..", "~/x"):
        yield f"source {source}", name_repository(source), True
