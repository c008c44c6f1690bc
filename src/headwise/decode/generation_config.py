"""`generation_config.json` of Hugging Face as settings of `[decode]`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headwise.decode.config import DecodeConfig
from headwise.errors import UserError
from headwise.text import EOS

# Keys of equal meaning and, unless a second name is given, of equal name.
NUMBERS = {
    "num_beams": "beams",
    "num_return_sequences": "nbest",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "min_length": "min_total_length",
    "max_length": "max_total_length",
    "repetition_penalty": "repetition_penalty",
    "encoder_repetition_penalty": "encoder_repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size": "encoder_no_repeat_ngram_size",
    "renormalize_logits": "renormalize_logits",
}
SAMPLING = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": None, "typical_p": 1.0}  # defaults of generate
TOKENS = (
    "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id",
    "decoder_start_token_id",
)  # fmt: skip
LENGTHS = ("max_new_tokens", "min_new_tokens", "stop_strings", "eos_token_id", "do_sample")
# No effect on the tokens of one model: caches, what is returned beside the tokens, assistants, metadata.
IGNORED = frozenset({
    "use_cache", "cache_implementation", "cache_config", "max_cache_len", "compile_config", "disable_compile",
    "prefill_chunk_size", "continuous_batching_config", "low_memory", "return_legacy_cache", "output_attentions",
    "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate", "pad_token_id", "bos_token_id",
    "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
    "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit", "assistant_lookbehind",
    "target_lookbehind", "assistant_ensemble_weight", "speculation_type", "use_mtp", "transformers_version",
    "_from_model_config", "_commit_hash", "remove_invalid_values",
})  # fmt: skip
# Values of unsupported keys that change nothing.
NEUTRAL = {
    "guidance_scale": (1, 1.0), "epsilon_cutoff": (0, 0.0), "eta_cutoff": (0, 0.0), "diversity_penalty": (0, 0.0),
    "num_beam_groups": (1,), "penalty_alpha": (0, 0.0), "token_healing": (False,),
}  # fmt: skip


def from_generation_config(
    values: Mapping[str, Any], to_our_id: Callable[[int], int] = int, where: str = "generation_config.json"
) -> dict[str, Any]:
    """The settings of `[decode]` of a generation config: those that search as `generate` does with these values.

    Keys that are not given have the defaults of `generate`, except for the maximum length, which stays that of
    `[decode]`. `to_our_id` maps token ids of the folder to those of the imported model. Null is ignored; a key that
    would change outputs and is not supported raises; errors begin with `where`.

        >>> from_generation_config({"num_beams": 4, "max_new_tokens": 64, "forced_eos_token_id": 2})
        ... # doctest: +NORMALIZE_WHITESPACE
        {'convention': 'generate', 'length_penalty': 1.0, 'early_stopping': False, 'beams': 4,
         'forced_eos_token_id': 2, 'max_ratio': 0.0, 'max_extra': 64, 'max_length': 64}
    """
    given = {key: value for key, value in values.items() if value is not None}
    check_keys(given, where)
    settings: dict[str, Any] = {"convention": "generate", "length_penalty": 1.0, "early_stopping": False}
    settings |= {ours: given[theirs] for theirs, ours in NUMBERS.items() if theirs in given}
    settings |= {key: map_ids(given[key], to_our_id) for key in TOKENS if key in given}
    if given.get("do_sample"):
        settings |= {key: given.get(key, default) for key, default in SAMPLING.items() if key in given or default}
    if "max_new_tokens" in given:
        settings.pop("max_total_length", None)
        settings |= {"max_ratio": 0.0, "max_extra": given["max_new_tokens"], "max_length": given["max_new_tokens"]}
    if "min_new_tokens" in given:
        settings.pop("min_total_length", None)
        settings["min_length"] = given["min_new_tokens"]
    if "stop_strings" in given:
        strings = given["stop_strings"]
        settings["stop"] = [strings] if isinstance(strings, str) else list(strings)
    ends = given.get("eos_token_id")
    ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
    if further := [end for end in map_ids(ends, to_our_id) if end != EOS]:
        settings["eos_token_ids"] = further
    return settings


def to_generation_config(config: DecodeConfig, to_hf_id: Callable[[int], int] = int) -> dict[str, Any]:
    """The keys of a generation config with which `generate` searches as a `[decode]` of its convention does; empty for
    the convention of Headwise, which it does not have. `to_hf_id` maps token ids to those of the folder.

        >>> to_generation_config(DecodeConfig(convention="generate", beams=4, max_ratio=0, max_extra=9, max_length=9))
        {'num_beams': 4, 'length_penalty': 0.6, 'early_stopping': 'never', 'max_new_tokens': 9}
    """
    if config.convention != "generate":
        return {}
    defaults = {ours: type(config).model_fields[ours].default for ours in (*NUMBERS.values(), *TOKENS, *SAMPLING)}
    always = ("length_penalty", "early_stopping")
    data = {
        theirs: getattr(config, ours)
        for theirs, ours in NUMBERS.items()
        if ours in always or getattr(config, ours) != defaults[ours]
    }
    data |= {key: map_ids(getattr(config, key), to_hf_id) for key in TOKENS if getattr(config, key) != defaults[key]}
    if config.search == "sample":
        data |= {"do_sample": True, **{key: getattr(config, key) for key in SAMPLING if key != "min_p" or config.min_p}}
    if config.max_ratio == 0:
        data["max_new_tokens"] = min(config.max_extra, config.max_length)
    if config.min_length:
        data["min_new_tokens"] = config.min_length
    return data | ({"stop_strings": list(config.stop)} if config.stop else {})


def check_keys(given: Mapping[str, Any], where: str) -> None:
    """Raise if a key would change outputs and is not supported."""
    known = IGNORED | {*NUMBERS, *SAMPLING, *TOKENS, *LENGTHS}
    for key, value in given.items():
        if key not in known and value not in NEUTRAL.get(key, ()):
            raise UserError(f"{where}: {key}: {value!r} is not supported; remove it")
    if isinstance(given.get("forced_eos_token_id"), list):
        raise UserError(f"{where}: forced_eos_token_id: a list is not supported; choose one id")


def map_ids(value: Any, to_our_id: Callable[[int], int]) -> Any:
    """Map the token ids of nested lists."""
    return [map_ids(item, to_our_id) for item in value] if isinstance(value, list | tuple) else to_our_id(value)
