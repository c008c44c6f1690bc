"""Tables of parts, scores, score mods, positions, norms, wirings, token embeddings and output layers: the `kind`s of
experiment files and their configs.

A new part is one file with its config and its module, and one line here. torch is not imported until a kind is looked
up, so that errors of unknown kinds, with the near names, come at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headwise.config.base import Table, slot

if TYPE_CHECKING:
    from headwise.blocks.attention.score_mods import ScoreModConfig
    from headwise.blocks.attention.scores import ScoreConfig
    from headwise.blocks.norm import NormConfig
    from headwise.blocks.output_layers import OutputConfig
    from headwise.blocks.part import PartConfig
    from headwise.blocks.positions.base import PositionConfig
    from headwise.blocks.positions.rope_scaling import RopeScalingConfig
    from headwise.blocks.residual import WiringConfig
    from headwise.blocks.token_embeddings import TokenEmbeddingConfig

_ATTENTION, _MIXERS, _POSITIONS = "headwise.blocks.attention", "headwise.blocks.mixers", "headwise.blocks.positions"

PARTS = Table(
    "part",
    default="attention",
    homes={
        # softmax attention
        "attention": f"{_ATTENTION}.multihead:AttentionConfig",
        "branched": f"{_ATTENTION}.branched:BranchedConfig",
        "gated": f"{_ATTENTION}.gated:GatedAttentionConfig",
        "positioned": "headwise.blocks.detection:PositionedAttentionConfig",
        "perceiver": "headwise.blocks.latents:PerceiverAttentionConfig",
        "levit": f"{_MIXERS}.levit_attention:LeViTAttentionConfig",
        "windows": f"{_MIXERS}.window_attention:WindowsConfig",
        "nonlocal": f"{_MIXERS}.nonlocal_block:NonLocalConfig",
        # sparse attention
        "local": f"{_MIXERS}.sparse:LocalMixerConfig",
        "window": f"{_MIXERS}.sparse:WindowMixerConfig",
        "strided": f"{_MIXERS}.sparse:StridedConfig",
        "bigbird": f"{_MIXERS}.sparse:BigBirdMixerConfig",
        "longformer": f"{_MIXERS}.global_window:GlobalWindowConfig",
        "lsh": f"{_MIXERS}.lsh:LshConfig",
        "compressed": f"{_MIXERS}.compressed:CompressedConfig",
        # linear attention and other approximations
        "linformer": f"{_MIXERS}.lowrank:LowRankConfig",
        "linear": f"{_MIXERS}.linear:LinearConfig",
        "performer": f"{_MIXERS}.favor:PerformerConfig",
        "nystromformer": f"{_MIXERS}.nystrom:NystromConfig",
        "retention": f"{_MIXERS}.retention:RetentionConfig",
        "workspace": f"{_MIXERS}.workspace:WorkspaceConfig",
        # other mixers
        "outlook": f"{_MIXERS}.outlook:OutlookConfig",
        "tokens": f"{_MIXERS}.token_mixing:TokensConfig",
        "gmlp": f"{_MIXERS}.spatial_gating:GatedMlpConfig",
        "fourier": f"{_MIXERS}.fourier:FourierConfig",
        "lightweight_conv": f"{_MIXERS}.lightweight_convolution:LightweightConvolutionConfig",
        "dynamic_conv": f"{_MIXERS}.lightweight_convolution:DynamicConvolutionConfig",
        "separable_conv": f"{_MIXERS}.convolution_branches:SeparableConvolutionConfig",
        "conv_branches": f"{_MIXERS}.convolution_branches:ConvolutionBranchesConfig",
        "s4d": f"{_MIXERS}.state_space:StateSpaceConfig",
        "rnn": f"{_MIXERS}.recurrent:RnnConfig",
        "lstm": f"{_MIXERS}.recurrent:LstmConfig",
        "gru": f"{_MIXERS}.recurrent:GruConfig",
        "gru_cho": f"{_MIXERS}.recurrent:ChoGruConfig",
        # feed-forward networks
        "mlp": "headwise.blocks.feedforward:MlpConfig",
        "glu": "headwise.blocks.feedforward:GatedLinearUnitConfig",
        "experts": "headwise.blocks.experts:ExpertsConfig",
        "product_keys": "headwise.blocks.product_keys:ProductKeysConfig",
        "levit_mlp": f"{_MIXERS}.levit_attention:LeViTMlpConfig",
        # parallel branches
        "sum": "headwise.blocks.sum_parts:SumPartsConfig",
    },
)
SCORES = Table(
    "score",
    default="scaled",
    homes={
        "scaled": f"{_ATTENTION}.scores:ScaledConfig",
        "dot": f"{_ATTENTION}.scores:DotConfig",
        "general": f"{_ATTENTION}.scores:GeneralConfig",
        "additive": f"{_ATTENTION}.scores:AdditiveConfig",
        "cosine": f"{_ATTENTION}.scores:CosineConfig",
        "bounded_cosine": f"{_ATTENTION}.scores:BoundedCosineConfig",
        "location": f"{_ATTENTION}.scores:LocationConfig",
        "dense": f"{_ATTENTION}.synthesizer:DenseConfig",
        "random": f"{_ATTENTION}.synthesizer:RandomConfig",
        "factorised": f"{_ATTENTION}.synthesizer:FactorisedConfig",
        "mixture": f"{_ATTENTION}.synthesizer:MixtureConfig",
    },
)
SCORE_MODS = Table(
    "score mod",
    default="window",
    homes={
        "window": f"{_ATTENTION}.score_mods:WindowConfig",
        "hard": f"{_ATTENTION}.hard:HardAttentionConfig",
        "local": f"{_ATTENTION}.hard:LocalAttentionConfig",
        "softcap": f"{_ATTENTION}.score_mods:SoftCapConfig",
        "talking": f"{_ATTENTION}.talking_heads:TalkingConfig",
        "qk_norm": f"{_ATTENTION}.qk_norm:QKNormConfig",
        "alibi": f"{_POSITIONS}.alibi:AlibiConfig",
        "rotary": f"{_POSITIONS}.rotary:RotaryConfig",
        "grid_bias": f"{_POSITIONS}.grid_bias:GridBiasConfig",
        "t5": f"{_POSITIONS}.relative:T5BiasConfig",
        "shaw": f"{_POSITIONS}.relative:ShawRelativeConfig",
    },
)
POSITIONS = Table(
    "position",
    default="sinusoid",
    homes={
        "none": f"{_POSITIONS}.absolute:NoPositionsConfig",
        "sinusoid": f"{_POSITIONS}.absolute:SinusoidalPositionsConfig",
        "learned": f"{_POSITIONS}.absolute:LearnedPositionsConfig",
        "axial": f"{_POSITIONS}.absolute:AxialPositionsConfig",
        "concatenated": f"{_POSITIONS}.concatenated:ConcatenatedPositionsConfig",
        "grid": f"{_POSITIONS}.grid:LearnedGridPositionsConfig",
        "fourier": f"{_POSITIONS}.fourier:FourierPositionsConfig",
        "tree": f"{_POSITIONS}.tree:TreeConfig",
        "alibi": f"{_POSITIONS}.alibi:AlibiConfig",
        "rotary": f"{_POSITIONS}.rotary:RotaryConfig",
        "t5": f"{_POSITIONS}.relative:T5BiasConfig",
        "shaw": f"{_POSITIONS}.relative:ShawRelativeConfig",
        "deberta": f"{_POSITIONS}.relative:DisentangledAttentionConfig",
        "transformer_xl": f"{_POSITIONS}.relative:TransformerXLRelativeConfig",
        "funnel": f"{_POSITIONS}.funnel:FunnelRelativeConfig",
    },
)
ROPE_SCALINGS = Table(
    "RoPE scaling",
    default="none",
    homes={
        "none": f"{_POSITIONS}.rope_scaling:NoScalingConfig",
        "linear": f"{_POSITIONS}.rope_scaling:LinearScalingConfig",
        "dynamic": f"{_POSITIONS}.rope_scaling:DynamicScalingConfig",
        "yarn": f"{_POSITIONS}.rope_scaling:YarnScalingConfig",
        "llama3": f"{_POSITIONS}.rope_scaling:Llama3ScalingConfig",
        "longrope": f"{_POSITIONS}.rope_scaling:LongRopeScalingConfig",
    },
)
NORMS = Table(
    "norm",
    default="layer",
    homes={"layer": "headwise.blocks.norm:LayerNormConfig", "rms": "headwise.blocks.norm:RMSNormConfig"},
)
WIRINGS = Table(
    "wiring",
    default="post",
    homes={
        "post": "headwise.blocks.residual:PostNormConfig",
        "pre": "headwise.blocks.residual:PreNormConfig",
        "respost": "headwise.blocks.residual:ResPostNormConfig",
        "sandwich": "headwise.blocks.residual:SandwichNormConfig",
        "parallel": "headwise.blocks.residual:ParallelPreNormConfig",
        "none": "headwise.blocks.residual:NoResidualConfig",
        "admin": "headwise.blocks.admin:AdminConfig",
        "rezero": "headwise.blocks.rezero:ReZeroConfig",
        "fixup": "headwise.blocks.rezero:FixupConfig",
        "reversible": "headwise.blocks.reversible:ReversibleConfig",
        "gru": "headwise.blocks.gated_residual:GruConfig",
    },
)
TOKEN_EMBEDDINGS = Table(
    "token embedding",
    default="table",
    homes={
        "table": "headwise.blocks.token_embeddings:TableConfig",
        "adaptive": "headwise.blocks.token_embeddings:AdaptiveEmbeddingConfig",
    },
)
OUTPUT_LAYERS = Table(
    "output layer",
    default="softmax",
    homes={
        "softmax": "headwise.blocks.output_layers:SoftmaxConfig",
        "adaptive": "headwise.blocks.output_layers:AdaptiveSoftmaxConfig",
        "mixture": "headwise.blocks.output_layers:MixtureOfSoftmaxesConfig",
        "weight_norm": "headwise.blocks.output_layers:WeightNormSoftmaxConfig",
    },
)

if TYPE_CHECKING:  # to a type checker, the config of what a slot holds
    AnyPart: TypeAlias = PartConfig
    AnyScore: TypeAlias = ScoreConfig
    AnyScoreMod: TypeAlias = ScoreModConfig
    AnyPosition: TypeAlias = PositionConfig
    AnyRopeScaling: TypeAlias = RopeScalingConfig
    AnyNorm: TypeAlias = NormConfig
    AnyWiring: TypeAlias = WiringConfig
    AnyTokenEmbedding: TypeAlias = TokenEmbeddingConfig
    AnyOutputLayer: TypeAlias = OutputConfig
else:
    AnyPart, AnyScoreMod, AnyPosition = slot(PARTS), slot(SCORE_MODS), slot(POSITIONS)
    AnyScore, AnyNorm, AnyWiring = slot(SCORES), slot(NORMS), slot(WIRINGS)
    AnyRopeScaling = slot(ROPE_SCALINGS)
    AnyTokenEmbedding, AnyOutputLayer = slot(TOKEN_EMBEDDINGS), slot(OUTPUT_LAYERS)
