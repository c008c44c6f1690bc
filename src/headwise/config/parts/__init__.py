"""Parts as values: what an experiment file may put into a stack. No torch here; `build` imports what it needs."""

from headwise.config.parts.attention import AttentionConfig, MlpConfig
from headwise.config.parts.compressed import CompressedConfig
from headwise.config.parts.experts import ExpertsConfig
from headwise.config.parts.fourier import FourierConfig
from headwise.config.parts.latent import UnevenConfig
from headwise.config.parts.linear import LinearConfig, PerformerConfig
from headwise.config.parts.lowrank import LowRankConfig
from headwise.config.parts.lsh import LshConfig
from headwise.config.parts.normed import NormedConfig, NormedMlpConfig
from headwise.config.parts.outlook import BareConfig, OutlookConfig
from headwise.config.parts.pairwise import NonLocalConfig
from headwise.config.parts.placed import PlacedConfig
from headwise.config.parts.recurrent import ChoGruConfig, GruConfig, LstmConfig, RecurrentConfig, RnnConfig
from headwise.config.parts.score_mods import (
    AlibiConfig,
    AxialConfig,
    BucketsConfig,
    DisentangledConfig,
    GridConfig,
    HardConfig,
    LearnedConfig,
    LocalConfig,
    NoPositionConfig,
    PositionConfig,
    RelativeSinusoidConfig,
    RotaryConfig,
    ScoreModConfig,
    ShawConfig,
    SinusoidConfig,
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
from headwise.config.parts.waves import WavesConfig
from headwise.config.parts.windows import WindowsConfig
from headwise.config.parts.wirings import (
    ChainConfig,
    LayerNormConfig,
    PostConfig,
    PreConfig,
    ResPostConfig,
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
    "AxialConfig",
    "BareConfig",
    "BigBirdMixerConfig",
    "BoundedCosineConfig",
    "BucketsConfig",
    "BuildContext",
    "ChainConfig",
    "ChoGruConfig",
    "CompressedConfig",
    "CosineConfig",
    "DenseConfig",
    "DisentangledConfig",
    "DotConfig",
    "ExpertsConfig",
    "FactorisedConfig",
    "FourierConfig",
    "GeneralConfig",
    "GridConfig",
    "GruConfig",
    "HardConfig",
    "LayerNormConfig",
    "LearnedConfig",
    "LinearConfig",
    "LocalConfig",
    "LocalMixerConfig",
    "LocationConfig",
    "LowRankConfig",
    "LshConfig",
    "LstmConfig",
    "MixtureConfig",
    "MlpConfig",
    "NoPositionConfig",
    "NonLocalConfig",
    "NormedConfig",
    "NormedMlpConfig",
    "OutlookConfig",
    "PartConfig",
    "PerformerConfig",
    "PlacedConfig",
    "PositionConfig",
    "PostConfig",
    "PreConfig",
    "RMSNormConfig",
    "RandomConfig",
    "RecurrentConfig",
    "RelativeSinusoidConfig",
    "ResPostConfig",
    "ReversibleConfig",
    "RnnConfig",
    "RotaryConfig",
    "ScaledConfig",
    "ScoreConfig",
    "ScoreModConfig",
    "ShawConfig",
    "SinusoidConfig",
    "StridedConfig",
    "TalkingConfig",
    "TokensConfig",
    "UnevenConfig",
    "WavesConfig",
    "WindowConfig",
    "WindowMixerConfig",
    "WindowsConfig",
    "WorkspaceConfig",
]
