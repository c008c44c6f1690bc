"""The Transformer of 2017 (Vaswani et al., "Attention Is All You Need").

Post-norm encoder and decoder, sinusoidal positions, one table tied three ways, ReLU feed-forward, dropout on each
sublayer's output and on embedding + position. As in the reference stacks of torch.nn and Marian, attention
projections have biases: 63,082,496 parameters for the base size with 37,000 words, where the paper says 65 million.
"""

from __future__ import annotations

from typing import Any, Literal

from headwise.models.entry import Check, Entry
from headwise.models.transformer_base import TwoStacksConfig


class TransformerConfig(TwoStacksConfig):
    tasks = ("transduce", "language-model", "masked", "tag", "classify", "answer")
    kind: Literal["transformer"] = "transformer"


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "big": {"width": 1024, "heads": 16, "dropout": 0.3},
    "small": {"width": 256, "heads": 4, "depth": 3},
    "tiny": {"width": 32, "heads": 4, "depth": 2},
}

ENTRY = Entry(
    name="transformer",
    paper="Vaswani et al., Attention Is All You Need",
    year=2017,
    family="encoder-decoder",
    config=TransformerConfig,
    sizes=SIZES,
    vocab=37_000,
    published={"base": "65M", "big": "213M"},
    checks=(
        Check("torch.nn.Transformer", "tests/parity/test_torch.py::test_transformer", "torch"),
        Check(
            "transformers.MarianMTModel",
            "tests/parity/test_marian.py::test_logits_are_equal_both_ways",
            "transformers",
        ),
    ),
)
