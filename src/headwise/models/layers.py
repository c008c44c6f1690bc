"""Settings of Transformer layers and stacks, and the functions that build them.

A model's config combines these groups of settings, with the model's own defaults; all of them can be changed in an
experiment file, so a GPT with ALiBi or a BERT with RMSNorm needs no code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from torch import nn

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.feedforward import Activation, MlpConfig
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.absolute import SinusoidalPositionsConfig
from headwise.blocks.residual import LayerScaleAdd, PostNormConfig, ResidualAdd
from headwise.blocks.stack import Stack
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.blocks.transparent import TransparentStack
from headwise.config.base import SHORTHANDS, Config, Problems, list_problems
from headwise.errors import UserError
from headwise.models.config import MAX_DEPTH

Parts = tuple[Any, ...]  # the parts of one layer
MakeAdd = Callable[[], nn.Module]  # builds a residual add


def _refuse_number(layers: Any) -> Any:
    if isinstance(layers, int):
        raise ValueError("is a pattern of parts, not a number of layers; Headwise calls that depth, as in model.depth")
    return layers


Layers = Annotated[tuple[tuple[AnyPart, ...], ...], BeforeValidator(_refuse_number)]


class StackConfig(Config):
    """`depth` layers. `layers` is a pattern of parts that repeats; by default that of the model."""

    depth: int = Field(6, ge=1, le=MAX_DEPTH)
    layers: Layers = ()
    shared: bool = False  # one set of weights for every repetition of the pattern
    groups: int = Field(1, ge=1)  # of shared layers: groups of consecutive repetitions, each with its own weights

    def count_layers(self, pattern_length: int) -> int:
        """Number of layers with weights of their own, of a pattern of `pattern_length` layers."""
        if self.groups > 1 and not self.shared:
            raise UserError("groups: only layers that share weights have groups; set shared = true")
        if self.groups > ceil(self.depth / pattern_length):
            raise UserError(f"groups: {self.groups} do not fit {self.depth} layers; use fewer groups")
        return self.groups * pattern_length if self.shared else self.depth

    def list_layer_numbers(self, pattern_length: int) -> list[int]:
        """The layer whose weights each place of the stack has, of a pattern of `pattern_length` layers.

        >>> StackConfig(depth=4, shared=True, groups=2).list_layer_numbers(1)
        [0, 0, 1, 1]
        >>> StackConfig(depth=6, shared=True).list_layer_numbers(2)
        [0, 1, 0, 1, 0, 1]
        """
        if not self.shared:
            return list(range(self.depth))
        # In floats, as transformers computes the groups of ALBERT, which differ from integers for 14 of 18 layers.
        repetitions_per_group = ceil(self.depth / pattern_length) / self.groups
        return [
            int(i // pattern_length / repetitions_per_group) * pattern_length + i % pattern_length
            for i in range(self.depth)
        ]


class LayerFields(Config):
    """Settings of layers of attention and feed-forward networks. 0 derives a size from another one."""

    width: int = Field(512, ge=1)
    heads: int = Field(8, ge=1)
    head_width: int = Field(0, ge=0)  # 0: width / heads
    key_value_heads: int = Field(0, ge=0)  # grouped-query attention: heads of keys and values; 0: as many as of queries
    hidden: int = Field(0, ge=0)  # width of the feed-forward network; 0: 4 * width
    activation: Activation = "relu"
    mixer: AnyPart = AttentionConfig()  # mixes the tokens of a sequence
    feedforward: AnyPart = MlpConfig()
    positions: AnyPosition = SinusoidalPositionsConfig()
    wiring: AnyWiring = PostNormConfig()
    norm: AnyNorm = LayerNormConfig()
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)  # on the attention weights; disables the fused kernels on CPUs
    hidden_dropout: float = Field(0.0, ge=0, lt=1)  # inside the feed-forward network
    drop_path: float = Field(0.0, ge=0, lt=1)  # stochastic depth: rate of the last layer, linear from 0 at the first
    layer_scale: float = Field(0.0, ge=0)  # initial value of LayerScale; 0: no LayerScale
    attention_bias: bool = True
    mlp_bias: bool = True

    @model_validator(mode="before")
    @classmethod
    def _spread_depth(cls, data: Any) -> Any:
        """Apply `depth` to every stack that does not set its own."""
        if not isinstance(data, Mapping) or "depth" not in data:
            return data
        depth = {"depth": data["depth"]}
        try:
            StackConfig.model_validate(depth)
        except ValidationError as error:
            raise Problems(list_problems(error)) from None
        stacks = {side: data.get(side, {}) for side in SHORTHANDS["depth"] if side in cls.model_fields}
        spread = {side: {**depth, **stack} for side, stack in stacks.items() if isinstance(stack, Mapping)}
        return {key: value for key, value in data.items() if key != "depth" or key in cls.model_fields} | spread

    @property
    def output_width(self) -> int:
        """Width of a stack's outputs: reversible layers output both halves, 2 * width."""
        return self.wiring.width_factor * self.width

    def count_memory_layers(self) -> int:
        """Number of encoder layers, with the embeddings, that a decoder reads; 0: it reads the encoder's outputs."""
        return 0

    def stacks(self) -> tuple[StackConfig, StackConfig]:
        """The stack of the encoder and that of the decoder."""
        raise TypeError(f"{type(self).__name__} has no stacks")

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        """The layers that repeat over the depth of a stack, unless its `layers` are set; with `memory`, those of a
        decoder with cross-attention."""
        return ((self.mixer, self.feedforward),)


class OneStackFields(LayerFields):
    """Settings of a model with one stack."""

    depth: int = Field(12, ge=1)
    layers: Layers = ()  # a pattern of parts that repeats; empty: the model's own
    shared: bool = False  # one set of weights for every repetition of the pattern
    groups: int = Field(1, ge=1)  # of shared layers: groups of consecutive repetitions, each with its own weights

    @property
    def stack(self) -> StackConfig:
        return StackConfig(depth=self.depth, layers=self.layers, shared=self.shared, groups=self.groups)

    def stacks(self) -> tuple[StackConfig, StackConfig]:
        return self.stack, self.stack


class TwoStackFields(LayerFields):
    """Settings of an encoder and a decoder. `depth` sets that of both."""

    encoder: StackConfig = StackConfig()
    decoder: StackConfig = StackConfig()
    cross_attention: AnyPart = AttentionConfig(attend_to="memory")  # from the decoder to the encoder's outputs
    # each decoder layer attends to its own mixture of the encoder's embeddings and layers (Bapna et al. 2018)
    transparent_attention: bool = False

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        return (*super().known_keys(), "depth")

    def replace(self, **changes: Any) -> Any:
        sides = SHORTHANDS["depth"] if "depth" in changes else ()
        stacks = {side: getattr(self, side).replace(depth=changes["depth"]) for side in sides}
        return super().replace(**{**stacks, **changes})

    def count_memory_layers(self) -> int:
        if not self.transparent_attention:
            return 0
        if self.wiring.width_factor > 1:
            raise UserError(
                f"transparent_attention: embeddings and outputs of '{self.wiring.kind}' layers have different widths; "
                "use wiring = 'pre' or 'post'"
            )
        return self.encoder.depth + 1

    def stacks(self) -> tuple[StackConfig, StackConfig]:
        return self.encoder, self.decoder

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        return ((self.mixer, *((self.cross_attention,) if memory else ()), self.feedforward),)


def build_stack(
    config: LayerFields,
    stack: StackConfig,
    causal: bool = False,
    memory: bool = False,
    build_ctx: BuildContext | None = None,
    make_add: Callable[[int, int], MakeAdd] | None = None,
) -> Stack:
    """Build a stack. `build_ctx` and `make_add(layer, depth)` replace those of the config."""
    build_ctx = build_ctx or build_context(config, causal, memory)
    pattern = stack.layers or config.pattern(memory)
    layer_parts = [pattern[i % len(pattern)] for i in range(stack.count_layers(len(pattern)))]
    wiring = config.wiring.build()
    layers = [
        wiring(
            [part.build(build_ctx) for part in parts],
            lambda: config.norm.build(config.width),
            make_add(number, len(layer_parts)) if make_add else build_residual_add(config, number, len(layer_parts)),
        )
        for number, parts in enumerate(layer_parts)
    ]
    if config.wiring.skips_first_norm:
        layers[0].norms[0] = nn.Identity()
    final_norm = wiring.build_final_norm(lambda: config.norm.build(config.output_width))
    arguments = (layers, final_norm, stack.list_layer_numbers(len(pattern)))
    memory_layers = config.count_memory_layers()
    if memory and memory_layers:
        return TransparentStack(
            *arguments, pattern_length=len(pattern), memory_layers=memory_layers, dropout=config.dropout
        )
    built = Stack(*arguments, pattern_length=len(pattern))
    built.returns_layers = memory_layers > 0 and not causal
    return built


def build_context(config: LayerFields, causal: bool = False, memory: bool = False) -> BuildContext:
    """The build context that parts of a stack get: sizes, defaults, and the score mods of its positions."""
    build_ctx = BuildContext(
        width=config.width,
        heads=config.heads,
        hidden=config.hidden or 4 * config.width,
        head_width=config.head_width,
        key_value_heads=config.key_value_heads,
        activation=config.activation,
        causal=causal,
        memory_width=config.output_width if memory else 0,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        hidden_dropout=config.hidden_dropout,
        attention_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
    )
    return replace(build_ctx, build_score_mods=config.positions.make_score_mod_builder(build_ctx))


def build_residual_add(config: LayerFields, number: int = 0, depth: int = 1) -> MakeAdd:
    """The residual adds of layer `number` of `depth`: dropout, stochastic depth, LayerScale."""
    drop_path = config.drop_path * number / max(depth - 1, 1)
    if config.layer_scale:
        return lambda: LayerScaleAdd(config.width, config.layer_scale, config.dropout, drop_path)
    return lambda: ResidualAdd(config.dropout, drop_path)
