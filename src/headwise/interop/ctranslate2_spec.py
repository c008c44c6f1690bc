"""Build the CTranslate2 specification (Klein et al. 2020) of a trained model, by tables of tensor names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwise.blocks.positions.absolute import LearnedPositionsConfig, SinusoidalPositionsConfig
from headwise.blocks.positions.relative import T5BiasConfig
from headwise.blocks.positions.rotary import RotaryConfig
from headwise.config.base import Config
from headwise.errors import UserError
from headwise.interop.plain import PlainStack, Side, read_plain_stack
from headwise.models.config import ModelConfig
from headwise.models.transformer import TransformerConfig
from headwise.utils.extras import needed_for

if TYPE_CHECKING:
    from torch import Tensor

    from headwise.models.encoder_decoder import EncoderDecoder

SIDES: tuple[Side, Side] = ("encoder", "decoder")
PLAIN = {
    "relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "swish": "SWISH", "tanh": "Tanh", "sigmoid": "Sigmoid",
}  # fmt: skip
GATED = {"reglu": "RELU", "geglu": "GELU", "geglu_tanh": "GELUTanh", "swiglu": "SWISH", "glu": "Sigmoid"}
ACTIVATIONS = {**PLAIN, **GATED}
POSITIONS: dict[str, dict[str, Any]] = {  # arguments of a stack's specification
    "none": {},
    "sinusoid": {},
    "learned": {},
    "shaw": {"relative_position": True},
    "t5": {"relative_attention_bias": True},
    "rotary": {"rotary_interleave": False},
}
ROWS = 4096  # positions written for sinusoids; CTranslate2's own formula differs from the paper's

# Headwise module of a layer -> CTranslate2 scope; both fuse queries, keys and values in this order.
SELF = {"parts.0.qkv.project": "self_attention/linear_0", "parts.0.out": "self_attention/linear_1"}
CROSS = {
    "parts.1.qkv.query": "attention/linear_0",
    "parts.1.qkv.project": "attention/linear_1",
    "parts.1.out": "attention/linear_2",
}
LINEARS: dict[Side, dict[str, str]] = {
    "encoder": {**SELF, "parts.1.inner": "ffn/linear_0", "parts.1.outer": "ffn/linear_1"},
    "decoder": {**SELF, **CROSS, "parts.2.inner": "ffn/linear_0", "parts.2.outer": "ffn/linear_1"},
}
NORMS: dict[Side, tuple[str, ...]] = {
    "encoder": ("self_attention/layer_norm", "ffn/layer_norm"),
    "decoder": ("self_attention/layer_norm", "attention/layer_norm", "ffn/layer_norm"),
}
# Headwise weights of score mods -> CTranslate2 attributes of the self-attention.
SCORE_MODS = {
    "shaw": {"keys": "relative_position_keys", "values": "relative_position_values"},
    "t5": {"table.weight": "relative_attention_bias"},
}


UNSUPPORTED = (
    "key_value_heads", "embedding_norm", "embedding_width", "token_types", "suppress_ids", "transparent_attention",
)  # fmt: skip
SUPPORTED_KINDS = {
    "positions": tuple(POSITIONS),
    "norm": ("layer", "rms"),
    "wiring": ("pre", "post"),
    "token_embedding": ("table",),
    "output_layer": ("softmax",),
}


def find_unsupported(config: Config) -> str:
    """The setting that CTranslate2 does not support; empty if it can run the model.

    >>> find_unsupported(TransformerConfig())
    ''
    >>> find_unsupported(TransformerConfig(positions="alibi"))
    "positions: CTranslate2 has no 'alibi' in an encoder and decoder"
    """
    if not isinstance(config, TransformerConfig):
        return "model: CTranslate2 export is for Transformers of the 2017 form"
    for key, kinds in SUPPORTED_KINDS.items():
        kind = getattr(config, key).kind
        if kind not in kinds:
            return f"{key}: CTranslate2 has no '{kind}' in an encoder and decoder"
    if isinstance(config.positions, RotaryConfig) and config.positions != RotaryConfig(base=config.positions.base):
        return "positions: only rotary positions of all channels and without scaling can be exported to CTranslate2"
    for key in UNSUPPORTED:
        if getattr(config, key):
            return f"{key}: CTranslate2 has nothing like it in an encoder and decoder"
    try:
        stacks = [read_plain_stack(config, side) for side in SIDES]
    except UserError as error:
        return str(error)
    for stack in stacks:
        if stack.activation not in ACTIVATIONS:
            return f"activation: CTranslate2 has no '{stack.activation}'"
        if stack.heads * stack.head_width != config.width:
            return "layers: CTranslate2 needs heads that make up the width"
    return ""


def build_spec(model: EncoderDecoder, config: ModelConfig) -> Any:
    """The `TransformerSpec` with all weights set, without vocabularies."""
    import torch

    if reason := find_unsupported(config):
        raise UserError(f"{reason}; this model runs on the native engine only")
    assert isinstance(config, TransformerConfig)
    with needed_for("CTranslate2"):
        from ctranslate2.specs import TransformerSpec, model_spec
        from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    stacks = {side: read_plain_stack(config, side) for side in SIDES}
    encoder = TransformerEncoderSpec(**_list_arguments(config, stacks["encoder"]))
    decoder = TransformerDecoderSpec(**_list_arguments(config, stacks["decoder"]))
    if config.positions.kind == "rotary":
        del encoder.position_encodings  # encoders have one by default
    encoder.scale_embeddings = decoder.scale_embeddings = config.scale_embeddings
    spec = TransformerSpec(encoder, decoder)
    # Copies: quantisation changes the weights in place.
    state = {key: value.detach().to("cpu", torch.float32, copy=True) for key, value in model.state_dict().items()}
    weights = _map_weights(state, config, stacks)
    for path, value in weights.items():
        scope, _, name = path.rpartition("/")
        setattr(model_spec.index_spec(spec, scope), name, value)
    return spec


def _list_arguments(config: TransformerConfig, stack: PlainStack) -> dict[str, Any]:
    """The arguments of a stack's specification."""
    from ctranslate2.specs.common_spec import Activation

    positions = dict(POSITIONS[config.positions.kind])
    if isinstance(config.positions, RotaryConfig):
        positions |= {"rotary_dim": stack.head_width, "rotary_base": config.positions.base}
    return {
        "num_layers": stack.depth,
        "num_heads": stack.heads,
        "pre_norm": config.wiring.kind == "pre",
        "activation": Activation[ACTIVATIONS[stack.activation]],
        "ffn_glu": stack.activation in GATED,
        "rms_norm": config.norm.kind == "rms",
        **positions,
    }


def _map_weights(
    state: Mapping[str, Tensor], config: TransformerConfig, stacks: Mapping[Side, PlainStack]
) -> dict[str, Any]:
    """CTranslate2 path -> weight."""
    weights: dict[str, Any] = {
        "encoder/embeddings_0/weight": state["encoder.embed.table.weight"],
        "decoder/embeddings/weight": state["decoder.embed.table.weight"],
        "decoder/projection/weight": state["decoder.head.table.weight"],
    }
    if config.output_bias:
        weights["decoder/projection/bias"] = state["decoder.head.bias"]
    for side, stack in stacks.items():
        if (table := _build_position_table(state, config, side)) is not None:
            weights[f"{side}/position_encodings/encodings"] = table
        if config.wiring.kind == "pre":
            weights |= _map_norm(state, f"{side}.stack.final", f"{side}/layer_norm")
        for layer, number in enumerate(stack.layer_numbers):
            prefix, scope = f"{side}.stack.layers.{number}.", f"{side}/layer_{layer}/"
            for module, path in LINEARS[side].items():
                weights |= _map_linear(state, prefix + module, scope + path, stack.activation)
            for number, path in enumerate(NORMS[side]):
                weights |= _map_norm(state, f"{prefix}norms.{number}", scope + path)
            weights |= _map_score_mods(state, config, f"{prefix}parts.0.score_mods.0.", f"{scope}self_attention/")
    return weights


def _map_linear(state: Mapping[str, Tensor], module: str, scope: str, activation: str) -> dict[str, Any]:
    gated = module.endswith("inner") and activation in GATED
    weights: dict[str, Any] = {}
    for leaf in ("weight", "bias"):
        if f"{module}.{leaf}" not in state:
            continue
        value = state[f"{module}.{leaf}"]
        if gated:
            value, weights[f"{scope}_noact/{leaf}"] = value.chunk(2)  # (2 hidden, ...) -> gate and linear part
        weights[f"{scope}/{leaf}"] = value
    return weights


def _map_norm(state: Mapping[str, Tensor], module: str, scope: str) -> dict[str, Any]:
    leaves = {"weight": "gamma", "bias": "beta"}
    stored = {leaf: state[f"{module}.{leaf}"] for leaf in leaves if f"{module}.{leaf}" in state}
    return {f"{scope}/{leaves[leaf]}": tensor for leaf, tensor in stored.items()}


def _map_score_mods(state: Mapping[str, Tensor], config: TransformerConfig, module: str, scope: str) -> dict[str, Any]:
    import numpy as np

    leaves = SCORE_MODS.get(config.positions.kind, {})
    weights: dict[str, Any] = {scope + attribute: state[module + leaf] for leaf, attribute in leaves.items()}
    if isinstance(config.positions, T5BiasConfig):
        weights[f"{scope}relative_attention_max_distance"] = np.int32(config.positions.max_distance)
    return weights


def _build_position_table(state: Mapping[str, Tensor], config: TransformerConfig, side: Side) -> Tensor | None:
    import torch

    from headwise.blocks.positions.absolute import build_sinusoids

    positions = config.positions
    if isinstance(positions, LearnedPositionsConfig):
        return state[f"{side}.embed.positions.table"][positions.offset :]
    if isinstance(positions, SinusoidalPositionsConfig):
        return build_sinusoids(torch.arange(ROWS), config.width, positions.halves).float()
    return torch.zeros(ROWS, config.width) if positions.kind == "none" else None
