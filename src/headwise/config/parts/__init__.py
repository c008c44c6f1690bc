"""Parts as values: what an experiment file may put into a stack. No torch here; `build` imports what it needs."""

from headwise.config.parts.attention import AttentionConfig, MlpConfig
from headwise.config.parts.compressed import CompressedConfig
from headwise.config.parts.experts import ExpertsConfig
from headwise.config.parts.fourier import FourierConfig
from headwise.config.parts.latent import UnevenConfig
from headwise.config.parts.linear import LinearConfig, PerformerConfig
from headwise.config.parts.lowrank import LowRankConfig
from headwise.config.parts.lsh import LshConfig
from headwise.config.parts.normed import LeViTAttentionConfig, LeViTMlpConfig
from headwise.config.parts.outlook import BareConfig, OutlookConfig
from headwise.config.parts.pairwise import NonLocalConfig
from headwise.config.parts.placed import PositionedAttentionConfig
from headwise.config.parts.recurrent import ChoGruConfig, GruConfig, LstmConfig, RecurrentConfig, RnnConfig
from headwise.config.parts.score_mods import (
    AlibiConfig,
    AxialPositionsConfig,
    DisentangledAttentionConfig,
    HardAttentionConfig,
    LearnedGridPositionsConfig,
    LearnedPositionsConfig,
    LocalAttentionConfig,
    NoPositionsConfig,
    PositionConfig,
    RotaryConfig,
    ScoreModConfig,
    ShawRelativeConfig,
    SinusoidalPositionsConfig,
    T5BiasConfig,
    TransformerXLRelativeConfig,
    WindowConfig,
)
from headwise.config.parts.scores import (
    AdditiveConfig,
    BoundedCosineConfig,
    CosineConfig,
    DotConfig,
    GeneralConfig,
    LocationConfig,
    ScaledConfig,
    ScoreConfig,
)
from headwise.config.parts.site import (
    NORMS,
    PARTS,
    POSITIONS,
    SCORE_MODS,
    SCORES,
    WIRINGS,
    Activation,
    AnyNorm,
    AnyPart,
    AnyPosition,
    AnyScore,
    AnyScoreMod,
    AnyWiring,
    BuildContext,
    PartConfig,
)
from headwise.config.parts.sparse import BigBirdMixerConfig, LocalMixerConfig, StridedConfig, WindowMixerConfig
from headwise.config.parts.synthetic import DenseConfig, FactorisedConfig, MixtureConfig, RandomConfig
from headwise.config.parts.talking import TalkingConfig
from headwise.config.parts.tokens import TokensConfig
from headwise.config.parts.waves import FourierPositionsConfig
from headwise.config.parts.windows import WindowsConfig
from headwise.config.parts.wirings import (
    LayerNormConfig,
    NoResidualConfig,
    PostNormConfig,
    PreNormConfig,
    ResPostNormConfig,
    ReversibleConfig,
    RMSNormConfig,
)
from headwise.config.parts.workspace import WorkspaceConfig

__all__ = [
    "NORMS",
    "PARTS",
    "POSITIONS",
    "SCORES",
    "SCORE_MODS",
    "WIRINGS",
    "Activation",
    "AdditiveConfig",
    "AlibiConfig",
    "AnyNorm",
    "AnyPart",
    "AnyPosition",
    "AnyScore",
    "AnyScoreMod",
    "AnyWiring",
    "AttentionConfig",
    "AxialPositionsConfig",
    "BareConfig",
    "BigBirdMixerConfig",
    "BoundedCosineConfig",
    "BuildContext",
    "ChoGruConfig",
    "CompressedConfig",
    "CosineConfig",
    "DenseConfig",
    "DisentangledAttentionConfig",
    "DotConfig",
    "ExpertsConfig",
    "FactorisedConfig",
    "FourierConfig",
    "FourierPositionsConfig",
    "GeneralConfig",
    "GruConfig",
    "HardAttentionConfig",
    "LayerNormConfig",
    "LeViTAttentionConfig",
    "LeViTMlpConfig",
    "LearnedGridPositionsConfig",
    "LearnedPositionsConfig",
    "LinearConfig",
    "LocalAttentionConfig",
    "LocalMixerConfig",
    "LocationConfig",
    "LowRankConfig",
    "LshConfig",
    "LstmConfig",
    "MixtureConfig",
    "MlpConfig",
    "NoPositionsConfig",
    "NoResidualConfig",
    "NonLocalConfig",
    "OutlookConfig",
    "PartConfig",
    "PerformerConfig",
    "PositionConfig",
    "PositionedAttentionConfig",
    "PostNormConfig",
    "PreNormConfig",
    "RMSNormConfig",
    "RandomConfig",
    "RecurrentConfig",
    "ResPostNormConfig",
    "ReversibleConfig",
    "RnnConfig",
    "RotaryConfig",
    "ScaledConfig",
    "ScoreConfig",
    "ScoreModConfig",
    "ShawRelativeConfig",
    "SinusoidalPositionsConfig",
    "StridedConfig",
    "T5BiasConfig",
    "TalkingConfig",
    "TokensConfig",
    "TransformerXLRelativeConfig",
    "UnevenConfig",
    "WindowConfig",
    "WindowMixerConfig",
    "WindowsConfig",
    "WorkspaceConfig",
]
