"""A Transformer with a shared global workspace (Goyal et al. 2022), as in the paper's experiments with hard
competition: four layers with shared weights, 8 slots, top 5 tokens for each slot.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.mixers.workspace import WorkspaceConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyPart
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_xavier
from headwise.models.layers import OneStackFields, build_stack


class WorkspaceModelConfig(OneStackFields, TextFields, ModelConfig):
    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["workspace"] = "workspace"
    width: int = Field(256, ge=1)
    heads: int = Field(4, ge=1)
    hidden: int = Field(512, ge=0)
    depth: int = Field(4, ge=1)
    mixer: AnyPart = WorkspaceConfig()
    shared: bool = True

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack)),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_xavier(model, self.width, self.output_width)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "tiny": {"width": 32, "hidden": 64, "depth": 2, "mixer": {"kind": "workspace", "slots": 4, "top_k": 3}},
}

ENTRY = Entry(
    name="workspace",
    paper="Goyal et al., Coordination Among Neural Modules Through a Shared Global Workspace",
    year=2021,
    family="encoder",
    config=WorkspaceModelConfig,
    sizes=SIZES,
    vocab=10_000,
    checks=(
        Check(
            "its equations, written out in float64",
            "tests/blocks/mixers/test_workspace.py::test_two_layers_are_the_equations_written_out",
        ),
    ),
)
