"""Settings of Transformer layers and stacks, and the functions that build them.

A model's config combines these groups of settings, with the model's own defaults; all of them can be changed in an
experiment file, so a GPT with ALiBi or a BERT with RMSNorm needs no code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from torch import nn

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.feedforward import Activation, MlpConfig
from headwise.blocks.funnel import PooledLayer, PooledStack, SequencePool
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.absolute import SinusoidalPositionsConfig
from headwise.blocks.recurrence import RecurrenceConfig
from headwise.blocks.residual import LayerScaleAdd, PostNormConfig, ResidualAdd
from headwise.blocks.stack import Stack
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.blocks.transparent import TransparentStack
from headwise.config.base import SHORTHANDS, Config, PositiveInt, Problems, list_problems
from headwise.errors import UserError
from headwise.models.config import MAX_DEPTH

Parts = tuple[Any, ...]  # the parts of one layer
MakeAdd = Callable[[], nn.Module]  # builds a residual add


def _refuse_number(layers: Any) -> Any:
    if isinstance(layers, int):
        raise ValueError("is a pattern of parts, not a number of layers; Headwise calls that depth, as in model.depth")
    return layers


Layers = Annotated[tuple[tuple[AnyPart, ...], ...], BeforeValidator(_refuse_number)]


PooledLayers = tuple[Annotated[int, Field(ge=2)], ...]  # numbers of layers, from 1; the first layer cannot pool


class LayerOverride(Config):
    """Another feed-forward part in some layers of a stack, in the place of their last part."""

    layers: tuple[PositiveInt, ...] = Field(min_length=1)  # numbers of the layers, from 1
    feedforward: AnyPart


class StackConfig(Config):
    """`depth` layers. `layers` is a pattern of parts that repeats; by default that of the model."""

    depth: int = Field(6, ge=1, le=MAX_DEPTH)
    layers: Layers = ()
    overrides: tuple[LayerOverride, ...] = ()  # layers with another feed-forward part than the pattern's
    shared: bool = False  # one set of weights for every repetition of the pattern
    groups: int = Field(1, ge=1)  # of shared layers: groups of consecutive repetitions, each with its own weights
    # Universal Transformer: `depth` steps of the pattern, with step embeddings, gates or adaptive computation time
    recurrence: RecurrenceConfig = RecurrenceConfig(kind="none")
    pooled_layers: PooledLayers = ()  # Funnel in the form of Narang et al.: layers that halve the length, from 2

    VARIANTS: ClassVar = ("overrides", "recurrence", "pooled_layers")  # settings that other libraries do not have

    def count_layers(self, pattern_length: int) -> int:
        """Number of layers with weights of their own, of a pattern of `pattern_length` layers."""
        if self.recurrence.enabled:
            return 1 + max(self.list_layer_numbers(pattern_length))
        if self.groups > 1 and not self.shared:
            raise UserError("groups: only layers that share weights have groups; set shared = true")
        if self.groups > ceil(self.depth / pattern_length):
            raise UserError(f"groups: {self.groups} do not fit {self.depth} layers; use fewer groups")
        return self.groups * pattern_length if self.shared else self.depth

    def list_layer_parts(self, pattern: tuple[Parts, ...]) -> list[Parts]:
        """The parts of each layer with weights of its own: those of the pattern, with the overrides applied."""
        layer_parts = [pattern[i % len(pattern)] for i in range(self.count_layers(len(pattern)))]
        if self.recurrence.enabled and self.recurrence.own_weights:  # the pattern begins after the layers before
            counts = (self.recurrence.before, self.recurrence.after)
            before, after = ([pattern[i % len(pattern)] for i in range(count)] for count in counts)
            layer_parts = [*before, *pattern, *after]
        for override in self.overrides:
            for number in override.layers:
                if number > len(layer_parts):
                    problem = f"overrides: there is no layer {number} among {len(layer_parts)}"
                    raise UserError(f"{problem} with weights of their own; lower the number")
                layer_parts[number - 1] = (*layer_parts[number - 1][:-1], override.feedforward)
        return layer_parts

    def list_layer_numbers(self, pattern_length: int) -> list[int]:
        """The layer whose weights each place of the stack has, of a pattern of `pattern_length` layers.

        >>> StackConfig(depth=4, shared=True, groups=2).list_layer_numbers(1)
        [0, 0, 1, 1]
        >>> StackConfig(depth=6, shared=True).list_layer_numbers(2)
        [0, 1, 0, 1, 0, 1]
        """
        if self.recurrence.enabled:
            return self.recurrence.list_layer_numbers(self.depth, pattern_length)
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
    overrides: tuple[LayerOverride, ...] = ()  # layers with another feed-forward part than the pattern's
    shared: bool = False  # one set of weights for every repetition of the pattern
    groups: int = Field(1, ge=1)  # of shared layers: groups of consecutive repetitions, each with its own weights
    # Universal Transformer: `depth` steps of the pattern, with step embeddings, gates or adaptive computation time
    recurrence: RecurrenceConfig = RecurrenceConfig(kind="none")
    pooled_layers: PooledLayers = ()  # Funnel in the form of Narang et al.: layers that halve the length, from 2

    @property
    def stack(self) -> StackConfig:
        return StackConfig(**{key: getattr(self, key) for key in StackConfig.model_fields})

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
    check_variants(config, stack, build_ctx)
    layer_parts = stack.list_layer_parts(pattern)
    wiring = config.wiring.build()

    def build_wiring(parts: Parts, number: int) -> nn.Module:
        return wiring(
            [part.build(build_ctx) for part in parts],
            lambda: config.norm.build(config.width),
            make_add(number, len(layer_parts)) if make_add else build_residual_add(config, number, len(layer_parts)),
        )

    layers = [
        PooledLayer(
            build_wiring(parts[:1], number), build_wiring(parts[1:], number), SequencePool(separate_first=False)
        )
        if number + 1 in stack.pooled_layers
        else build_wiring(parts, number)
        for number, parts in enumerate(layer_parts)
    ]
    if config.wiring.skips_first_norm:
        norms = layers[0].get_submodule("norms")
        assert isinstance(norms, nn.ModuleList)
        norms[0] = nn.Identity()
    final_norm = wiring.build_final_norm(lambda: config.norm.build(config.output_width))
    if stack.recurrence.enabled:
        return stack.recurrence.build(layers, final_norm, stack.depth, config.width)
    if stack.pooled_layers:
        return PooledStack(layers, final_norm, len(pattern))
    arguments = (layers, final_norm, stack.list_layer_numbers(len(pattern)))
    memory_layers = config.count_memory_layers()
    if memory and memory_layers:
        return TransparentStack(
            *arguments, pattern_length=len(pattern), memory_layers=memory_layers, dropout=config.dropout
        )
    built = Stack(*arguments, pattern_length=len(pattern))
    built.returns_layers = memory_layers > 0 and not causal
    return built


def check_variants(config: LayerFields, stack: StackConfig, build_ctx: BuildContext) -> None:
    """Refuse recurrence and pooled layers where they cannot be."""
    if stack.recurrence.enabled and (stack.pooled_layers or stack.overrides or stack.groups > 1):
        raise UserError("recurrence: steps share one layer; leave out groups, overrides and pooled_layers")
    if stack.pooled_layers and stack.shared:
        raise UserError("pooled_layers: shared layers would pool every time; leave shared out")
    if beyond := [number for number in stack.pooled_layers if number > stack.depth]:
        raise UserError(f"pooled_layers: there is no layer {beyond[0]} among {stack.depth}; lower the number")
    if stack.pooled_layers and build_ctx.causal:
        raise UserError("pooled_layers: would see the future in a decoder; pool in the encoder alone")
    if config.count_memory_layers() and (stack.recurrence.enabled or stack.pooled_layers):
        raise UserError("transparent_attention: reads a plain stack of layers; leave out recurrence and pooled_layers")
    if stack.recurrence.enabled and config.wiring.kind == "reversible":
        raise UserError("recurrence: steps cannot be added to reversible layers; use another wiring")
    if (stack.recurrence.enabled or stack.pooled_layers) and config.wiring.kind == "admin":
        raise UserError("wiring: 'admin' scales a plain stack of layers; use another wiring with recurrence or pooling")


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
