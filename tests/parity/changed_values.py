"""Change one value of one key of `config.json` at a time, or several of `config.json` and `generation_config.json` at
once, and compare what transformers and Headwise compute."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
import transformers
from tiny_folders import build_hf_config, build_hf_model, build_steps, logits, save_folder

from headwise import UserError
from headwise.interop.hf import load_architecture
from headwise.interop.hf.check import check_folder
from headwise.interop.hf.read import read_folder

ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu", "tanh", "quick_gelu", "mish")
ROPE = {"rope_theta": 50.0, "original_max_position_embeddings": 8}
VALUES: dict[str, tuple[Any, ...]] = {  # where the type alone suggests no other value
    "position_embedding_type": ("relative_key", "rotary"),
    "problem_type": ("regression", "multi_label_classification", "single_label_classification"),
    "feed_forward_proj": ("gated-gelu", "gated-silu", "gated-relu", "silu"),
    "rope_parameters": (
        {"rope_type": "default", "rope_theta": 50.0},
        {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0},
        {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 50.0},
        {"rope_type": "yarn", "factor": 2.0, **ROPE},
        {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 0.5, "high_freq_factor": 2.0, **ROPE},
    ),
    # Ids that the compared inputs have, or that no row belongs to, would compare other inputs.
    **{f"{name}_token_id": () for name in ("pad", "bos", "eos", "cls", "sep", "mask", "unk", "decoder_start")},
    "vocab_size": (40,),
    "chunk_size_feed_forward": (),  # of lengths that it divides; transformers raises at others
    "segment_means_seq_len": (),  # the one length of texts of a Nystromformer: test_nystromformer.py
    "return_dict": (),  # changes what transformers returns, not its values
    "sliding_window": (2, 4, 6),  # with 1, the cache of transformers keeps all tokens and differs from its full forward
}
SEARCHES: dict[str, tuple[Any, ...]] = {  # keys of generation_config.json
    "num_beams": (1, 2, 4, 5), "early_stopping": (True, False, "never"), "length_penalty": (0.5, 2.0, -1.0),
    "no_repeat_ngram_size": (2, 3), "repetition_penalty": (1.3, 0.8), "encoder_repetition_penalty": (1.5,),
    "encoder_no_repeat_ngram_size": (2,), "min_length": (3, 6), "min_new_tokens": (3,), "max_length": (12, 20),
    "max_new_tokens": (5, 9), "forced_bos_token_id": (5, 7), "forced_eos_token_id": (2, 6),
    "suppress_tokens": ([5, 9, 11],), "begin_suppress_tokens": ([8, 9],), "bad_words_ids": ([[5], [7, 8]],),
    "eos_token_id": (2, [2, 9]), "decoder_start_token_id": (2, 3), "bos_token_id": (1, 4), "pad_token_id": (0, 3),
    "renormalize_logits": (True,), "temperature": (0.7,), "top_k": (5,), "top_p": (0.5,), "typical_p": (0.9,),
    "exponential_decay_length_penalty": ([3, 1.5],), "sequence_bias": ([[[5], 2.0]],), "guidance_scale": (1.5,),
    "diversity_penalty": (0.5,), "num_beam_groups": (2,), "use_cache": (False,), "return_dict_in_generate": (True,),
}  # fmt: skip
NO_SETTINGS = frozenset({"name_or_path", "_name_or_path", "transformers_version", "tokenizer_class", "model_type"})
TOLERANCE = 1e-5  # relative to the largest logit


@dataclass(frozen=True)
class Trial:
    """A changed value, and the outcome: "equal", "refused" by Headwise, "impossible" for transformers, "different" or
    a "crash" of Headwise."""

    key: str
    value: Any
    outcome: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.key} = {self.value!r}: {self.outcome} {self.detail}"


def list_keys(kind: str) -> dict[str, Any]:
    """Every key of a config class of transformers, with its value in the tiny config."""
    data = json.loads(build_hf_config(kind).to_json_string(use_diff=False))
    return {key: value for key, value in sorted(data.items()) if key not in NO_SETTINGS}


def suggest_values(key: str, value: Any) -> Iterator[Any]:
    """Other values of a key."""
    if key in VALUES:
        yield from (other for other in VALUES[key] if other != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, 2 * value, value // 2 or 3, value + 2)
    elif isinstance(value, float):
        yield from (value / 2 + 0.01, 0.5)
    elif isinstance(value, str) and value in ACTIVATIONS:
        yield from (other for other in ACTIVATIONS if other != value)
    elif isinstance(value, str):
        yield "other"
    elif isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        yield from ([2 * item for item in value], [item + 1 for item in value], value[:-1])
    elif value is None:
        yield from (True, 2, 4, 8, 0.5)


def try_value(kind: str, name: str, key: str, value: Any, folder: Path) -> Trial:
    """Save a random model of transformers with one changed value, and compare it with Headwise's of the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        save_folder(build_hf_model(kind, name, **{key: value}), folder)
        model = getattr(transformers, name).from_pretrained(folder).eval()
        run_alone(model)
    except Exception as error:  # whatever transformers raises
        return Trial(key, value, "impossible", repr(error)[:80])
    try:
        imported = read_folder(folder)
    except UserError as error:
        return Trial(key, value, "refused", str(error).partition("config.json: ")[2])
    try:
        ours, theirs = logits(imported, model)
    except Exception as error:
        return Trial(key, value, "crash", repr(error)[:200])
    if ours.shape != theirs.shape:
        return Trial(key, value, "different", f"{tuple(ours.shape)} and {tuple(theirs.shape)}")
    difference = float((ours - theirs).abs().max() / theirs.abs().max())
    return Trial(key, value, "equal" if difference < TOLERANCE else "different", f"{difference:.1e}")


def run_alone(model: Any) -> None:
    """Run a model of transformers on inputs of the compared shapes."""
    if model.main_input_name == "pixel_values":
        model(torch.zeros(2, 3, 32, 32))
        return
    if model.main_input_name == "states":
        model(**build_steps(model.config))
        return
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 5]])
    model(input_ids=ids, **({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}))


@torch.inference_mode()
def walk(kind: str, folder: Path, used: bool = False) -> Iterator[Trial]:
    """Try other values of every key, in the first class of an architecture; with `used`, one value of each key that
    Headwise reads."""
    architecture = load_architecture(kind)
    name = next(iter(architecture.classes))
    for key, value in list_keys(kind).items():
        if used and key not in architecture.hf_config.model_fields:
            continue
        for other in suggest_values(key, value):
            yield (trial := try_value(kind, name, key, other, folder))
            if used and trial.outcome != "impossible":
                break


def walk_combinations(kind: str, folder: Path, count: int, seed: int = 0) -> Iterator[Trial]:
    """Random combinations of changed values in random classes of an architecture; generators also generate, with random
    values of `generation_config.json`."""
    random = Random(f"{kind} {seed}")
    keys, classes = list_keys(kind), list(load_architecture(kind).classes)
    for _ in range(count):
        name = random.choice(classes)
        options = {key: list(suggest_values(key, value)) for key, value in keys.items()}
        chosen = random.sample([key for key in options if options[key]], random.randint(1, 5))
        changes = {key: random.choice(options[key]) for key in chosen}
        searches = {key: random.choice(SEARCHES[key]) for key in random.sample(sorted(SEARCHES), random.randint(0, 4))}
        yield try_combination(kind, name, changes, searches, folder)


def try_combination(kind: str, name: str, changes: dict[str, Any], searches: dict[str, Any], folder: Path) -> Trial:
    """Save a random model of transformers with changed values, and compare outputs and what is generated."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        model = save_folder(build_hf_model(kind, name, **changes), folder)
        getattr(transformers, name).from_pretrained(model)
    except Exception as error:  # whatever transformers raises
        return Trial(name, changes, "impossible", repr(error)[:80])
    generation = folder / "generation_config.json"
    if generation.is_file():
        generation.write_text(json.dumps({**json.loads(generation.read_text()), **searches}))
    trial = partial(Trial, name, {**changes, **searches})
    try:
        comparison = check_folder(folder)
    except UserError as error:
        return trial("impossible" if "--check: transformers cannot" in str(error) else "refused", str(error))
    except Exception as error:
        return trial("crash", repr(error)[:200])
    return trial("equal" if comparison.equal else "different", str(comparison))
