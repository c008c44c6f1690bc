"""Universal Transformer (Dehghani et al. 2019): an encoder and a decoder of one layer each, applied several times.

Before every step sinusoids of the positions and of the step are added to the state, and nothing to the embeddings. With
`recurrence = "act"` each token has its own number of steps, by adaptive computation time. Layers are post-norm,
with the feed-forward network as the transition function.

Sizes are those of the released code (tensor2tensor): `base` has the width with which one shared layer has as many
parameters as the six of Transformer base; those that begin with `act` halt, after twice as many steps at the latest.

DISCREPANCY: the paper also has a separable convolution as the transition function, for its algorithmic tasks, which is
not built.
"""

from __future__ import annotations

from typing import Any, Literal

from headwise.blocks.positions.absolute import NoPositionsConfig
from headwise.blocks.recurrence import RecurrenceConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyPosition
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_xavier
from headwise.models.layers import StackConfig, TwoStackFields, build_stack


class UniversalTransformerConfig(TwoStackFields, TextFields, ModelConfig):
    """`depth` is the number of steps; a stack may have a `recurrence` of its own."""

    tasks = ("transduce", "language-model", "masked", "tag", "classify", "answer")
    kind: Literal["universal-transformer"] = "universal-transformer"
    positions: AnyPosition = NoPositionsConfig()  # beside those of every step
    recurrence: RecurrenceConfig = RecurrenceConfig()

    def stacks(self) -> tuple[StackConfig, StackConfig]:
        encoder, decoder = (
            stack if stack.recurrence.enabled else stack.replace(recurrence=self.recurrence)
            for stack in (self.encoder, self.decoder)
        )
        return encoder, decoder

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        encoder, decoder = self.stacks()
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, encoder)),
            decoder=lambda memory: build_stack(self, decoder, causal=True, memory=memory),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_xavier(model, self.width, self.output_width)
        return model


BASE: dict[str, Any] = {"width": 1024, "heads": 16, "hidden": 4096, "dropout": 0.3}
SIZES: dict[str, dict[str, Any]] = {
    "base": {**BASE, "depth": 6},
    "small": {"depth": 6},
    "big": {**BASE, "width": 2048, "hidden": 8192, "depth": 6},
    "act-base": {**BASE, "depth": 12, "recurrence": {"kind": "act"}},
    "act-small": {"depth": 12, "recurrence": {"kind": "act"}},
    "tiny": {"width": 32, "heads": 4, "hidden": 64, "depth": 2},
}

ENTRY = Entry(
    name="universal-transformer",
    paper="Dehghani et al., Universal Transformers",
    year=2018,
    family="encoder-decoder",
    config=UniversalTransformerConfig,
    sizes=SIZES,
    vocab=37_000,
    published={"base": "65M"},
    checks=(
        Check("the paper's equations", "tests/blocks/test_recurrence.py::test_fixed_steps_are_the_equations"),
        Check("a loop over tokens", "tests/blocks/test_recurrence.py::test_halting_is_the_loop_of_the_paper"),
    ),
)
