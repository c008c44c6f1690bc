"""CURL (Laskin et al. 2020, "CURL: Contrastive Unsupervised Representations for Reinforcement Learning") and M-CURL
(Zhu et al. 2020, "Masked Contrastive Representation Learning for Reinforcement Learning"): agents that act on frames,
and learn beside their values to tell frames apart. References: the code that was released with each.

The agent is soft actor-critic or DQN, as the task says; the contrastive losses are in `blocks/contrast.py`. `base` has
the published sizes for three frames of 84 x 84 pixels and the six actions of cheetah; M-CURL a Transformer of one layer
and one head on windows of 20 frames, 64 of them in a batch.

DISCREPANCY: in the released code of CURL every second update trains the policy and moves the targets; here every update
trains the policy, and `task.target_every` says when targets move. One optimiser trains all losses at once, where the
code has one for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwise.blocks.contrast import BilinearContrast, Contrast, MaskedContrast
from headwise.blocks.positions.absolute import SinusoidalPositionsConfig
from headwise.blocks.residual import PostNormConfig
from headwise.blocks.tables import AnyPosition, AnyWiring
from headwise.config.base import Config
from headwise.errors import UserError
from headwise.models.agent_fields import Agent, AgentFields, finish
from headwise.models.dqn import DqnAgent
from headwise.models.entry import Check, Entry
from headwise.models.layers import OneStackFields, build_stack
from headwise.models.sac import SacAgent


class ContrastFields(Config):
    """Settings of agents with a contrastive loss, by default of three frames of 84 x 84 pixels."""

    observation: tuple[int, ...] = (9, 84, 84)
    actions: int = Field(6, ge=1)
    discrete: bool = False
    frame_encoder: Literal["dqn", "curl"] = "curl"
    features: int = Field(50, ge=1)
    mlp: tuple[int, ...] = (1024, 1024)
    temperature: float = Field(0.1, gt=0)  # of soft actor-critic, at first


def build_agent(config: CurlConfig | MCurlConfig, task: str) -> Agent:
    """Soft actor-critic or DQN, as the task says."""
    if len(config.observation) == 1:
        raise UserError(
            f"model.kind: '{config.kind}' compares crops of frames, and the environment shows numbers; set "
            "observe=pixels where it has them, or choose 'dqn' or 'sac'"
        )
    agent = DqnAgent(config) if config.resolve_task(task) == "q-learning" else SacAgent(config, config.temperature)
    built: Agent = finish(config, agent)
    return built


class CurlConfig(ContrastFields, AgentFields):
    tasks = ("soft-actor-critic", "q-learning")
    kind: Literal["curl"] = "curl"

    def build_contrast(self, width: int) -> Contrast:
        return BilinearContrast(width)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Agent:
        return build_agent(self, task)


class MCurlConfig(OneStackFields, ContrastFields, AgentFields):
    """`width`, `depth`, `hidden` and the parts are those of the Transformer; its width is that of the features."""

    tasks = ("soft-actor-critic", "q-learning")
    kind: Literal["m-curl"] = "m-curl"
    width: int = Field(50, ge=1)
    heads: int = Field(1, ge=1)
    depth: int = Field(1, ge=1)
    hidden: int = Field(100, ge=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    positions: AnyPosition = SinusoidalPositionsConfig()
    wiring: AnyWiring = PostNormConfig()
    windows: int = Field(64, ge=1)  # in a batch
    window: int = Field(20, ge=2)  # consecutive frames of each
    mask_rate: float = Field(0.25, gt=0, lt=1)

    @model_validator(mode="after")
    def _check_width(self) -> Self:
        if self.width != self.features or self.output_width != self.width:
            raise ValueError(
                f"the Transformer has a width of {self.output_width}, a frame {self.features} features; set the same"
            )
        return self

    def build_contrast(self, width: int) -> Contrast:
        stack = build_stack(self, self.stack)
        positions = self.positions.build_positions(width)
        return MaskedContrast(stack, positions, self.windows, self.window, self.mask_rate)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Agent:
        return build_agent(self, task)


SMALL: dict[str, Any] = {"observation": (3, 42, 42), "actions": 2, "channels": 8, "features": 16, "mlp": (32,)}
CURL_SIZES: Mapping[str, Mapping[str, Any]] = {"base": {}, "tiny": SMALL}
M_CURL_SIZES: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "tiny": {**SMALL, "width": 16, "heads": 2, "hidden": 32, "windows": 4, "window": 5},
}
DROPPED = Check(
    "the graph of the policy, which has no parameter of the contrastive loss",
    "tests/models/test_curl.py::test_the_policy_has_no_parameter_of_the_contrastive_loss",
)

CURL_ENTRY = Entry(
    name="curl",
    paper="Laskin et al., CURL: Contrastive Unsupervised Representations for Reinforcement Learning",
    year=2020,
    family="agents",
    config=CurlConfig,
    sizes=CURL_SIZES,
    vocab=0,
    checks=(
        Check("InfoNCE written out, ln B at chance", "tests/blocks/test_contrast.py::test_curl_is_the_equation"),
        DROPPED,
    ),
)

M_CURL_ENTRY = Entry(
    name="m-curl",
    paper="Zhu et al., Masked Contrastive Representation Learning for Reinforcement Learning",
    year=2020,
    family="agents",
    config=MCurlConfig,
    sizes=M_CURL_SIZES,
    vocab=0,
    checks=(
        Check(
            "the released code's Transformer and loss, written out",
            "tests/blocks/test_contrast.py::test_m_curl_is_the_equation",
        ),
        DROPPED,
    ),
)
