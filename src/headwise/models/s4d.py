"""S4D (Gu et al. 2022, "On the Parameterization and Initialization of Diagonal State Space Models"): layers of diagonal
state space models, without attention, positions and feed-forward networks.

In an encoder (classification, tags) layers read in both directions; a language model generates with a
state of constant size. Sizes: `text` and `listops` are those of the paper's experiments on the Long Range Arena.
DISCREPANCY: they have batch norm there, `listops` after the residual add; here pre-norm layers with layer norm.

Reference: the minimal S4D of the authors' repository, state-spaces/s4.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.feedforward import Activation
from headwise.blocks.mixers.state_space import StateSpaceConfig
from headwise.blocks.positions.absolute import NoPositionsConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyPart, AnyPosition, AnyWiring
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_xavier
from headwise.models.layers import OneStackFields, Parts, build_stack


class S4DConfig(OneStackFields, TextFields, ModelConfig):
    """S4D layers stand alone; other mixers have a feed-forward network beside them."""

    tasks = ("classify", "language-model", "tag")
    kind: Literal["s4d"] = "s4d"
    width: int = Field(256, ge=1)
    heads: int = Field(8, ge=1)  # of other mixers
    depth: int = Field(6, ge=1)
    activation: Activation = "gelu"  # of other mixers' feed-forward network
    mixer: AnyPart = StateSpaceConfig()
    positions: AnyPosition = NoPositionsConfig()
    wiring: AnyWiring = PreNormConfig()
    pool: PoolKind = "mean"

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        return ((self.mixer,),) if isinstance(self.mixer, StateSpaceConfig) else ((self.mixer, self.feedforward),)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack)),
            decoder=lambda memory: build_stack(self, self.stack, causal=True),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_xavier(model, self.width)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "text": {},
    "listops": {"width": 128, "depth": 8},
    "tiny": {"width": 32, "heads": 4, "depth": 2, "mixer": {"kind": "s4d", "state": 8}},
}
VOCABULARIES = {"listops": 18}

ENTRY = Entry(
    name="s4d",
    paper="Gu et al., On the Parameterization and Initialization of Diagonal State Space Models",
    year=2022,
    family="recurrent",
    config=S4DConfig,
    sizes=SIZES,
    vocab=256,
    vocabularies=VOCABULARIES,
    checks=(
        Check(
            "scipy.signal.dlsim",
            "tests/blocks/mixers/test_state_space.py::test_a_decoder_is_the_discrete_system_that_scipy_simulates",
            "scipy",
        ),
    ),
)
