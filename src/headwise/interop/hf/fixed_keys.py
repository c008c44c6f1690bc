"""Keys of a `config.json` that may have one value here, or one of a few: what can be done about another one.

Such a key is a field of a schema whose type is a `Literal`. Every one of a single value has a remedy in `REMEDIES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

ELSEWHERE = "it is not built here; use {library} for this one"
REMEDIES: Mapping[str, frozenset[str]] = {  # what can be done -> keys; {value} is the one of this architecture
    "set it to {value} if the model is not used as a decoder, else use {library} for this one": frozenset({
        "is_decoder",
    }),
    "set it to {value} if the checkpoint has no cross-attention, else use {library} for this one": frozenset({
        "add_cross_attention",
    }),
    "set it to {value}, as the tensors of this architecture are those of such a model": frozenset({
        "is_encoder_decoder",
    }),
    "no code of the model in transformers reads it: set it to {value} for the outputs of transformers": frozenset({
        "add_bias_logits", "add_final_layer_norm", "batch_prioritized_routing", "do_blenderbot_90_layernorm",
        "extra_pos_embeddings", "mlp_bias", "normalize_before", "normalize_embedding", "num_selected_experts",
        "position_embedding_type", "rope_interleaved", "router_type", "scale_decoder_outputs",
        "static_position_embeddings", "tie_encoder_decoder",
    }),
    "set it to {value} if the router may be rounded in another way, else use {library} for this one": frozenset({
        "router_dtype",
    }),
    "set it to {value} if the folder has the weights in model.safetensors, else use {library} for this one": frozenset({
        "custom_load",
    }),
    "transformers fails on another value: correct it to {value}, or use the code that trained the model": frozenset({
        "inv_coeff_init_option", "use_absolute_embeddings",
    }),
    ELSEWHERE: frozenset({
        "attention_bias", "auxiliary_loss", "cross_attention_widening_factor", "dilation", "downsample_in_bottleneck",
        "downsample_in_first_stage", "downsamples", "features_only", "global_pool", "hidden_act", "kernel_size",
        "label_offset", "layer_norm_elementwise_affine", "local_num_chunks_after", "lsh_num_chunks_after",
        "lsh_num_chunks_before", "mlp_ratio", "out_features", "outlook_attention", "output_stride", "padding",
        "patch_size", "pooler_act", "pooler_hidden_act", "pooling_scale", "position_biased_input", "post_layers",
        "qkv_bias", "relative_attention", "remove_final_layer_norm", "router_bias", "scale_attn_by_inverse_layer_idx",
        "scale_attn_weights", "self_attention_widening_factor", "stem_norm", "stride", "talking_head",
        "type_vocab_size", "use_aux_head", "use_bias", "use_query_residual", "use_tpu_fourier_optimizations",
    }),
}  # fmt: skip


def list_values(annotation: Any) -> list[Any]:
    """The values that a field may have, inside a sequence or beside None, too; empty if it is no `Literal`.

    >>> list_values(tuple[Literal[2], ...]), list_values(Literal["mean", "max"]), list_values(str | Literal[1])
    ([2], ['mean', 'max'], [])
    """
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    parts = [part for part in get_args(annotation) if part not in (type(None), Ellipsis)]
    values = [list_values(part) for part in parts]
    return list(dict.fromkeys(value for part in values for value in part)) if all(values) else []


def find_remedy(key: str) -> str:
    """What can be done about another value of a key."""
    return next((remedy for remedy, keys in REMEDIES.items() if key in keys), ELSEWHERE)


def explain_value(key: str, value: Any, annotation: Any, library: str) -> str:
    """Why a value of a fixed key is refused, and what can be done; empty for a value that is allowed.

    >>> explain_value("is_decoder", True, Literal[False], "transformers")
    'must be False, not True; set it to False if the model is not used as a decoder, else use transformers for this one'
    >>> explain_value("outlook_attention", [True, True], tuple[Literal[True], Literal[False]], "timm")[:39]
    'must be (True, False), not [True, True]'
    """
    allowed = list_values(annotation)
    positions = [list_values(part) for part in get_args(annotation) if part is not Ellipsis]
    if not allowed or (value is None and type(None) in get_args(annotation)):
        return ""
    given = value if isinstance(value, list | tuple) else [value]
    if get_origin(annotation) is tuple and Ellipsis not in get_args(annotation):
        allowed = [tuple(values[0] for values in positions)]
        fits = len(given) == len(positions) and all(map(is_among, given, positions))
    else:
        fits = all(is_among(each, allowed) for each in given)
    remedy = find_remedy(key).format(value=repr(allowed[0]), library=library)
    return "" if fits else f"must be {' or '.join(map(repr, allowed))}, not {value!r:.80}; {remedy}"


def is_among(value: Any, allowed: Sequence[Any]) -> bool:
    """Whether a value is one of these, with its type: 1 is not True."""
    return any(value == one and type(value) is type(one) for one in allowed)
