"""Linformer (Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity"): a masked language model of BERT's
layers that attend to a summary of the text.

As in RoBERTa (Liu et al. 2019), which the paper starts from, nobody is asked whether a second text follows. Of the
paper's ways to share matrices this has the thriftiest: one of (256, 512) for keys and values of all layers.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.mixers.lowrank import LowRankConfig
from headwise.blocks.tables import AnyPart
from headwise.models.bert import SIZES as BERT_SIZES
from headwise.models.bert import BertConfig
from headwise.models.entry import Check, Entry


class LinformerConfig(BertConfig):
    kind: Literal["linformer"] = "linformer"  # type: ignore[assignment]
    mixer: AnyPart = LowRankConfig(sharing="layerwise")
    token_types: int = Field(0, ge=0)


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "tiny": {**BERT_SIZES["tiny"], "mixer": {"kind": "linformer", "rank": 8, "max_length": 64, "sharing": "layerwise"}},
}

ENTRY = Entry(
    name="linformer",
    paper="Wang et al., Linformer: Self-Attention with Linear Complexity",
    year=2020,
    family="encoder",
    config=LinformerConfig,
    sizes=SIZES,
    vocab=50_265,
    checks=(
        Check(
            "linformer (PyPI)",
            "tests/parity/test_linformer_package.py::test_outputs_are_those_of_the_package",
            "linformer",
        ),
    ),
)
